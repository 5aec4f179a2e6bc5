"""Can a store be believed? Checks every row, runs a sample of cells again under watch, and asks for fresh data.

    rows     RMSE, LL and CRPS must be possible together, counts must add up, clocks must agree
    oracle   nothing beats the true conditional density on its own test rows
    rerun    a step budget reproduces bit for bit
    conduct  what a method's code does while it is watched (`witness`)
    fresh    an advantage over `linear` must survive data that nobody could prepare for
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench import metrics, registry
from fsibench.errors import FsibenchError
from fsibench.harness import environment, fresh_data, plausibility
from fsibench.harness.plan import Cell, Protocol, make_plan
from fsibench.harness.store import Store
from fsibench.harness.witness import TIME_LIMIT, Account, watch

if TYPE_CHECKING:
    import pandas as pd

# Of a machine beside the reference.
POSSIBLE_SPEEDS = (0.05, 20.0)
# Seconds by which two clocks around the same work may differ, and the share of them.
CLOCK_SLACK, CLOCK_SHARE = 0.05, 0.05
# Standard errors by which chance may beat the truth.
MOST_ERRORS = 3.0
# On another processor or another torch, rounding differs and a fit amplifies it.
FOREIGN_TOLERANCE = 0.05


@dataclass(frozen=True)
class Finding:
    """One thing that an entry has to explain."""

    entry: str
    check: str
    explanation: str


@dataclass
class Audit:
    """What was found, and what could not be looked at."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, entry: str, check: str, explanation: str) -> None:
        finding = Finding(entry, check, explanation)
        if finding not in self.findings:
            self.findings.append(finding)


def audit(
    path: Path, sample: int, seed: int, code: Collection[str] = (), fresh: int = 0, progress: Callable[[str], None] = lambda _: None
) -> Audit:
    """Audit a store. `code` names the `./file.py:Class` entries that may be executed; `fresh` is a number of splits."""
    with Store.read(path) as store:
        cells, looks, runs = store.cells(), store.evaluations(), store.runs()
    result = Audit()
    check_rows(cells, looks, result)
    check_oracles(cells, looks, result)
    planned = _plan_again(runs, code, result)
    check_sample(_sample(cells, planned, sample, seed, result), cells, looks, runs, result, progress)
    if fresh:
        key = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for entry, sentence in fresh_data.lost_advantages(looks, planned, fresh, key, progress):
            result.find(entry, "fresh", sentence)
    return result


# Rows ----------------------------------------------------------------------------------------------------------------


def check_rows(cells: pd.DataFrame, looks: pd.DataFrame, result: Audit) -> None:
    """Every row by itself: the first sentence of each kind for each entry and data set."""
    by_id = cells.set_index("id")
    said: set[tuple[str, str, str]] = set()
    for look in looks.to_dict("records"):
        cell = by_id.loc[look["cell"]]
        for sentence in _row_doubts(look, cell):
            kind = (look["entry"], look["dataset"], sentence.split()[0])
            if kind not in said:
                said.add(kind)
                place = f"{look['dataset']}/{look['split']} step {look['step']}"
                result.find(look["entry"], "rows", f"{place}: {sentence}")
    for cell in cells.to_dict("records"):
        for flag in filter(None, str(cell["flags"] or "").split(",")):
            result.find(cell["entry"], "rows", f"{cell['dataset']}: marked by the harness: {flag.strip()}")


def _row_doubts(look: Mapping[str, Any], cell: Mapping[str, Any]) -> Iterator[str]:
    scores = [look.get(key) for key in ("rmse", "ll", "crps")]
    if all(isinstance(value, float) and math.isfinite(value) for value in scores):
        yield from plausibility.too_good(*scores)  # type: ignore[arg-type]
    counts = json.loads(look["pit"])
    rows = cell["num_test"] if _is_empty(look["num_rows"]) else look["num_rows"]  # older stores do not tell
    if counts and not _is_empty(rows) and sum(counts) != rows:
        yield f"PIT counts sum to {sum(counts)}, but {rows:g} test rows were scored"
    if not _is_empty(rows) and not _is_empty(cell["num_test"]) and rows > cell["num_test"]:
        yield f"Scored on {rows:g} rows, but there are {cell['num_test']:g} test rows"
    if look["step"] > (cell["budget_steps"] or math.inf):  # nan, where the budget is in seconds, compares as false
        yield f"step {look['step']} lies beyond the budget of {cell['budget_steps']:g}"
    measured = look["wall_seconds"] if cell["clock"] == "wall" else look["cpu_seconds"]
    if cell["clock"] == "reference":  # CPU seconds times a speed
        slow, fast = (measured * speed for speed in POSSIBLE_SPEEDS)
        if not slow - CLOCK_SLACK <= look["train_seconds"] <= fast + CLOCK_SLACK:
            yield f"clocks disagree: {look['train_seconds']:.3f} s charged, {measured:.3f} CPU s measured"
    elif abs(look["train_seconds"] - measured) > CLOCK_SLACK + CLOCK_SHARE * measured:
        yield f"clocks disagree: {look['train_seconds']:.3f} s charged, {measured:.3f} s measured"


def _is_empty(value: float | None) -> bool:
    return value is None or math.isnan(value)


def check_oracles(cells: pd.DataFrame, looks: pd.DataFrame, result: Audit) -> None:
    """Mean gain over the true conditional density on the very same test rows, against its standard error."""
    final = looks[looks["final"].astype(bool)]
    for dataset, rows in final.groupby("dataset"):
        if not hasattr(registry.dataset(str(dataset)) if _is_known(str(dataset)) else None, "oracle"):
            continue
        truth = {part: _truth(str(dataset), *part) for part in dict.fromkeys(_parts(rows))}
        for entry, own in rows.groupby("entry"):
            for metric in ("rmse", "ll", "crps"):
                sign = 1.0 if metrics.known()[metric].larger_is_better else -1.0
                oracle = [truth[part][metric] for part in _parts(own)]
                gain = sign * sum(own[metric] - [value for value, _ in oracle]) / len(own)
                error = math.sqrt(sum(error**2 for _, error in oracle)) / len(own)
                if gain > MOST_ERRORS * error + 0.005 * abs(oracle[0][0]):
                    text = f"{dataset}: {metric} better by {gain:.3g} than the true density, which nothing can be"
                    result.find(str(entry), "oracle", text)


def _is_known(dataset: str) -> bool:
    try:
        registry.dataset(dataset)
    except FsibenchError:
        return False
    return True


def _parts(looks: pd.DataFrame) -> list[tuple[str, int, int | None]]:
    """Scheme, split and number of scored rows of each look."""
    counts = [None if _is_empty(count) else int(count) for count in looks["num_rows"]]
    return list(zip(looks["scheme"], looks["split"], counts, strict=True))


def _truth(dataset: str, scheme: str, split: int, num_rows: int | None = None) -> dict[str, tuple[float, float]]:
    """Score and standard error of the true density on those test rows of a split that a look scored."""
    import torch

    from fsibench.harness.schedule import chosen_rows
    from fsibench.predictive import Predictive

    known: Any = registry.dataset(dataset)
    rows = known.split(scheme, split)
    chosen = chosen_rows(len(rows.test_y), num_rows, dataset, scheme, split)
    here = slice(None) if chosen is None else chosen.numpy()
    loc, scale = (torch.from_numpy(part).double() for part in known.oracle(rows.test_x[here]))
    y = torch.from_numpy(rows.test_y[here]).double()
    # Where the noise vanishes the density is unbounded, so the scale has a lower bound here.
    predictive = Predictive(loc, scale.clamp_min(0.05 * float(y.std())))
    squares, ll, crps = (predictive.mean - y).square(), predictive.log_prob(y), predictive.crps(y)

    def error(values: torch.Tensor) -> float:
        return float(values.std()) / math.sqrt(len(values))

    rmse = float(squares.mean().sqrt())
    return {
        "rmse": (rmse, error(squares) / (2 * rmse)),
        "ll": (float(ll.mean()), error(ll)),
        "crps": (float(crps.mean()), error(crps)),
    }


# Running again -------------------------------------------------------------------------------------------------------


def _plan_again(runs: Sequence[Mapping[str, Any]], code: Collection[str], result: Audit) -> dict[str, Cell]:
    """The cells that the store's own protocols mean today, by id. Files of code run only when they were named."""
    planned: dict[str, Cell] = {}
    for run in runs:
        for text in run["protocol"].get("methods", ()):
            if ".py:" in text and text not in code:
                result.notes.append(f"{text} was not run again: it is a file of code; name it with --methods {text}")
                continue
            try:
                planned |= {cell.id: cell for cell in make_plan(_protocol({**run["protocol"], "methods": [text]}))}
            except (FsibenchError, TypeError) as error:
                result.notes.append(f"{text} was not run again: {error}")
    result.notes = list(dict.fromkeys(result.notes))
    return planned


def _protocol(record: Mapping[str, Any]) -> Protocol:
    known = {one.name for one in fields(Protocol)}
    values: dict[str, Any] = {key: value for key, value in record.items() if key in known}
    values |= {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    values["datasets"] = tuple(text for text in values["datasets"] if ".py:" not in text)
    if isinstance(values.get("splits"), int):  # how older stores say it
        values["splits"] = tuple(range(values["splits"]))
    return Protocol(**values)


def _sample(cells: pd.DataFrame, planned: Mapping[str, Cell], size: int, seed: int, result: Audit) -> list[Cell]:
    """A random choice of finished step-budget cells, every entry before any entry twice."""
    finished = cells[(cells["status"] == "ok") & cells["budget_steps"].notna()]
    ids = sorted(set(finished["id"]) & set(planned))
    if missing := len(finished) - len(ids):
        result.notes.append(f"{missing} cells cannot be run again: the code, the data or the options are others now")
    if len(finished) < (cells["status"] == "ok").sum():
        result.notes.append("cells with a budget in seconds do not reproduce bit for bit and were not run again")
    random.Random(seed).shuffle(ids)
    turn: dict[str, int] = {}
    order = []
    for number, cell in enumerate(ids):
        entry = planned[cell].entry
        turn[entry] = turn.get(entry, 0) + 1
        order.append((turn[entry], number))
    return [planned[ids[number]] for _, number in sorted(order)[:size]]


def check_sample(
    sample: Sequence[Cell],
    cells: pd.DataFrame,
    looks: pd.DataFrame,
    runs: Sequence[Mapping[str, Any]],
    result: Audit,
    progress: Callable[[str], None],
) -> None:
    """Run cells again under watch and compare what they report with what the store says."""
    here = environment.machine() if sample else {}
    environments = {run["id"]: run["environment"] for run in runs}
    run_of = dict(zip(cells["id"], cells["run"], strict=True))
    for number, cell in enumerate(sample, 1):
        account = watch(cell, TIME_LIMIT)
        made = environments.get(run_of[cell.id], {})
        same_machine = all(made.get(key) == here.get(key) for key in ("processor", "packages", "python"))
        stored = looks[looks["cell"] == cell.id]
        difference = compare(stored, account, 0.0 if same_machine else FOREIGN_TOLERANCE)
        if difference:
            result.find(cell.entry, "rerun", f"{cell.dataset}/{cell.split}: {difference}")
        for finding in account.findings:
            result.find(cell.entry, "conduct", finding)
        progress(f"[{number}/{len(sample)}] {cell.title}: {difference or 'the same again'}")


def compare(stored: pd.DataFrame, account: Account, tolerance: float) -> str:
    """How a rerun differs from the stored rows; empty when it does not."""
    if account.end.status != "ok":
        return f"stored as ok, but it ended as {account.end.status}: {account.end.message}"
    again = {look.step: look for look in account.evaluations}
    steps = set(stored["step"])
    if steps != set(again):
        return f"looks at steps {sorted(steps)} are stored, and it reports {sorted(again)}"
    for row in stored.to_dict("records"):
        for key, value in again[row["step"]].scores.items():
            if not _equal(row.get(key), value, tolerance):
                return f"step {row['step']}: {key} {row.get(key)!r} is stored, and it gives {value!r}"
    return ""


def _equal(stored: float | None, again: float | None, tolerance: float) -> bool:
    """Whether two scores agree; a metric that does not exist for a predictive is empty or nan in both."""
    first, second = (math.nan if value is None else float(value) for value in (stored, again))
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second or abs(first - second) <= tolerance * max(abs(first), abs(second))
