"""What happens away from the usual split: with a gap in one input, and with fewer training rows.

Both look at the final scores of a store, finished cells only, and compare means over splits of equal budgets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

USUAL = ("standard", "paper")  # the first of these that a store has is what `gap` is compared with
REFERENCE, REFERENCE_ROWS = "gp", 200
_ROWS = re.compile(r"^(?P<before>.*?)[\[?&,]train_rows=(?P<rows>\d+)\]?$")
_KEYS = ["dataset", "entry", "budget", "clock", "device"]


@dataclass(frozen=True)
class Fall:
    """Mean LL of an entry on a data set under the usual scheme and under `gap`."""

    dataset: str
    entry: str
    usual: float
    gap: float
    splits: int  # gaps that were run

    @property
    def fall(self) -> float:
        return self.usual - self.gap


@dataclass(frozen=True)
class Growth:
    """Mean score of an entry on a data set at each number of training rows, and the rows it needs."""

    dataset: str
    entry: str
    scores: dict[int, float]
    needed: str  # rows at which it reaches the reference; empty without a reference


def has_some(stored: Iterable[tuple[str, str]]) -> bool:
    """Whether (dataset, scheme) of a store's cells allow either comparison; otherwise its scores need not be read."""
    pairs = set(stored)
    return any(scheme == "gap" for _, scheme in pairs) or any(_base_and_rows(dataset) is not None for dataset, _ in pairs)


def falls(finals: pd.DataFrame, metric: str = "ll") -> list[Fall]:
    """One line for each entry and data set that ran under both schemes with one budget."""
    means = _means(finals, metric, [*_KEYS, "scheme"])
    counts = finals[finals["scheme"] == "gap"].groupby(["dataset", "entry"])["split"].nunique()
    wide = means.unstack("scheme")
    usual = next((scheme for scheme in USUAL if scheme in wide), None)
    if usual is None or "gap" not in wide:
        return []
    both = wide[[usual, "gap"]].dropna()
    return [
        Fall(place[0], place[1], float(row[usual]), float(row["gap"]), int(counts[place[0], place[1]]))
        for place, row in both.iterrows()
    ]


def growth(finals: pd.DataFrame, metric: str = "ll") -> list[Growth]:
    """One line for each entry and data set that ran with several numbers of training rows."""
    places = finals["dataset"].map(_base_and_rows)
    some = finals[places.notna()]
    if some.empty:
        return []
    base, rows = zip(*places[places.notna()], strict=True)
    means = _means(some.assign(base=base, rows=rows), metric, ["base", "entry", "rows"])
    found = []
    for dataset in dict.fromkeys(base):
        table = means[dataset].unstack("rows")
        target = _reference(table)
        found += [_growth(dataset, str(entry), table.loc[entry].dropna(), target) for entry in table.index]
    return [line for line in found if len(line.scores) > 1]


def _means(finals: pd.DataFrame, metric: str, keys: list[str]) -> pd.Series:
    return finals[finals["status"] == "ok"].groupby(keys)[metric].mean()


def _base_and_rows(dataset: str) -> tuple[str, int] | None:
    """`wine[dedupe=true,train_rows=50]` -> ("wine[dedupe=true]", 50)."""
    match = _ROWS.match(dataset)
    if match is None:
        return None
    before = match["before"]
    return (f"{before}]" if dataset.endswith("]") and "[" in before else before), int(match["rows"])


def _reference(table: pd.DataFrame) -> float:
    known = REFERENCE in table.index and REFERENCE_ROWS in table.columns
    return float(table.at[REFERENCE, REFERENCE_ROWS]) if known else math.nan


def _growth(dataset: str, entry: str, scores: pd.Series, target: float) -> Growth:
    points = {int(rows): float(score) for rows, score in sorted(scores.items())}
    return Growth(dataset, entry, points, "" if math.isnan(target) else rows_needed(points, target))


def rows_needed(scores: dict[int, float], target: float) -> str:
    """The number of rows at which a score first reaches the target; linear in log rows between two numbers."""
    before: tuple[int, float] | None = None
    for rows, score in scores.items():
        if score >= target:
            return f"at most {rows}" if before is None else f"{_between(before, (rows, score), target):.0f}"
        before = (rows, score)
    return f"more than {max(scores)}"


def _between(low: tuple[int, float], high: tuple[int, float], target: float) -> float:
    share = (target - low[1]) / (high[1] - low[1])
    return math.exp(math.log(low[0]) + share * (math.log(high[0]) - math.log(low[0])))
