"""Rows that many entries predict badly, pooled from what each cell kept."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fsibench.reports.analysis import hardest
from fsibench.reports.analysis.report import Report


def line(entry: str, split: int, point: str, crps: float, mean: float = 0.0) -> dict[str, object]:
    return {"dataset": "a", "entry": entry, "split": split, "point": point, "y": 1.0, "mean": mean, "sd": 1.0, "crps": crps, "inputs": ""}


def test_a_row_that_is_hard_for_more_entries_comes_first() -> None:
    worst = pd.DataFrame([
        line("x", 0, "row 1", 9.0), line("x", 1, "row 1", 9.0), line("x", 2, "row 1", 9.0),
        line("x", 0, "row 2", 1.0, -4.0), line("y", 0, "row 2", 3.0, 2.0),
    ])  # fmt: skip
    table = hardest.hardest_points(worst, "a")
    assert list(table.index) == ["row 2", "row 1"]
    assert table.loc["row 2", ["entries", "cells", "crps", "low", "high"]].tolist() == [2, 2, 2.0, -4.0, 2.0]
    assert hardest.hardest_points(worst, "b").empty


def test_failed_cells_are_left_out_and_every_other_one_counts(full_store: Path) -> None:
    report = Report.read(full_store)
    table = hardest.hardest_points(report.worst_rows, "boston")
    assert table.index[0] == "row 7"
    assert table.iloc[0]["entries"] == len(report.results.entries)
    kept = report.worst_rows.drop_duplicates(["dataset", "entry", "split"])
    cells = report.results.cells
    uneven = (cells["dataset"] == "yacht") & (cells["split"] == 1)  # avb was interrupted there: rows of that split are hard for fewer
    assert len(kept) == int((report.results.finished & ~report.results.failed & ~uneven).sum())


def test_fresh_draws_are_named_by_their_split_and_have_inputs(full_store: Path) -> None:
    table = hardest.hardest_points(Report.read(full_store).worst_rows, "heteroscedastic")
    assert all(point.startswith("split ") for point in table.index)
    assert set(table["inputs"]) == {"0.5"}
