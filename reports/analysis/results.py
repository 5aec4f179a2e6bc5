"""A store as arrays: what every report reads. Nothing here knows about methods, data files or HTML.

A report compares like with like: per data set one condition (split scheme, budget, clock, device), the one with the
most cells unless the caller asks for another. What is left out is said in `Results.left_out`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fsibench.errors import UsageError
from fsibench.harness.store import CURVE_COLUMNS, Store

Floats = npt.NDArray[np.float64]

# A failed cell is the method's doing and counts against it. An unfinished one is not: it counts as not run.
FAILED = ("diverged", "error", "timeout", "oom")
UNFINISHED = ("interrupted", "lost", "running")

CONDITION = ("scheme", "budget", "clock", "device")
BLOCK = ("dataset", "split", "seed")


@dataclass(frozen=True)
class Metric:
    key: str
    label: str
    larger_is_better: bool
    explanation: str

    @property
    def direction(self) -> str:
        return "higher is better" if self.larger_is_better else "lower is better"


METRICS = {
    metric.key: metric
    for metric in (
        Metric("rmse", "RMSE", False, "root mean squared error of the predictive mean, in the target's units"),
        Metric("ll", "LL", True, "mean log density of the test targets, in the target's units"),
        Metric("crps", "CRPS", False, "continuous ranked probability score, in the target's units"),
        Metric(
            "calibration",
            "Calibration error",
            False,
            "mean distance between the distribution of the probability integral transforms and the uniform one; "
            "0 is perfect, and about 0.31/√n is chance for n test points",
        ),
    )
}
SCORES = ("rmse", "ll", "crps")


def calibration_error(counts: Floats) -> Floats:
    """Mean over the inner bin edges u of |F(u) − u|, F the empirical cdf of the PIT; counts [..., bins] -> [...]."""
    num_bins = counts.shape[-1]
    edges = np.arange(1, num_bins) / num_bins
    cdf = counts.cumsum(-1)[..., :-1] / counts.sum(-1, keepdims=True)
    return np.asarray(np.abs(cdf - edges).mean(-1))


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


@dataclass(frozen=True)
class Results:
    """Everything a report needs. `cells` has one row per cell, in the order of `curves`."""

    source: Path
    cells: pd.DataFrame
    curves: Curves
    pit: Floats  # counts at the last evaluation, [cells, bins]; zeros where there is none
    traces: list[dict[str, Any]]  # trace at the last evaluation
    runs: list[dict[str, Any]]
    left_out: list[str] = field(default_factory=list)

    @cached_property
    def entries(self) -> list[str]:
        return sorted(self.cells["entry"].unique())

    @cached_property
    def datasets(self) -> list[str]:
        return sorted(self.cells["dataset"].unique())

    @cached_property
    def notes(self) -> dict[str, str]:
        """Entry -> note ("reconstruction", "variant: a hyper-prior"), for entries that have one."""
        variant = self.cells["variant"].where(self.cells["variant"] == "", "variant: " + self.cells["variant"])
        notes = zip(self.cells["note"], variant, strict=True)
        told = zip(self.cells["entry"], ("; ".join(filter(None, pair)) for pair in notes), strict=True)
        return {entry: text for entry, text in told if text}

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

    def final(self, metric: str) -> Floats:
        """Score of each cell at the end of its budget; NaN where it failed or did not finish."""
        values = self.curves.last(self.curves.values[metric], np.diff(self.curves.offsets))
        return np.where(self.failed | ~self.finished, np.nan, values)

    def table(self, values: Floats, name: str = "value") -> pd.DataFrame:
        """A bare table of the finished cells: entry, dataset, split, seed, value (NaN: failed)."""
        table = self.cells[["entry", *BLOCK]].assign(**{name: values})
        return table[self.finished].reset_index(drop=True)


def load(path: Path, where: Mapping[str, str] | None = None) -> Results:
    """Read a store; `where` fixes conditions, for example `{"budget": "20s"}`."""
    with Store.read(Path(path)) as store:
        cells, left_out = select_conditions(store.cells(), where or {})
        curves, pit, traces = _read_curves(store, cells)
        runs = store.runs()
    return Results(Path(path), cells, curves, pit, traces, runs, left_out)


def select_conditions(cells: pd.DataFrame, where: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """Per data set the condition with the most cells (the latest among equals), and sentences on what is left out."""
    for column, wanted in where.items():
        present = sorted(cells[column].unique())
        if wanted not in present:
            raise UsageError(f"no cell has {column} {wanted!r}; the store has {', '.join(map(repr, present))}.")
        cells = cells[cells[column] == wanted]
    if cells.empty:
        return cells.reset_index(drop=True), []
    groups = cells.groupby(["dataset", *CONDITION], sort=False)["started"].agg(["size", "max"]).reset_index()
    groups = groups.sort_values(["size", "max"], kind="stable")
    chosen = groups.drop_duplicates("dataset", keep="last")
    dropped = groups.drop(chosen.index)
    keys = ["dataset", *CONDITION]
    selected = cells.merge(chosen[keys], on=keys)
    return selected.sort_values("id", ignore_index=True), _left_out(dropped)


def _left_out(dropped: pd.DataFrame) -> list[str]:
    sentences = []
    for condition, rows in dropped.groupby(list(CONDITION), sort=True):
        text = ", ".join(f"{name} {value}" for name, value in zip(CONDITION, condition, strict=True))
        names = ", ".join(sorted(rows["dataset"]))
        sentences.append(f"{rows['size'].sum()} cells with {text} (on {names}) are not shown here.")
    return sentences


def _read_curves(store: Store, cells: pd.DataFrame) -> tuple[Curves, Floats, list[dict[str, Any]]]:
    """One pass over the evaluations, which the store hands out by cell id: the order of `cells`."""
    position = {cell: index for index, cell in enumerate(cells["id"])}
    metrics = store.metrics()
    column = {name: index for index, name in enumerate((*CURVE_COLUMNS, *metrics))}
    numbers = ("step", "train_seconds", "cpu_seconds", *(key for key in metrics if key != "calibration"))
    pieces: list[Floats] = []
    owners: list[npt.NDArray[np.int64]] = []
    last: dict[int, tuple[str, str]] = {}
    for rows in store.curve_chunks():
        kept = [row for row in rows if row[0] in position]
        if not kept:
            continue
        # One json.loads per chunk: a call per row is what makes a large store slow.
        pits = json.loads("[" + ",".join(row[column["pit"]] for row in kept) + "]")
        calibration = calibration_error(np.asarray(pits, dtype=float))
        piece = [[row[column[name]] for name in numbers] for row in kept]
        pieces.append(np.column_stack([np.asarray(piece, dtype=float), calibration]))
        owners.append(np.asarray([position[row[0]] for row in kept], dtype=np.int64))
        last.update({position[row[0]]: (row[column["pit"]], row[column["trace"]]) for row in kept})
    data = np.concatenate(pieces) if pieces else np.zeros((0, len(numbers) + 1))
    owner = np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(cells)))]).astype(np.int64)
    columns = dict(zip((*numbers, "calibration"), data.T, strict=True))
    steps, seconds, cpu_seconds = (columns.pop(name) for name in ("step", "train_seconds", "cpu_seconds"))
    curves = Curves(offsets, steps, seconds, cpu_seconds, columns)
    return curves, *_last_looks(last, len(cells))


def _last_looks(last: Mapping[int, tuple[str, str]], num_cells: int) -> tuple[Floats, list[dict[str, Any]]]:
    """PIT counts [cells, bins] and traces at each cell's last evaluation."""
    parsed = {cell: (json.loads(pit), json.loads(trace)) for cell, (pit, trace) in last.items()}
    num_bins = max((len(pit) for pit, _ in parsed.values()), default=20)
    counts = np.zeros((num_cells, num_bins))
    traces: list[dict[str, Any]] = [{} for _ in range(num_cells)]
    for cell, (pit, trace) in parsed.items():
        counts[cell] = pit
        traces[cell] = trace
    return counts, traces
