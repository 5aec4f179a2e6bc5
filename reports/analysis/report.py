"""One report: the overview of a store, and what pages, tables and figures share, each computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fsibench.reports.analysis import calibration, functions, ledger
from fsibench.reports.analysis.anytime import Anytime, shares_of_targets
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.pairs import pairwise
from fsibench.reports.analysis.results import BLOCK, METRICS, Floats, Results, load

# Numbers embedded for the slider: about 5 MB of text. Larger stores get fewer grid points, never fewer cells.
MOST_BOARD_NUMBERS = 900_000


@dataclass(frozen=True)
class Report:
    """The overview of a store and what several pages, tables and figures share."""

    overview: Overview
    store_path: Path
    where: Mapping[str, str]

    @classmethod
    def read(cls, store_path: Path, where: Mapping[str, str] | None = None) -> Report:
        return cls(Overview(load(store_path, where)), store_path, dict(where or {}))

    @property
    def results(self) -> Results:
        return self.overview.results

    @cached_property
    def slider(self) -> Anytime:
        room = MOST_BOARD_NUMBERS // (len(METRICS) * max(self._num_board_cells, 1)) - 1
        return Anytime.shared(self.results, min(max(room, 3), 40))

    @property
    def _num_board_cells(self) -> int:
        cells = self.results.cells[self.results.finished]
        return len(self.results.entries) * len(cells.drop_duplicates(list(BLOCK)))

    @cached_property
    def panels(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = functions.panels(self.store_path, self.results)
        return found

    @cached_property
    def calibrations(self) -> dict[tuple[str, str], Any]:
        return dict(calibration.calibrations(self.overview))

    @cached_property
    def shares(self) -> dict[str, dict[str, Floats]]:
        """Metric -> entry -> share of targets reached at the slider's times."""
        return {metric: shares_of_targets(self.overview, self.slider, metric) for metric in METRICS}

    @cached_property
    def pairs(self) -> dict[str, pd.DataFrame]:
        """Metric -> corrected paired tests on every data set."""
        return {metric: pairwise(self.overview, metric) for metric in METRICS}

    @cached_property
    def ledger(self) -> list[ledger.Line]:
        return list(ledger.ledger(self.overview))
