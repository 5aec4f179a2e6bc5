"""Gaps and growth: falls between schemes, rows needed to reach a reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fsibench.reports.analysis import regimes
from fsibench.reports.analysis.report import Report
from fsibench.reports.site import write_pages

MakeStore = Callable[..., Path]


def finals(*rows: tuple[Any, ...]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["dataset", "entry", "scheme", "split", "ll", "status"])
    return frame.assign(budget="20s", clock="wall", device="cpu")


def test_the_fall_is_the_difference_of_means_over_finished_cells() -> None:
    [fall] = regimes.falls(
        finals(
            ("yacht", "bbb", "standard", 0, -1.0, "ok"),
            ("yacht", "bbb", "standard", 1, -2.0, "ok"),
            ("yacht", "bbb", "standard", 2, -99.0, "diverged"),
            ("yacht", "bbb", "gap", 0, -3.0, "ok"),
            ("yacht", "bbb", "gap", 1, -4.0, "ok"),
            ("yacht", "vip", "gap", 0, -4.0, "ok"),
        )
    )
    assert (fall.dataset, fall.entry, fall.usual, fall.gap, fall.fall, fall.splits) == ("yacht", "bbb", -1.5, -3.5, 2.0, 2)


def test_without_gaps_there_is_nothing_to_show() -> None:
    assert regimes.falls(finals(("yacht", "bbb", "paper", 0, -1.0, "ok"))) == []
    assert regimes.growth(finals(("yacht", "bbb", "paper", 0, -1.0, "ok"))) == []


def growing(entry: str, scores: dict[int, float], dataset: str = "wine[dedupe=true,train_rows={}]") -> list[tuple[Any, ...]]:
    return [(dataset.format(rows), entry, "standard", 0, score, "ok") for rows, score in scores.items()]


def test_rows_needed_are_found_between_two_numbers_of_rows() -> None:
    lines = regimes.growth(
        finals(
            *growing("gp", {50: -2.0, 100: -1.5, 200: -1.0}),
            *growing("bbb", {100: -2.0, 400: 0.0}),
            *growing("constant", {50: -3.0, 400: -3.0}),
            *growing("oracle", {50: 0.0, 100: 0.0}),
        )
    )
    needed = {line.entry: line.needed for line in lines}
    assert {line.dataset for line in lines} == {"wine[dedupe=true]"}
    assert needed["gp"] == "200"
    assert needed["bbb"] == f"{math.sqrt(100 * 400):.0f}", "half the way in log rows"
    assert needed["constant"] == "more than 400"
    assert needed["oracle"] == "at most 50"


@pytest.mark.parametrize("text", ["yacht[train_rows={}]", "file:t.csv?target=y&train_rows={}", "wine?train_rows={}"])
def test_every_spelling_of_training_rows_is_read(text: str) -> None:
    [line] = regimes.growth(finals(*growing("bbb", {50: -2.0, 100: -1.0}, text)))
    assert line.scores == {50: -2.0, 100: -1.0}
    assert line.dataset == text.partition("train_rows")[0][:-1]
    assert line.needed == ""


def test_the_site_shows_falls_and_growth_where_there_are_any(make_store: MakeStore, tmp_path: Path) -> None:
    sets = {"yacht": 9.0, "wine[train_rows=100]": 1.0, "wine[train_rows=200]": 0.8}
    store = make_store(entries=("bbb", "gp"), datasets=sets, splits=2, scheme="standard")
    make_store(entries=("bbb", "gp"), datasets={"yacht": 12.0}, splits=2, scheme="gap")  # the same file
    (tmp_path / "site").mkdir()
    write_pages(Report.read(store), tmp_path / "site")
    page = (tmp_path / "site" / "regimes.html").read_text(encoding="utf-8")
    assert "With a gap in one input" in page
    assert "gp at 200 rows" in page
    assert page.count("<h3>wine</h3>") == 1
