"""Numbers of other papers beside ours: compared only where that is fair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fsibench.reports.analysis import ledger, peers, results
from fsibench.reports.analysis.overview import Overview

MakeStore = Callable[..., Path]


def lines_of(make_store: MakeStore, **changes: object) -> dict[tuple[str, str, str], ledger.Line]:
    recipe = {"entries": ("dropout", "constant"), "datasets": {"boston": 9.2}, "splits": 5, "scheme": "standard", **changes}
    found = peers.lines(Overview(results.load(make_store(**recipe))))
    return {(line.method, line.dataset, line.metric): line for line in found}


def test_the_table_is_complete_and_every_source_is_named() -> None:
    table = peers.published()
    assert len(table) == 105
    assert set(table["source"]) == set(peers.SOURCES)
    assert set(table["splits"]) == {"standard", "5-fold"}
    assert not table["mean"].isna().any()
    printed = table.set_index(["column", "dataset", "metric"])["printed"]
    assert printed["DVIP-3", "energy", "LL"] == "−0.700 ± 0.020 (se)"  # the digits of the source
    assert printed["DVIP-3", "naval", "RMSE"] == "4.8e-4"


def test_an_entry_that_names_the_column_gets_a_verdict(make_store: MakeStore) -> None:
    line = lines_of(make_store, reproduces={"dropout": "dropout"})["dropout", "boston", "rmse"]
    # About 2.3 against 2.97 ± 0.85: the error of the difference is at least 0.85/√20 = 0.19.
    assert line.ours == pytest.approx(2.3, abs=0.5)
    assert line.verdict in ("reproduced", "better")
    assert ", p " in line.why


def test_an_entry_that_claims_nothing_stands_beside_it(make_store: MakeStore) -> None:
    line = lines_of(make_store)["dropout", "boston", "ll"]
    assert (line.entry, line.verdict) == ("dropout", peers.UNNAMED)
    assert line.ours_text != "–"


@pytest.mark.parametrize(
    ("changes", "verdict", "why"),
    [
        ({"scheme": "paper"}, "not comparable", "split scheme paper, published standard"),
        ({"splits": 2}, "not comparable", "2 splits of 20 s"),
        ({"variants": {"dropout": "another prior"}}, "variant", "another prior"),
        ({"datasets": {"wine": 0.8}}, "not run", "no finished cell"),
    ],
)
def test_what_is_not_fair_is_not_compared(make_store: MakeStore, changes: dict[str, object], verdict: str, why: str) -> None:
    line = lines_of(make_store, reproduces={"dropout": "dropout"}, **changes)["dropout", "boston", "rmse"]
    assert line.verdict == verdict
    assert why in line.why


def test_another_score_under_a_similar_name_is_never_compared(make_store: MakeStore) -> None:
    line = lines_of(make_store, entries=("gfsvi", "constant"), reproduces={"gfsvi": "GFSVI"})["GFSVI", "boston", "expected ll"]
    assert line.verdict == "not comparable"
    assert "another score" in line.why


def test_options_choose_the_entry(make_store: MakeStore) -> None:
    found = lines_of(make_store, entries=("dvip[layers=3]", "dvip[layers=5]"))
    assert found["DVIP-3", "boston", "rmse"].entry == "dvip[layers=3]"
    assert found["DVIP-5", "power", "rmse"].entry == "dvip[layers=5]"
    assert found["DVIP-4", "concrete", "rmse"].entry is None
