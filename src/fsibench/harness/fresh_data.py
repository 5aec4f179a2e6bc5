"""Does an entry's advantage survive data that nobody could prepare for?

Each entry is run again, under its own budget and another seed, on data made from the published ones with a key that
follows from the store's own bytes (`fresh:KEY:NAME`). Its advantage over `linear` there is compared with the advantage
that the store claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsibench.harness.events import Evaluation
from fsibench.harness.plan import Cell, Protocol, make_plan
from fsibench.harness.witness import TIME_LIMIT, watch

if TYPE_CHECKING:
    import pandas as pd

# Fresh data deal the rows at random, so only random splits are comparable.
RANDOM_SCHEMES = ("paper", "standard", "large")
REFERENCE = "linear"
# An advantage must shrink by this share, and chance must explain that less often than this.
LOST_SHARE, LEAST_ADVANTAGE, CHANCE = 0.5, 0.1, 1e-4

Pairs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def lost_advantages(
    looks: pd.DataFrame, planned: Mapping[str, Cell], splits: int, key: str, progress: Callable[[str], None]
) -> Iterator[tuple[str, str]]:
    """(entry, sentence) for each entry and data set whose advantage over `linear` is gone on fresh data."""
    final = looks[looks["final"].astype(bool) & (looks["status"] == "ok")]
    templates = {(cell.entry, cell.dataset): cell for cell in planned.values() if cell.scheme in RANDOM_SCHEMES}
    references = _References()
    for (entry, dataset), cell in sorted(templates.items()):
        rows = final[(final["entry"] == entry) & (final["dataset"] == dataset) & (final["scheme"] == cell.scheme)]
        if rows.empty or entry == REFERENCE:
            continue
        new = f"fresh:{key}:{dataset}"
        stored = {int(row["split"]): row for row in rows.to_dict("records")}
        fresh = {split: look.scores for split, look in _last_looks(_again(cell, new, splits, int(key[:8], 16))).items()}
        sentence = lost_advantage(
            references.beside(cell, dataset, stored), references.beside(cell, new, fresh)
        )
        progress(f"fresh data like {dataset}: {entry}: {sentence or 'its advantage holds'}")
        if sentence:
            yield entry, f"{dataset}: {sentence}"


class _References:
    """Scores of the reference by data set and split, each run once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], Mapping[str, float] | None] = {}

    def beside(self, cell: Cell, dataset: str, own: Mapping[int, Mapping[str, Any]]) -> Pairs:
        """(own scores, the reference's) for each split that both have."""
        missing = [split for split in own if (dataset, cell.scheme, split) not in self._known]
        if missing:
            looks = _last_looks(make_plan(_like(cell, REFERENCE, dataset, missing, 0, 1)))
            for split in missing:
                self._known[dataset, cell.scheme, split] = looks[split].scores if split in looks else None
        pairs = ((scores, self._known[dataset, cell.scheme, split]) for split, scores in own.items())
        return [(scores, other) for scores, other in pairs if other is not None]


def _again(cell: Cell, dataset: str, splits: int, seed: int) -> list[Cell]:
    """The same entry under the same budget on other data, with another seed."""
    options = cell.entry.partition("[")[2].removesuffix("]")
    text = (cell.file or cell.method) + (f"[{options}]" if options else "")
    return make_plan(_like(cell, text, dataset, range(splits), seed, cell.steps))


def _like(cell: Cell, method: str, dataset: str, splits: Sequence[int], seed: int, steps: int | None) -> Protocol:
    seconds = None if steps else cell.seconds
    return Protocol(
        "fresh", (method,), (dataset,), scheme=cell.scheme, splits=tuple(splits), seeds=(seed,),
        seconds=seconds, steps=steps, clock=cell.clock, device=cell.device, test_rows=cell.test_rows or "all",
    )  # fmt: skip


def _last_looks(cells: Sequence[Cell]) -> dict[int, Evaluation]:
    """Split -> last look of the cells that ended well."""
    found = {}
    for cell in cells:
        account = watch(cell, TIME_LIMIT)
        if account.end.status == "ok" and account.evaluations:
            found[cell.split] = account.evaluations[-1]
    return found


def lost_advantage(stored: Pairs, fresh: Pairs) -> str:
    """A sentence when an advantage over the reference is gone on fresh data; pairs are (own scores, reference's)."""
    measures: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float]] = {
        "LL": lambda own, other: own["ll"] - other["ll"],
        "log RMSE": lambda own, other: math.log(max(other["rmse"], 1e-300) / max(own["rmse"], 1e-300)),
    }
    for name, advantage in measures.items():
        first, second = ([advantage(*pair) for pair in pairs] for pairs in (stored, fresh))
        if not first or len(second) < 2:
            continue
        before, after = sum(first) / len(first), sum(second) / len(second)
        gone = before - after
        if before > LEAST_ADVANTAGE and gone > max(LOST_SHARE * before, LEAST_ADVANTAGE):
            chance = _chance(first, second)
            if chance < CHANCE:
                return f"its advantage over {REFERENCE} in {name}, {before:.3g} as stored, is {after:.3g} on fresh data"
    return ""


def _chance(first: Sequence[float], second: Sequence[float]) -> float:
    """One-sided p-value of the first mean being larger by chance, equal variances."""
    import numpy as np
    from scipy import stats

    freedom = len(first) + len(second) - 2
    squares = sum(float(np.var(values)) * len(values) for values in (first, second))
    variance = squares / freedom + 1e-12
    t = (np.mean(first) - np.mean(second)) / math.sqrt(variance * (1 / len(first) + 1 / len(second)))
    return float(stats.t.sf(t, freedom))
