"""Calibration from the stored PIT counts: histograms, coverage of central intervals, over- and under-confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from fsibench.reports.analysis import statistics
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.results import LEVELS, Floats, calibration_error, coverage

SMALLEST_GAP = 0.02
LEVEL_OF_TEST = 0.01


def coverage_gap(counts: Floats) -> Floats:
    """Mean of coverage minus level: negative is over-confident, positive is under-confident."""
    return np.asarray((coverage(counts) - LEVELS).mean(-1))


@dataclass(frozen=True)
class Calibration:
    """One entry on one data set, splits pooled."""

    pit: Floats  # density per bin: 1 is uniform
    coverage: Floats
    error: float
    sharpness: float
    gap: float
    p_value: float

    @property
    def flag(self) -> str:
        if not self.p_value < LEVEL_OF_TEST or abs(self.gap) < SMALLEST_GAP:
            return ""
        return "over-confident" if self.gap < 0 else "under-confident"


def calibrations(overview: Overview) -> dict[tuple[str, str], Calibration]:
    """(dataset, entry) -> calibration at the end of the budget, over the cells that finished well."""
    results = overview.results
    good = results.finished & ~results.failed & (results.pit.sum(1) > 0)
    sharpness = results.final("sharpness")
    found = {}
    for (dataset, entry), cells in results.cells.loc[good, ["dataset", "entry", "split"]].groupby(["dataset", "entry"], observed=True):
        # seeds of a split are not further splits: their counts are averaged
        counts = pd.DataFrame(results.pit[cells.index.to_numpy()]).groupby(cells["split"].to_numpy()).mean().to_numpy()
        width = float(np.mean(sharpness[cells.index.to_numpy()]))
        found[str(dataset), str(entry)] = calibration(counts, width, overview.test_to_train[str(dataset)])
    return found


def calibration(counts: Floats, sharpness: float, test_to_train: float) -> Calibration:
    """From PIT counts of several splits, [splits, bins]."""
    pooled = counts.sum(0)
    gaps = coverage_gap(counts)
    return Calibration(
        pit=pooled / pooled.sum() * len(pooled),
        coverage=coverage(pooled),
        error=float(calibration_error(pooled)),
        sharpness=sharpness,
        gap=float(gaps.mean()),
        p_value=gap_p_value(gaps, float(pooled.sum()), test_to_train),
    )


def gap_p_value(gaps: Floats, num_points: float, test_to_train: float) -> float:
    """Is the mean gap over splits more than chance? The larger p-value of two tests, so that neither few points nor few splits mislead.

    With the error that a calibrated predictive has, and with that of the gaps seen, whose few splits call for Student's distribution.
    """
    gap = abs(float(gaps.mean()))
    found = 2 * stats.norm.sf(gap / calibrated_error(len(gaps), num_points, test_to_train))
    if len(gaps) > 1:
        seen = math.sqrt(statistics.corrected_variance(gaps, test_to_train))
        found = max(found, 2 * stats.t.sf(gap / seen, len(gaps) - 1) if seen > 0 else 0.0)
    return float(found)


def calibrated_error(num_splits: int, num_points: float, test_to_train: float) -> float:
    """Standard error of the mean gap of a calibrated predictive.

    A uniform transform lies within k of the nine intervals, k = 0..9 equally likely: the gap of n points has variance
    (10² − 1)/12 / 9² / n. Two splits share the fraction `test_to_train`/(1 + `test_to_train`) of their test points.
    """
    per_split = (10**2 - 1) / 12 / 9**2 / (num_points / num_splits)
    shared = test_to_train / (1 + test_to_train)
    return math.sqrt(per_split * (1 / num_splits + shared * (1 - 1 / num_splits)))


def table(found: dict[tuple[str, str], Calibration]) -> pd.DataFrame:
    """One row per data set and entry: error, gap, flag, sharpness, coverage of every level."""
    rows = []
    for (dataset, entry), item in sorted(found.items()):
        levels = {f"coverage_{round(100 * level)}": value for level, value in zip(LEVELS, item.coverage, strict=True)}
        fixed = {"dataset": dataset, "entry": entry, "calibration_error": item.error, "coverage_gap": item.gap}
        rows.append({**fixed, "p_value": item.p_value, "flag": item.flag, "sharpness": item.sharpness, **levels})
    return pd.DataFrame(rows)
