"""The cells of a run in the order in which they are handed out: all at once, or split by split with a race between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fsibench.errors import unknown

if TYPE_CHECKING:
    import pandas as pd

    from fsibench.harness.plan import Cell
    from fsibench.harness.store import Store


def rounds(store: Store, cells: Sequence[Cell], todo: Sequence[Cell], race: str | None) -> Iterator[list[Cell]]:
    """Cells to run next. With a race on a metric, a split is for the entries whose order the earlier ones left open."""
    if race is None:
        yield list(todo)
        return
    from fsibench.metrics import known
    from fsibench.reports.analysis.racing import Race

    if race not in known():
        raise unknown("metric", race, known())
    splits = sorted({cell.split for cell in cells})
    rules = Race(most=len(splits))
    for number, split in enumerate(splits):
        part = [cell for cell in todo if cell.split == split]
        if number >= rules.fewest:
            going = rules.next(final_scores(store, cells, race), known()[race].larger_is_better)
            part = [cell for cell in part if cell.entry in going.get(cell.dataset, ())]
            entries = {cell.entry for cell in cells}
            print(f"split {split}: {len({cell.entry for cell in part})} of {len(entries)} entries go on", file=sys.stderr)
        if part:
            yield part


def final_scores(store: Store, cells: Sequence[Cell], metric: str) -> dict[str, pd.DataFrame]:
    """Data set -> scores at the end, splits x entries, means over seeds; NaN where all cells failed or none was run."""
    known = set(store.metrics())
    frame = store.evaluations(only_final=True)
    frame = frame[frame["cell"].isin([cell.id for cell in cells]) & (frame["status"] == "ok")]
    values = frame[metric] if metric in known else float("nan")
    table = frame.assign(value=values)
    return {
        str(dataset): rows.pivot_table("value", "split", "entry", dropna=False)
        for dataset, rows in table.groupby("dataset")
    }
