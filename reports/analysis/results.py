"""A store as arrays: what every report reads. Nothing here knows about methods, data files or HTML.

A report compares like with like, per data set one condition (`conditions`). What is left out is said in `Results.left_out`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fsibench.errors import UsageError
from fsibench.harness.store import CURVE_COLUMNS, Store
from fsibench.metrics import Metric, known
from fsibench.reports.analysis.conditions import BLOCK, own_budgets, select_conditions

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int32]

# A failed cell is the method's doing and counts against it. An unfinished one is not: it counts as not run.
FAILED = ("diverged", "error", "timeout", "oom")
UNFINISHED = ("interrupted", "lost", "running")

# Columns of cells that no report shows; a large store is read faster without them.
UNUSED = frozenset({
    *("run", "budget_seconds", "budget_steps", "per_decade", "keep", "code_version", "attempts", "worker"),
    *("setup_seconds", "setup_cpu_seconds", "evaluate_seconds", "evaluate_cpu_seconds", "paused_cpu_seconds"),
    *("wall_seconds", "total_seconds", "predict_seconds", "finished"),
})  # fmt: skip

# Columns of few texts: as categories they take a tenth of the memory, and are grouped and compared as numbers.
CATEGORIES = frozenset({
    *("entry", "method", "options", "note", "reproduces", "variant", "dataset", "scheme", "budget", "clock", "device"),
    *("data_fingerprint", "status", "flags"),
})

# Machines whose calibrations differ by less are the same but for noise, as `fsibench run` judges it.
SAME_SPEED = 1.5



# Central intervals whose coverage is looked at. Twenty bins of the PIT give each of them exactly.
LEVELS = np.arange(1, 10) / 10
CALIBRATION = "calibration"
NUM_BINS = 20
# Number of a trace by which a method says that its own result should not be trusted.
DIAGNOSTICS_FAILED = "diagnostics_failed"
ROWS_AT_A_TIME = 5_000


def direction(metric: Metric) -> str:
    return "higher is better" if metric.larger_is_better else "lower is better"


def explanation(metric: Metric) -> str:
    """What a metric is, with its unit, as part of a sentence."""
    unit = {"target": ", in the target's units", "nats": ", in nats"}.get(metric.unit, "")
    return f"{metric.meaning or metric.label}{unit}"


def coverage(counts: Floats | Counts) -> Floats:
    """Share of targets within the central intervals of `LEVELS`; PIT counts [..., bins] -> [..., levels]."""
    num_bins = counts.shape[-1]
    total = counts.sum(-1)
    margins = [round((1 - level) / 2 * num_bins) for level in LEVELS]
    return np.stack([counts[..., margin : num_bins - margin].sum(-1) / total for margin in margins], -1)


def calibration_error(counts: Floats | Counts) -> Floats:
    """Mean over `LEVELS` of |coverage − level|, as the metric `calibration`; PIT counts [..., bins] -> [...]."""
    return np.asarray(np.abs(coverage(counts) - LEVELS).mean(-1))


@dataclass(frozen=True)
class Subset:
    """Part of a store under other names: `entries` and `datasets` to keep (all if empty), in this order."""

    entries: Sequence[str] = ()
    datasets: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # entry or data set -> what to call it
    order: str = "rank"  # of the entries in tables: by rank, by name, or as given

    def of(self, cells: pd.DataFrame) -> pd.DataFrame:
        for column, wanted in (("entry", self.entries), ("dataset", self.datasets)):
            present = sorted(cells[column].unique())
            for name in wanted:
                if name not in present:
                    raise UsageError(f"the store has no {column} {name!r}; it has {', '.join(present)}.")
            cells = cells[cells[column].isin(list(wanted))] if wanted else cells
        if not self.names:
            return cells.reset_index(drop=True)
        known_names = {*cells["entry"], *cells["dataset"]}
        for name in self.names:
            if name not in known_names:
                raise UsageError(f"--rename names {name!r}, which is no entry or data set of this report.")
        renamed = cells.assign(**{name: cells[name].astype(object).replace(dict(self.names)) for name in ("entry", "dataset")})
        coordinates = ["entry", *BLOCK]
        if renamed.duplicated(coordinates).any():
            raise UsageError("--rename gives two entries or data sets the same name; choose different ones.")
        return renamed.reset_index(drop=True)

    def words(self) -> list[str]:
        """The arguments of `fsibench report` that choose this subset."""
        renamed = [f"{old}={new}" for old, new in self.names.items()]
        parts = {"--entries": self.entries, "--datasets": self.datasets, "--rename": renamed}
        words = [word for flag, values in parts.items() if values for word in (flag, ",".join(values))]
        return words if self.order == "rank" else [*words, "--order", self.order]

    def ordered(self, column: str, present: Iterable[str]) -> list[str]:
        """Names in the order asked for; those not named follow by alphabet."""
        wanted = self.entries if column == "entry" else self.datasets
        first = [self.names.get(name, name) for name in wanted]
        return [*first, *sorted(set(present) - set(first))]


@dataclass(frozen=True)
class Curves:
    """The evaluations of all cells end to end: those of cell c are `offsets[c]` to `offsets[c + 1]`."""

    offsets: npt.NDArray[np.int64]
    steps: Floats
    seconds: Floats
    cpu_seconds: Floats
    values: Mapping[str, Floats]

    def count_until(self, seconds: float | Floats) -> npt.NDArray[np.int64]:
        """Number of evaluations of each cell at or before a training time, one for all or one per cell."""
        limit = seconds if isinstance(seconds, float) else np.repeat(seconds, np.diff(self.offsets))
        reached = np.concatenate([[0], np.cumsum(self.seconds <= limit)])
        return np.asarray(reached[self.offsets[1:]] - reached[self.offsets[:-1]])

    def last(self, values: Floats, count: npt.NDArray[np.int64]) -> Floats:
        """The value at the count-th evaluation of each cell, NaN where there is none."""
        if not len(values):
            return np.full(len(count), np.nan)
        index = np.maximum(self.offsets[:-1] + count - 1, 0)
        return np.where(count > 0, values[index], np.nan)


    def take(self, cells: npt.NDArray[np.int64]) -> Curves:
        """The evaluations of some cells, in their order."""
        lengths = np.diff(self.offsets)[cells]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][cells] - offsets[:-1], lengths)
        values = {key: column[rows] for key, column in self.values.items()}
        return Curves(offsets, self.steps[rows], self.seconds[rows], self.cpu_seconds[rows], values)


@dataclass(frozen=True)
class Results:
    """Everything a report needs. `cells` has one row per cell, in the order of `curves`."""

    source: Path
    cells: pd.DataFrame
    curves: Curves
    pit: Counts  # at the last evaluation, [cells, bins]; zeros where there is none
    doubtful: Mapping[int, dict[str, Any]]  # row of `cells` -> last trace, where the method says that its diagnostics failed
    runs: list[dict[str, Any]]
    left_out: list[str] = field(default_factory=list)
    stored: frozenset[tuple[str, str]] = frozenset()  # (dataset, scheme) of every cell, those that are left out included
    subset: Subset = field(default_factory=Subset)

    def take(self, rows: npt.NDArray[np.int64]) -> Results:
        """Some of the cells."""
        cells = self.cells.iloc[rows].reset_index(drop=True)
        doubtful = {place: self.doubtful[row] for place, row in enumerate(rows.tolist()) if row in self.doubtful}
        return dataclasses.replace(self, cells=cells, curves=self.curves.take(rows), pit=self.pit[rows], doubtful=doubtful)

    @cached_property
    def entries(self) -> list[str]:
        return self.subset.ordered("entry", self.cells["entry"])

    @cached_property
    def datasets(self) -> list[str]:
        return self.subset.ordered("dataset", self.cells["dataset"])

    @cached_property
    def stored_names(self) -> dict[str, str]:
        """Entry -> its name in the store, which differs where a report renames it."""
        renamed = {new: old for old, new in self.subset.names.items()}
        return {entry: renamed.get(entry, entry) for entry in self.entries}

    @cached_property
    def methods(self) -> dict[str, str]:
        """Entry -> its method."""
        return dict(self.cells[["entry", "method"]].drop_duplicates().itertuples(index=False, name=None))

    @cached_property
    def notes(self) -> dict[str, str]:
        """Entry -> note ("reconstruction", "variant: a hyper-prior"), for entries that have one."""
        found = self.cells[["entry", "note", "variant"]].drop_duplicates().itertuples(index=False)
        told = {entry: "; ".join(filter(None, (note, variant and f"variant: {variant}"))) for entry, note, variant in found}
        return {entry: text for entry, text in told.items() if text}

    @cached_property
    def citations(self) -> dict[str, str]:
        """Method or data set -> its paper, as the runs wrote it down."""
        found: dict[str, str] = {}
        for run in self.runs:
            found |= dict(run["protocol"].get("citations", {}))
        return found | {name: card.get("citation", "") for name, card in self.data_cards.items()}

    @cached_property
    def data_cards(self) -> dict[str, dict[str, Any]]:
        """Data set (without options) -> what the runs wrote down about it."""
        cards: dict[str, dict[str, Any]] = {}
        for run in self.runs:
            cards |= {text.split("[")[0]: card for text, card in run["environment"].get("data", {}).items()}
        return cards

    @cached_property
    def failed(self) -> npt.NDArray[np.bool_]:
        """Cells that count against their method, an `ok` without any evaluation included."""
        empty = np.diff(self.curves.offsets) == 0
        status = self.cells["status"].to_numpy()
        return np.asarray(np.isin(status, FAILED) | ((status == "ok") & empty))

    @cached_property
    def finished(self) -> npt.NDArray[np.bool_]:
        return np.asarray(~np.isin(self.cells["status"].to_numpy(), UNFINISHED))

    @cached_property
    def end_seconds(self) -> Floats:
        """Training seconds at which each cell ended, well or badly."""
        count = np.diff(self.curves.offsets)
        last = self.curves.last(self.curves.seconds, count)
        recorded = self.cells["train_seconds"].to_numpy(dtype=float)
        return np.asarray(np.fmax(np.fmax(last, recorded), 0.0))

    @cached_property
    def speed_ratio(self) -> float:
        """Slowest over fastest machine among the cells, by the calibration kernel; 1 where it is not known."""
        counted = self.cells["clock"] != "reference"  # which makes seconds of unequal machines equal
        known_speeds = self.cells.loc[counted, "calibration_seconds"].astype(float)
        known_speeds = known_speeds[known_speeds > 0]
        return float(known_speeds.max() / known_speeds.min()) if len(known_speeds) else 1.0

    @property
    def same_speed(self) -> bool:
        """Whether seconds of different cells may be averaged."""
        return self.speed_ratio < SAME_SPEED

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that some cell has at its end, in the order of the metric list."""
        have = [key for key in self.curves.values if key in known() and np.isfinite(self.final(key)).any()]
        keys = have or [metric.key for metric in headline_metrics()]
        return {key: known()[key] for key in known() if key in keys}

    @cached_property
    def headline(self) -> list[str]:
        """Keys of the metrics that are ranked first and lead every table."""
        return [key for key, metric in self.metrics.items() if metric.headline]

    @cached_property
    def tested(self) -> list[str]:
        """Keys of the metrics with curves, ranks over time and tests: the headline ones and the calibration error."""
        return [key for key in self.metrics if key in self.headline or key == CALIBRATION]

    def final(self, metric: str) -> Floats:
        """Score of each cell at the end of its budget; NaN where it failed, did not finish or has no such score."""
        if metric not in self.curves.values:
            return np.full(len(self.cells), np.nan)
        values = self.curves.last(self.curves.values[metric], np.diff(self.curves.offsets))
        return np.where(self.failed | ~self.finished, np.nan, values)

    def absent(self, metric: str) -> npt.NDArray[np.bool_]:
        """Cells for which the metric does not exist, such as a density of a sample predictive. They did not fail."""
        final, codes = self.final(metric), self._entry_codes
        without = self.finished & ~self.failed & np.isnan(final)
        lacking, having = (np.bincount(codes, weights=part) > 0 for part in (without, np.isfinite(final)))
        return np.asarray(without | (lacking & ~having)[codes])

    @cached_property
    def _entry_codes(self) -> npt.NDArray[np.int64]:
        """A number for the entry of each cell: quicker to compare than its name."""
        return np.asarray(pd.factorize(self.cells["entry"])[0], dtype=np.int64)

    def table(self, metric: str, values: Floats | None = None) -> pd.DataFrame:
        """A bare table of the finished cells that have the metric: entry, dataset, split, seed, value (NaN: failed).

        `values` are the scores at the end unless given, for example those at an earlier time.
        """
        table = self.cells[["entry", *BLOCK]].assign(value=self.final(metric) if values is None else values)
        return table[self.finished & ~self.absent(metric)].reset_index(drop=True)


def headline_metrics() -> list[Metric]:
    return [metric for metric in known().values() if metric.headline]


def load(path: Path, where: Mapping[str, str] | None = None, subset: Subset | None = None) -> Results:
    """Read a store; `where` fixes conditions, for example `{"budget": "20s"}`."""
    with Store.read(Path(path)) as store:
        runs = store.runs()
        cells = store.cells(without=UNUSED, categories=CATEGORIES)
        stored = frozenset(cells[["dataset", "scheme"]].drop_duplicates().itertuples(index=False, name=None))
        cells, left_out = select_conditions(cells, where or {}, own_budgets(runs))
        if subset is not None:
            cells = subset.of(cells)
        curves, pit, doubtful = _read_curves(store, cells)
    return Results(Path(path), cells, curves, pit, doubtful, runs, left_out, stored, subset or Subset())


def _read_curves(store: Store, cells: pd.DataFrame) -> tuple[Curves, Counts, dict[int, dict[str, Any]]]:
    """One pass over the evaluations, which the store hands out by cell id: the order of `cells`."""
    ids = np.array(cells["id"].tolist(), dtype=bytes)
    metrics = store.metrics()
    column = {name: index for index, name in enumerate((*CURVE_COLUMNS, *metrics))}
    numbers = ("step", "train_seconds", "cpu_seconds", *(key for key in metrics if key != CALIBRATION))
    # Filled in place: pieces that are joined at the end would be there twice. A driver may have added rows since.
    data: Floats = np.empty((store.num_evaluations(), len(numbers) + 1))
    lengths = np.zeros(len(cells), dtype=np.int64)
    filled = 0
    counts: Counts = np.zeros((len(cells), NUM_BINS), dtype=np.int32)
    doubtful: dict[int, dict[str, Any]] = {}
    for rows in store.curve_chunks(ROWS_AT_A_TIME):
        wanted = np.array([row[0] for row in rows], dtype=bytes)
        place = np.searchsorted(ids, wanted)
        here = np.flatnonzero(np.append(ids, b"")[place] == wanted)
        if not len(here):
            continue
        owner, kept = place[here], [rows[row] for row in here]
        pits = np.asarray(_parsed(row[column["pit"]] for row in kept), dtype=np.int32)
        if pits.shape[1] != counts.shape[1]:
            counts = np.zeros((len(cells), pits.shape[1]), dtype=np.int32)
        piece = [[row[column[name]] for name in numbers] for row in kept]
        if (more := filled + len(kept) - len(data)) > 0:
            data = np.concatenate([data, np.empty((more, data.shape[1]))])
        data[filled : filled + len(kept), :-1] = piece
        data[filled : filled + len(kept), -1] = calibration_error(pits)
        filled += len(kept)
        lengths += np.bincount(owner, minlength=len(cells))
        # The last evaluation of each cell in this piece; a later piece may still have a later one.
        last = np.flatnonzero(np.append(owner[1:] != owner[:-1], True))
        counts[owner[last]] = pits[last]
        doubtful.pop(int(owner[0]), None)
        told = {int(owner[row]): kept[row][column["trace"]] for row in last if DIAGNOSTICS_FAILED in kept[row][column["trace"]]}
        doubtful |= {cell: trace for cell, trace in zip(told, _parsed(told.values()), strict=True) if trace.get(DIAGNOSTICS_FAILED)}
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = dict(zip((*numbers, CALIBRATION), data[:filled].T, strict=True))
    steps, seconds, cpu_seconds = (columns.pop(name) for name in ("step", "train_seconds", "cpu_seconds"))
    curves = Curves(offsets, steps, seconds, cpu_seconds, columns)
    return curves, counts, doubtful


def _parsed(texts: Iterable[str]) -> list[Any]:
    """JSON texts, parsed in one call: a call per row is what makes a large store slow."""
    parsed: list[Any] = json.loads(f"[{','.join(texts)}]")
    return parsed
