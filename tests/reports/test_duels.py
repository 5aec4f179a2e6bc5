"""A against B: records, intervals, probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsibench.reports import texts
from fsibench.reports.analysis import duels, pairs, results, statistics
from fsibench.reports.analysis.overview import Overview

MakeStore = Callable[..., Path]


def test_signed_rank_is_that_of_a_direct_simulation() -> None:
    # Benavoli et al. (2014): weights of a Dirichlet process; Walsh averages in one of three regions.
    differences = np.array([0.03, -0.02, 0.05, 0.008, 0.04, -0.005, 0.02])
    generator = np.random.default_rng(3)
    wins = np.zeros(3)
    values = np.concatenate([[0.0], differences])
    for _ in range(4000):
        weights = generator.dirichlet([0.5, *np.ones(7)])
        shares = np.zeros(3)
        for i, wi in enumerate(weights):
            for j, wj in enumerate(weights):
                average = (values[i] + values[j]) / 2
                shares[0 if average > 0.01 else 2 if average < -0.01 else 1] += wi * wj
        wins[shares.argmax()] += 1 / 4000
    odds = duels.signed_rank(differences)
    assert [odds.better, odds.same, odds.worse] == pytest.approx(wins.tolist(), abs=0.03)


def test_signed_rank_of_clear_cases() -> None:
    assert duels.signed_rank(np.full(10, 0.5)).better > 0.99
    assert duels.signed_rank(np.full(10, -0.5)).worse > 0.99
    assert duels.signed_rank(np.full(10, 0.001)).same > 0.99
    assert math.isnan(duels.signed_rank(np.zeros(0)).better)


def test_hierarchical_with_many_exact_sets_is_the_students_predictive() -> None:
    # Without errors of measurement and with a flat p(σ₀): δ_new is Student with n − 2 degrees of freedom.
    values = np.random.default_rng(0).normal(0.1, 0.2, size=12)
    centre, count = values.mean(), len(values)
    spread = math.sqrt(((values - centre) ** 2).sum() / (count - 2) * (1 + 1 / count))
    odds = duels.hierarchical(values, np.full(count, 1e-6))
    assert odds.better == pytest.approx(stats.t.sf((0.01 - centre) / spread, count - 2), abs=5e-3)
    assert odds.worse == pytest.approx(stats.t.cdf((-0.01 - centre) / spread, count - 2), abs=5e-3)
    assert odds.better + odds.same + odds.worse == pytest.approx(1.0)


def test_hierarchical_needs_three_data_sets() -> None:
    assert math.isnan(duels.hierarchical(np.array([0.1, 0.2]), np.array([0.1, 0.1])).better)


def test_a_duel_has_the_corrected_interval_and_the_record_of_the_paired_test(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant", "vip"), datasets={"boston": 9.0, "wine": 0.8, "yacht": 15.0}, splits=5)
    overview = Overview(results.load(path))
    duel = duels.duels(overview, "rmse")["bbb", "vip"]
    values = overview.blocks["rmse"].values.loc["wine"]
    scaled = ((values["vip"] - values["bbb"]) / 0.8).to_numpy()  # lower is better, in standard deviations of the target
    test = statistics.corrected_paired_test(scaled, overview.test_to_train["wine"])
    row = duel.sets.loc["wine"]
    assert row["difference"] == pytest.approx(test.difference, rel=1e-4)
    assert row["high"] - row["low"] == pytest.approx(2 * stats.t.ppf(0.975, 4) * test.standard_error, rel=1e-4)
    assert (row["wins"], row["losses"], row["splits"]) == ((scaled > 0).sum(), (scaled < 0).sum(), 5)
    assert sum(duel.record) == 3
    assert "of 3 data sets" in duels.verdict(duel, 3)


def test_the_number_of_splits_that_settle_a_difference_has_the_stated_power() -> None:
    count = statistics.splits_needed(0.5, 1.0, 0.0)
    assert count is not None
    generator = np.random.default_rng(1)
    tests = [statistics.corrected_paired_test(generator.normal(0.5, 1.0, size=count), 0.0) for _ in range(600)]
    assert np.mean([test.p_value < 0.05 for test in tests]) == pytest.approx(0.8, abs=0.06)
    assert statistics.splits_needed(0.5, 1.0, 0.25) is None  # √0.25 · 2.8 > 0.5: overlap never lets it be seen


def test_a_signed_rank_test_can_reject_from_the_stated_number_of_sets_on() -> None:
    pairs = 78
    needed = statistics.sets_for_signed_rank(pairs)
    smallest = {count: stats.wilcoxon(np.arange(1.0, count + 1), method="exact").pvalue * pairs for count in (needed - 1, needed)}
    assert smallest[needed] <= 0.05 < smallest[needed - 1]


def test_a_pair_is_compared_on_all_its_splits_whatever_a_third_entry_lacks(make_store: MakeStore) -> None:
    entries = ("bbb", "constant", "sip", "vip")
    failures = {("sip", name, 4): "interrupted" for name in ("boston", "wine")}
    overview = Overview(results.load(make_store(entries=entries, splits=5, datasets={"boston": 9.0, "wine": 0.8}, failures=failures)))
    assert len(overview.blocks["crps"].values) == 8  # all four entries, four splits of two sets
    found = duels.duels(overview, "crps")
    splits = {pair: set(duel.sets["splits"]) for pair, duel in found.items()}
    assert splits["bbb", "vip"] == {5}
    assert splits["bbb", "sip"] == {4}
    tested = pairs.pairwise(overview, "crps").set_index(["a", "b", "dataset"])["splits"]
    assert tested["bbb", "vip", "boston"] == 5
    assert tested["bbb", "sip", "wine"] == 4


def test_a_duel_counts_the_data_sets_where_both_were_run(make_store: MakeStore) -> None:
    overview = Overview(results.load(make_store(entries=("bbb", "gp", "vip"), splits=4, datasets={"boston": 9.0, "wine": 0.8, "yacht": 15.0})))
    with pytest.MonkeyPatch.context() as patch:
        whole = duels.split_scores(overview, "crps")
        patch.setattr(duels, "split_scores", lambda *_: whole.assign(gp=whole["gp"].where(whole.index.get_level_values("dataset") != "wine")))
        found = duels.duels(overview, "crps")
    pair = next(duel for names, duel in found.items() if set(names) == {"bbb", "gp"})
    assert list(pair.sets.index) == ["boston", "yacht"]


def test_means_of_fewer_splits_are_marked(make_store: MakeStore) -> None:
    failures = {("sip", "boston", 2): "interrupted"}
    overview = Overview(results.load(make_store(entries=("bbb", "sip"), splits=3, datasets={"boston": 9.0, "wine": 0.8}, failures=failures)))
    assert overview.fewer_splits == {("boston", "sip"): 2}
    table = texts.score_table(overview, "crps")
    shown = {row[0]: row[1:] for row in table["rows"]}
    assert shown["sip"][0].endswith(" (2)")
    assert "(" not in shown["sip"][1] + shown["bbb"][0]
    assert "In brackets the number of splits" in table["caption"]
