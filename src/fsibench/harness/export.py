"""A store as tidy tables, and the dictionary that says what every column means.

    evaluations   one row per look at a posterior: scores against step and seconds
    cells         one row per cell, also of those that failed before their first look
    options       one row per option of an entry, as resolved
    pit           one row per bin of a look's histogram of probability integral transforms
    trace         one row per number that a posterior told about itself at a look

Tables join on `cell`, and on `step` where there is one. Empty means unknown or not applicable.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fsibench.errors import unknown
from fsibench.harness.store import Store
from fsibench.metrics import known

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["text", "integer", "number", "boolean"]


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    meaning: str


def _columns(kind: Kind, **meanings: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind, meaning) for name, meaning in meanings.items())


CELL = Column("cell", "text", "id of the cell: a hash of everything that can change its result")
STEP = Column("step", "integer", "pulls of `fit` before this look")
COORDINATES = (
    CELL,
    *_columns(
        "text",
        entry="method and the options that differ from its defaults, as ranked",
        method="name of the method",
        options="all options of the method as resolved, JSON",
        note="the method's own remark, for example reconstruction",
        reproduces="published column that the entry answers for",
        variant="how its objective departs from the published one",
        dataset="data set with its options",
        scheme="split scheme",
    ),
    *_columns("integer", split="number of the split", seed="repetition seed"),
    Column("budget_seconds", "number", "training seconds allowed; empty for a step budget"),
    Column("budget_steps", "integer", "steps allowed; empty for a budget in seconds"),
    *_columns(
        "text",
        clock="what a budget in seconds counts: wall, cpu or reference",
        device="cpu, cuda or mps",
        status="ok, diverged, error, timeout, oom, interrupted, lost or running",
    ),
)
CELLS = (
    *COORDINATES,
    *_columns(
        "text",
        message="why it ended, where it did not end well; otherwise metrics of plugins that failed",
        flags="what makes its clock doubtful, separated by commas",
        started="UTC",
        finished="UTC",
        data_fingerprint="hash of the data",
        code_version="hash of the code that matters for the result",
        keep="artifacts that were kept, separated by commas",
        worker="where it ran, on a cluster",
    ),
    *_columns(
        "integer",
        run="number of the run in this store",
        attempts="how often it was started",
        per_decade="looks per factor of ten of training",
        num_train="training rows",
        num_test="test rows",
        num_scored="test rows that its last look scored: fewer where the budget is too short for all of them",
        num_inputs="inputs after encoding",
        predict_rows="test rows predicted in all looks together",
    ),
    *_columns(
        "number",
        target_scale="standard deviation of the training targets, in the target's units",
        train_seconds="training seconds charged to the budget",
        wall_seconds="training seconds by the wall clock",
        cpu_seconds="training seconds of CPU",
        total_seconds="wall seconds from start to end",
        setup_seconds="wall seconds of loading and splitting",
        setup_cpu_seconds="the same in CPU seconds",
        predict_seconds="wall seconds of all predictions",
        predict_cpu_seconds="the same in CPU seconds",
        predict_seconds_per_1000_rows="wall seconds of predicting 1,000 rows",
        evaluate_seconds="wall seconds of scoring, predictions not included",
        evaluate_cpu_seconds="the same in CPU seconds",
        paused_cpu_seconds="CPU seconds of its other threads and children while the clock stood still",
        peak_memory_mb="largest resident memory of the cell's process, in MB",
        calibration_seconds="CPU seconds of the calibration kernel where it ran",
    ),
    Column("contended", "boolean", "whether it shared its core with something else"),
)
LOOKS = (
    *COORDINATES,
    STEP,
    Column("final", "boolean", "whether it is the cell's last look"),
    *_columns(
        "number",
        train_seconds="training seconds charged to the budget so far",
        wall_seconds="training seconds by the wall clock so far",
        cpu_seconds="training seconds of CPU so far",
    ),
    *_columns("integer", num_rows="test rows that this look scored", num_train="training rows", num_test="test rows that there are"),
)
OPTIONS = _columns("text", entry="as in the other tables", method="its method", option="name", value="value, as JSON")
PIT = (
    CELL,
    STEP,
    Column("bin", "integer", "number of the bin, from 0"),
    *_columns("number", lower="lower edge of the bin", upper="upper edge of the bin"),
    Column("count", "integer", "test rows whose probability integral transform fell into it"),
)
TRACE = (CELL, STEP, Column("name", "text", "what the number is"), Column("value", "number", "the number"))
TABLES = {"evaluations": LOOKS, "cells": CELLS, "options": OPTIONS, "pit": PIT, "trace": TRACE}

DTYPES = {"text": "object", "integer": "Int64", "number": "float64", "boolean": "boolean"}


def columns(table: str, metrics: list[str] | None = None) -> tuple[Column, ...]:
    """The columns of a table; those of evaluations end with the metrics, all known ones or the given ones."""
    if table not in TABLES:
        raise unknown("table", table, TABLES)
    if table != "evaluations":
        return TABLES[table]
    scores = known()
    keys = list(scores) if metrics is None else metrics
    units = {"target": ", in the target's units", "nats": ", in nats", "": ""}
    told = {key: metric.meaning + units[metric.unit] for key, metric in scores.items()}
    return (*LOOKS, *(Column(key, "number", told.get(key, "a metric of a plugin that is not installed")) for key in keys))


def dictionary() -> str:
    """What every column means, as Markdown."""
    parts = []
    for table in TABLES:
        rows = "\n".join(f"| `{column.name}` | {column.kind} | {column.meaning} |" for column in columns(table))
        parts.append(f"### {table}\n\n| column | type | meaning |\n| --- | --- | --- |\n{rows}\n")
    return "\n".join(parts)


def frame(store: Store, table: str) -> pd.DataFrame:
    """One table of an open store, with the columns and types of the dictionary."""
    wanted = columns(table, store.metrics())
    makers: dict[str, Callable[[Store], pd.DataFrame]] = {
        "evaluations": _evaluations, "cells": _cells, "options": _options, "pit": _pit, "trace": _trace
    }  # fmt: skip
    made = makers[table](store)
    return made.loc[:, [column.name for column in wanted]].astype({c.name: DTYPES[c.kind] for c in wanted})


def _cells(store: Store) -> pd.DataFrame:
    cells = store.cells().rename(columns={"id": "cell"})
    rows = cells["predict_rows"].astype("float64").where(lambda rows: rows > 0)
    return cells.assign(
        predict_seconds_per_1000_rows=1000 * cells["predict_seconds"].astype("float64") / rows,
        num_scored=cells["cell"].map(store.scored_rows()),
    )


def _evaluations(store: Store) -> pd.DataFrame:
    own = store.evaluations()
    cells = _cells(store)
    repeated = (set(own) & set(cells)) - {"cell"}
    return own[own["cell"].isin(cells["cell"])].merge(
        cells[[name for name in cells if name not in repeated]], on="cell", how="left"
    )


def _options(store: Store) -> pd.DataFrame:
    entries = _cells(store)[["entry", "method", "options"]].drop_duplicates()
    return _tidy(
        ["entry", "method", "option", "value"],
        [
            (row.entry, row.method, option, json.dumps(value))
            for row in entries.itertuples()
            for option, value in json.loads(row.options).items()
        ],
    )


def _pit(store: Store) -> pd.DataFrame:
    rows = []
    for look in store.evaluations().itertuples():
        counts = json.loads(look.pit)
        rows += [
            (look.cell, look.step, bin, bin / len(counts), (bin + 1) / len(counts), count)
            for bin, count in enumerate(counts)
        ]
    return _tidy([column.name for column in PIT], rows)


def _trace(store: Store) -> pd.DataFrame:
    looks = store.evaluations().itertuples()
    rows = [(look.cell, look.step, name, value) for look in looks for name, value in json.loads(look.trace).items()]
    return _tidy([column.name for column in TRACE], rows)


def _tidy(names: list[str], rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=names)
