"""Fragments of the pages of experiments say what the analysis computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fsibench.cli import main
from fsibench.reports.analysis import duels, shapes
from fsibench.reports.analysis.report import Report
from fsibench.reports.experiments import briefly, shapes_of, splits_to_settle

ENTRIES = ("bbb", "constant", "sip")
MakeStore = Callable[..., Path]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, fill_store: MakeStore) -> Path:
    path = tmp_path_factory.mktemp("experiments") / "run.sqlite"
    return fill_store(path, entries=ENTRIES, datasets={"boston": 9.0, "heteroscedastic": 5.2}, splits=4, functions=True)


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_scores_stand_best_first_with_those_of_the_true_density_last(store: Path) -> None:
    report = Report.read(store)
    rows = rows_of(briefly(report))
    means = report.overview.means("crps", "boston")
    assert [row[:2] for row in rows[:3]] == [["boston", f"`{entry}`"] for entry in sorted(means, key=means.__getitem__)]
    assert [row[1] for row in rows if row[0] == "heteroscedastic"][-1] == "the true density"
    assert len(rows) == 2 * len(ENTRIES) + 1, "boston has no known density"


def test_shapes_are_those_of_the_command(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shapes", "--store", str(store)]) == 0
    printed = capsys.readouterr().out
    means = shapes.means(store)
    rows = rows_of(shapes_of(store))
    assert [row[1].strip("`") for row in rows] == list(means["entry"])
    for row, width in zip(rows, means["width_r"], strict=True):
        assert float(row[3].replace("−", "-")) == pytest.approx(width, abs=0.01)
        assert row[1].strip("`") in printed


def test_a_store_without_functions_has_no_shapes(make_store: MakeStore) -> None:
    assert shapes_of(make_store(entries=ENTRIES, splits=1)) == "No cell kept its functions."


def test_splits_that_settle_a_pair_are_those_of_its_duel(store: Path) -> None:
    report = Report.read(store)
    found = duels.duels(report.overview, "crps")
    rows = rows_of(splits_to_settle(report))
    assert [(row[0], row[1]) for row in rows] == [(f"`{a}`", f"`{b}`") for a, b in found]
    for row, duel in zip(rows, found.values(), strict=True):
        for text, needed in zip(row[2:], duel.sets["needed"], strict=True):
            assert text == ("no number" if math.isinf(needed) else f"{needed:.0f}")
