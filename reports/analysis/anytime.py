"""Scores of every cell at chosen training times: what curves, the budget slider and time-to-target are made from.

The score at a time is that of the last evaluation at or before it: what a reader who stops then would have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from fsibench.reports.analysis import statistics
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.ranking import CONSTANT
from fsibench.reports.analysis.results import Floats, Results

# The first look at a fast method can come after microseconds; this much before the end is early enough.
EARLIEST_SHARE = 1e-4
NUM_TARGETS = 51


def time_grid(first: float, last: float, num_points: int) -> Floats:
    """Log-spaced training seconds from the first evaluation to the last; a single time where there is no span."""
    if not 0 < last < math.inf:
        return np.array([1.0])
    first = max(first, last * EARLIEST_SHARE)
    return np.geomspace(first, last, num_points) if first < last * 0.999 else np.array([last])


def evaluation_spans(results: Results) -> pd.DataFrame:
    """First and last evaluation of each cell at a positive training time: first, last (infinite and 0 if there is none)."""
    curves, num_cells = results.curves, len(results.cells)
    first, last = np.full(num_cells, np.inf), np.zeros(num_cells)
    filled = np.flatnonzero(np.diff(curves.offsets))
    if len(filled):
        starts = curves.offsets[filled]
        first[filled] = np.minimum.reduceat(np.where(curves.seconds > 0, curves.seconds, np.inf), starts)
        last[filled] = np.maximum.reduceat(curves.seconds, starts)
    return pd.DataFrame({"first": first, "last": last})


@dataclass(frozen=True)
class Anytime:
    """All cells on a grid of training times, [cells, G]; use `shared` or `per_dataset`."""

    results: Results
    grids: dict[str, Floats]  # data set -> its times
    smooth: bool = False  # straight lines in log time between evaluations, for drawing; ranks never look ahead

    @classmethod
    def shared(cls, results: Results, num_points: int) -> Anytime:
        """The same times for all data sets: from when half of the cells have a result, until the last evaluation."""
        spans = evaluation_spans(results)[results.finished]
        first = spans["first"][np.isfinite(spans["first"])].median()
        grid = time_grid(float(first), float(spans["last"].max()), num_points)
        return cls(results, dict.fromkeys(results.datasets, grid))

    @classmethod
    def per_dataset(cls, results: Results, num_points: int) -> Anytime:
        """Each data set on its own times, for drawing; shorter grids are padded with their last time."""
        spans = evaluation_spans(results).groupby(results.cells["dataset"], observed=True).agg({"first": "min", "last": "max"})
        grids = {str(name): time_grid(row["first"], row["last"], num_points) for name, row in spans.iterrows()}
        length = max(map(len, grids.values()), default=1)
        padded = {name: np.pad(grid, (0, length - len(grid)), mode="edge") for name, grid in grids.items()}
        return cls(results, padded, smooth=True)

    @cached_property
    def seconds(self) -> Floats:
        """Times of each cell, [cells, G]."""
        if not self.grids:
            return np.zeros((0, 1))
        return np.stack([self.grids[name] for name in self.results.cells["dataset"]])

    @cached_property
    def _counts(self) -> npt.NDArray[np.int64]:
        """Evaluations of each cell until each time, [cells, G]; none where it has failed by then or never finished."""
        results, times = self.results, self.seconds
        # A time grid ends at an evaluation time; rounding must not lose that evaluation.
        counts = np.column_stack([results.curves.count_until(column * (1 + 1e-9)) for column in times.T])
        gone = results.failed[:, None] & (times >= results.end_seconds[:, None])
        return np.where(gone | ~results.finished[:, None], 0, counts)

    @cached_property
    def _cache(self) -> dict[str, Floats]:
        return {}

    @cached_property
    def _bands(self) -> dict[str, dict[tuple[str, str], Floats]]:
        return {}

    def values(self, metric: str) -> Floats:
        """Score of each cell at each time, [cells, G]; NaN before the first posterior and after a failure."""
        if metric not in self._cache:
            curves = self.results.curves
            columns = [curves.last(curves.values[metric], column) for column in self._counts.T]
            self._cache[metric] = np.column_stack(columns)
            if self.smooth:
                self._cache[metric] += self._climb * self._rise(metric, self._cache[metric])
        return self._cache[metric]

    def _rise(self, metric: str, now: Floats) -> Floats:
        """Next evaluation's score minus the current one, [cells, G]; 0 where either is missing."""
        curves = self.results.curves
        columns = [curves.last(curves.values[metric], column) for column in self._next_counts.T]
        return np.asarray(np.nan_to_num(np.column_stack(columns) - now))

    @cached_property
    def _next_counts(self) -> npt.NDArray[np.int64]:
        length = np.diff(self.results.curves.offsets)[:, None]
        return np.where(self._counts > 0, np.minimum(self._counts + 1, length), 0)

    @cached_property
    def _climb(self) -> Floats:
        """How far each time lies between the evaluations around it, on the log axis, [cells, G]; 0 to 1."""
        curves = self.results.curves
        before, after = (
            np.column_stack([curves.last(curves.seconds, column) for column in counts.T])
            for counts in (self._counts, self._next_counts)
        )
        # An evaluation at time zero lies left of any log axis; the smallest time of the grid stands in for it.
        before, after = np.fmax(before, self.seconds[:, :1]), np.fmax(after, self.seconds[:, :1])
        width = np.log(after / before)
        share = np.divide(np.log(self.seconds / before), width, out=np.zeros_like(width), where=width > 0)
        return np.asarray(np.clip(np.nan_to_num(share), 0.0, 1.0))

    @cached_property
    def groups(self) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
        """(dataset, entry) -> its finished cells."""
        cells = self.results.cells[["dataset", "entry"]][self.results.finished]
        return {key: np.asarray(rows) for key, rows in cells.groupby(["dataset", "entry"], observed=True).groups.items()}

    def band(self, metric: str, dataset: str, entry: str) -> Floats | None:
        """Median, lower and upper quartile over splits at each time, [3, G]; None where nothing finished."""
        if dataset not in self._bands:  # kept, since three kinds of pages draw the same ones
            self._bands[dataset] = self._bands_of(dataset)
        return self._bands[dataset].get((metric, entry))

    def _bands_of(self, dataset: str) -> dict[tuple[str, str], Floats]:
        """All bands of a data set; scores at all times are needed only here, one entry's at a time: a large store stays small."""
        bands: dict[tuple[str, str], Floats] = {}
        for (of, entry), rows in self.groups.items():
            if of == dataset:
                piece = Anytime(self.results.take(rows), {dataset: self.grids[dataset]}, self.smooth)
                bands |= {(metric, entry): quartiles(piece.values(metric)) for metric in self.results.tested}
        return bands


def quartiles(values: Floats) -> Floats:
    """Median, lower and upper quartile over the rows, [3, G]; NaN where fewer than half of the rows have a value."""
    present = np.isfinite(values)
    count = present.sum(0)  # [G]
    ordered = np.sort(np.where(present, values, np.inf), axis=0)
    result = np.full((3, values.shape[1]), np.nan)
    columns = np.flatnonzero(2 * count >= len(values))
    for row, share in enumerate((0.5, 0.25, 0.75)):
        position = share * (count[columns] - 1)
        low = np.floor(position).astype(int)
        high = np.minimum(low + 1, count[columns] - 1)
        below, above = ordered[low, columns], ordered[high, columns]
        result[row, columns] = below + (position - low) * (above - below)
    return result


def shares_of_targets(overview: Overview, anytime: Anytime, metric: str) -> dict[str, Floats]:
    """Ranked entry -> share of targets reached by each time of a shared grid, [G]: mean over data sets of the mean over splits.

    Only splits count that every ranked entry has: some splits are easier than others. Targets of a data set run from the mean score of `constant` (without it: the worst mean) to the best mean.
    """
    larger = overview.results.metrics[metric].larger_is_better
    sign = 1.0 if larger else -1.0
    # The best score so far; nothing before the first posterior.
    scores = np.where(np.isnan(anytime.values(metric)), -np.inf, sign * anytime.values(metric))
    best_so_far = np.maximum.accumulate(scores, axis=1)  # [cells, G]
    wanted = {dataset: _targets(overview, metric, dataset) for dataset in overview.results.datasets}
    blocks = overview.blocks[metric]
    common = {(str(dataset), int(split)) for dataset, split, *_ in blocks.values.index}
    splits = overview.results.cells["split"].to_numpy()
    parts: dict[str, list[Floats]] = {entry: [] for entry in blocks.entries}
    for (dataset, entry), rows in anytime.groups.items():
        goals = wanted[dataset]
        rows = rows[[(dataset, int(split)) in common for split in splits[rows]]]
        if goals is None or entry not in parts or not len(rows):
            continue
        reached = np.searchsorted(sign * goals, best_so_far[rows], side="right") / len(goals)  # [splits, G]
        parts[entry].append(reached.mean(0))
    return {entry: np.mean(found, axis=0) for entry, found in parts.items() if found}


def area_range(grid: Floats) -> tuple[float, float]:
    """Training seconds over which the share of targets is averaged: the last decade before the last evaluation.

    On an axis that starts at the first microsecond, the fastest start would win whatever comes later.
    """
    return max(float(grid[0]), float(grid[-1]) / 10), float(grid[-1])


def area(grid: Floats, shares: Floats) -> float:
    """Mean share of targets reached, over log time within `area_range`."""
    start, end = area_range(grid)
    inner = grid[grid > start * (1 + 1e-9)]
    times = np.concatenate([[start], inner]) if start < end else np.array([end])
    held = shares[np.searchsorted(grid, times * (1 + 1e-9), side="right") - 1]
    value: float = statistics.area_under_curve(times, held)
    return value


def _targets(overview: Overview, metric: str, dataset: str) -> Floats | None:
    means = overview.means(metric, dataset)
    if not means:
        return None
    larger = overview.results.metrics[metric].larger_is_better
    best = max(means.values()) if larger else min(means.values())
    worst = means.get(CONSTANT, min(means.values()) if larger else max(means.values()))
    if best == worst or (best > worst) != larger:
        return None
    goals: Floats = statistics.targets(worst, best, NUM_TARGETS)
    return goals
