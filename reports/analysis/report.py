"""One report: the overview of a store, and what pages, tables and figures share, each computed once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fsibench.harness.store import Store
from fsibench.reports.analysis import calibration, duels, functions, hardest, ledger, peers
from fsibench.reports.analysis.anytime import Anytime, shares_of_targets
from fsibench.reports.analysis.conditions import BLOCK
from fsibench.reports.analysis.ledger import Line
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.pairs import pairwise
from fsibench.reports.analysis.results import Floats, Results, Subset, load
from fsibench.reports.analysis.standing import Standing

# Numbers embedded for the slider: about 2 MB of text. Larger stores get fewer grid points, never fewer cells.
MOST_BOARD_NUMBERS = 300_000
MOST_CURVE_NUMBERS = 400_000


@dataclass(frozen=True)
class Report:
    """The overview of a store and what several pages, tables and figures share."""

    overview: Overview
    store_path: Path
    where: Mapping[str, str]
    formats: Sequence[str] = ()  # of the figures that are drawn beside the pages
    figure_names: Sequence[str] = ()

    @classmethod
    def read(cls, store_path: Path, where: Mapping[str, str] | None = None, subset: Subset | None = None) -> Report:
        return cls(Overview(load(store_path, where, subset)), store_path, dict(where or {}))

    @property
    def results(self) -> Results:
        return self.overview.results

    @property
    def title(self) -> str:
        name = self.store_path.stem
        return "fsibench results" if name in ("fsibench", "results") else f"fsibench: {name}"

    @cached_property
    def entry_files(self) -> dict[str, str]:
        """Entry -> file of its page."""
        return {name: f"entry-{stem}.html" for name, stem in file_stems(self.results.entries).items()}

    @cached_property
    def dataset_files(self) -> dict[str, str]:
        return {name: f"dataset-{stem}.html" for name, stem in file_stems(self.results.datasets).items()}

    @cached_property
    def slider(self) -> Anytime:
        room = MOST_BOARD_NUMBERS // (len(self.results.tested) * max(self._num_board_cells, 1)) - 1
        return Anytime.shared(self.results, min(max(room, 3), 40))

    @cached_property
    def curves(self) -> Anytime:
        """Every data set on its own times, for drawing."""
        results = self.results
        numbers = max(len(results.entries) * len(results.datasets) * len(results.tested) * 3, 1)
        return Anytime.per_dataset(results, min(max(MOST_CURVE_NUMBERS // numbers, 6), 40))

    @property
    def _num_board_cells(self) -> int:
        blocks = self.results.cells.loc[self.results.finished, list(BLOCK)].drop_duplicates()
        return len(self.results.entries) * len(blocks)

    @cached_property
    def _kept(self) -> tuple[list[dict[str, Any]], pd.DataFrame]:
        """What cells kept beside their scores; the store is opened, and checked, once."""
        with Store.read(self.store_path) as store:
            return functions.panels(store, self.results), hardest.worst_rows(store, self.results)

    @property
    def panels(self) -> list[dict[str, Any]]:
        """Panels of functions of one or two inputs."""
        return self._kept[0]

    @property
    def worst_rows(self) -> pd.DataFrame:
        """The test rows that each cell predicted worst, as far as the store has them."""
        return self._kept[1]

    @cached_property
    def calibrations(self) -> dict[tuple[str, str], Any]:
        return dict(calibration.calibrations(self.overview))

    @cached_property
    def shares(self) -> dict[str, dict[str, Floats]]:
        """Metric -> entry -> share of targets reached at the slider's times."""
        return {metric: shares_of_targets(self.overview, self.slider, metric) for metric in self.results.tested}

    @cached_property
    def pairs(self) -> dict[str, pd.DataFrame]:
        """Metric -> corrected paired tests on every data set."""
        return {metric: pairwise(self.overview, metric) for metric in self.results.tested}

    @cached_property
    def standings(self) -> dict[str, Standing]:
        """Metric -> where the entries stand; only metrics in which something is ranked."""
        blocks, metrics = self.overview.blocks, self.results.metrics
        return {key: Standing(metrics[key], blocks[key]) for key in metrics if not blocks[key].values.empty}

    @property
    def verdict(self) -> str:
        """One sentence of result; empty where nothing is ranked."""
        standing = self.standings.get(self.overview.main_metric)
        return standing.sentence() if standing is not None else ""

    @cached_property
    def duels(self) -> dict[str, dict[tuple[str, str], duels.Duel]]:
        """Metric -> every pair of entries."""
        return {metric: duels.duels(self.overview, metric) for metric in self.results.tested}

    @cached_property
    def ledger(self) -> list[Line]:
        return list(ledger.ledger(self.overview))

    @cached_property
    def peers(self) -> list[Line]:
        """Published numbers of other papers beside ours."""
        return list(peers.lines(self.overview))


def file_stems(names: Sequence[str]) -> dict[str, str]:
    """A file name for each name: safe characters only, a number where two would collide."""
    stems: dict[str, str] = {}
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9.=-]+", "_", name)[:60].strip("._") or "unnamed"
        taken = set(stems.values())
        stems[name] = next(s for s in (stem, *(f"{stem}-{k}" for k in range(2, len(names) + 2))) if s not in taken)
    return stems
