"""What a search maximises: how far LL and CRPS are on the way from `constant` to the best known, over the data sets.

Both ends are fixed numbers (`references.csv`, made by scripts/make_references.py from a run of protocol `dev`), so that
every method is measured with the same ruler. 0 is `constant`, 1 the best known; better than that is more than 1.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

METRICS = ("ll", "crps")
# A fit that fails, or is this much worse than `constant`, counts as that, so that one table cannot decide the mean of ten.
FLOOR = -1.0


@dataclass(frozen=True)
class Ends:
    """Scores of `constant` and of the best known entry on one split."""

    constant: float
    best: float


@functools.cache
def references() -> Mapping[tuple[str, int, str], Ends]:
    """(data set, split, metric) -> both ends."""
    path = Path(__file__).parent / "references.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["dataset"], int(row["split"]), row["metric"]): Ends(float(row["constant"]), float(row["best"]))
            for row in csv.DictReader(file)
        }


def share_of_the_way(ends: Ends, value: float) -> float:
    """0 at `constant`, 1 at the best known, never below the floor; NaN, a fit without scores, is the floor."""
    share = (value - ends.constant) / (ends.best - ends.constant)
    return FLOOR if math.isnan(share) else max(share, FLOOR)


def merit(dataset: str, split: int, scores: Mapping[str, float]) -> float:
    """Mean over LL and CRPS on one split; the floor for a fit that failed (no scores)."""
    ends = references()
    shares = [share_of_the_way(ends[dataset, split, name], scores.get(name, float("nan"))) for name in METRICS]
    return sum(shares) / len(shares)


def datasets(split: int = 0) -> list[str]:
    """The sets that have references for a split, in the order of the file: smaller ones first."""
    return list(dict.fromkeys(name for name, number, _ in references() if number == split))
