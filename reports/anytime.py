"""Scores of every cell at shared training times: what curves, the budget slider and time-to-target are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fsibench.reports.results import Floats, Results


@dataclass(frozen=True)
class Anytime:
    """All cells on one log-spaced grid of training seconds."""

    results: Results
    seconds: Floats
    _cache: dict[str, Floats] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, results: Results, num_points: int = 25) -> Anytime:
        return cls(results, results.time_grid(num_points))

    def values(self, metric: str) -> Floats:
        """Score of each cell at each time, [cells, G]; NaN before the first posterior and after a failure."""
        if metric not in self._cache:
            self._cache[metric] = np.column_stack([self.results.at(metric, float(t)) for t in self.seconds])
        return self._cache[metric]

    @cached_property
    def groups(self) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
        """(dataset, entry) -> its finished cells."""
        cells = self.results.cells[["dataset", "entry"]][self.results.finished]
        return {key: np.asarray(rows) for key, rows in cells.groupby(["dataset", "entry"]).groups.items()}

    def band(self, metric: str, dataset: str, entry: str) -> Floats:
        """Median and quartiles over splits at each time, [3, G]."""
        rows = self.groups.get((dataset, entry))
        if rows is None:
            return np.full((3, len(self.seconds)), np.nan)
        return quartiles(self.values(metric)[rows])


def quartiles(values: Floats) -> Floats:
    """Median, lower and upper quartile over the rows, [3, G]; NaN where fewer than half of the rows have a value."""
    result = np.full((3, values.shape[1]), np.nan)
    enough = np.isfinite(values).mean(0) >= 0.5
    if enough.any():
        result[:, enough] = np.nanquantile(values[:, enough], [0.5, 0.25, 0.75], axis=0)
    return result
