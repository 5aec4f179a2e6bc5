"""The published table, the plausibility checks and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fsibench.datasets import synthetic
from fsibench.reports.analysis import ledger, plausibility, results
from fsibench.reports.analysis.overview import Overview

MakeStore = Callable[..., Path]


def gaussian_rows(dataset: str, method: str, error: float, scale: float) -> list[dict[str, Any]]:
    """Expected scores of a Gaussian predictive with sd `scale` whose errors are N(0, error²)."""
    ll = -math.log(scale) - 0.5 * math.log(2 * math.pi) - error**2 / (2 * scale**2)
    crps = math.sqrt(2 / math.pi) * math.hypot(error, scale) - scale / math.sqrt(math.pi)
    values = {"rmse": error, "ll": ll, "crps": crps}
    return [{"dataset": dataset, "method": method, "metric": key, "mean": value} for key, value in values.items()]


def found(doubts: list[plausibility.Doubt], check: str) -> set[tuple[str, str]]:
    return {(doubt.method, doubt.metric) for doubt in doubts if doubt.check == check}


def test_the_published_table_is_complete() -> None:
    table = ledger.published()
    scores = table[table["dataset"] != ledger.AVERAGE_RANK]
    assert len(scores) == 3 * 8 * 7
    assert len(table) == 189
    assert set(table["method"]) == {"BBB", "AVB", "AADM", "fBNN_BNN", "VIP", "SIP_BNN", "SIP_NS"}
    boston = table[(table["dataset"] == "boston") & (table["method"] == "BBB")].set_index("metric")
    assert boston.loc["ll", "mean"] == -2.816
    assert boston.loc["rmse", "printed"] == "3.52 ± 0.804"


def test_navals_exponents_are_found() -> None:
    doubts = [doubt for doubt in ledger.published_doubts(ledger.published()) if doubt.is_impossible]
    assert {doubt.dataset for doubt in doubts} == {"naval"}
    assert found(doubts, "exponent") == {(method, "rmse") for method in ledger.columns()}
    readings = {doubt.method: doubt.reading for doubt in doubts if doubt.check == "exponent"}
    assert readings["SIP_BNN"] == pytest.approx(1.73e-4)
    assert found(doubts, "range") == {("fBNN_BNN", "crps"), ("VIP", "crps"), ("SIP_NS", "crps")}
    assert found(doubts, "mark") == found(doubts, "range")


def test_published_ranks_sum_as_they_must_and_a_changed_one_is_found() -> None:
    table = ledger.published()
    ranks = table[table["dataset"] == ledger.AVERAGE_RANK]
    assert plausibility.check_rank_sums(ranks) == []
    changed = ranks.assign(mean=ranks["mean"].where(ranks["method"] != "VIP", ranks["mean"] + 0.1))
    assert {doubt.metric for doubt in plausibility.check_rank_sums(changed)} == {"rmse", "ll", "crps"}


def test_possible_tables_raise_no_doubt() -> None:
    # Calibrated, over-confident by 3, under-confident by 2.
    rows = [*gaussian_rows("d", "a", 2.0, 2.0), *gaussian_rows("d", "b", 3.0, 1.0), *gaussian_rows("d", "c", 1.0, 2.0)]
    assert plausibility.check_table(pd.DataFrame(rows)) == []


@pytest.mark.parametrize("factor", [0.1, 10.0, 100.0])
def test_a_wrong_unit_of_the_errors_is_found_and_undone(factor: float) -> None:
    rows = [row for name, size in (("a", 2.0), ("b", 3.0), ("c", 2.5)) for row in gaussian_rows("d", name, size, size)]
    table = pd.DataFrame(rows)
    wrong = table.assign(mean=table["mean"].where(table["metric"] != "rmse", table["mean"] * factor))
    doubts = [doubt for doubt in plausibility.check_table(wrong) if doubt.check == "exponent"]
    assert {doubt.method: doubt.reading for doubt in doubts} == pytest.approx({"a": 2.0, "b": 3.0, "c": 2.5})


def test_a_likelihood_beyond_its_error_is_found() -> None:
    table = pd.DataFrame(gaussian_rows("d", "a", 2.0, 2.0))
    lifted = table.assign(mean=table["mean"] + 2.0 * (table["metric"] == "ll"))
    assert found(plausibility.check_table(lifted), "cap") == {("a", "ll")}


def test_nothing_may_beat_the_true_conditional() -> None:
    oracle = plausibility.oracles()["bimodal"]
    fixed = {"dataset": "bimodal[num_train=500]", "method": "a", "error": 0.01}
    rows: list[dict[str, Any]] = [{**fixed, "metric": key, "mean": value} for key, value in oracle.items()]
    assert found(plausibility.check_table(pd.DataFrame(rows)), "oracle") == set()
    better = [{**row, "mean": row["mean"] + (0.1 if row["metric"] == "ll" else -0.1)} for row in rows]
    assert found(plausibility.check_table(pd.DataFrame(better)), "oracle") == {("a", "rmse"), ("a", "ll"), ("a", "crps")}


def _absolute_mean(difference: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """E|D| for D ~ N(difference, scale²)."""
    z = difference / scale
    return np.asarray(2 * scale * stats.norm.pdf(z) + difference * (2 * stats.norm.cdf(z) - 1))


@pytest.mark.parametrize("dataset", synthetic.DATASETS, ids=lambda dataset: dataset.name)
def test_shipped_oracles_are_the_scores_of_the_true_conditional(dataset: synthetic.Synthetic) -> None:
    x = dataset.low + (np.arange(2000) + 0.5) / 2000 * (dataset.high - dataset.low)
    loc, scale = dataset.oracle(x)  # [S, N]
    z = np.linspace(-8, 8, 801)
    y = loc[:, :, None] + scale[:, :, None] * z  # [S, N, Z]
    density = np.mean([stats.norm.pdf(y, m[None, :, None], s[None, :, None]) for m, s in zip(loc, scale, strict=True)], 0)
    ll = (np.log(density) * stats.norm.pdf(z) * (z[1] - z[0])).sum(-1).mean()
    variance = (scale**2 + loc**2).mean(0) - loc.mean(0) ** 2
    pairs = [_absolute_mean(loc[i] - loc[j], np.hypot(scale[i], scale[j])) for i in range(len(loc)) for j in range(len(loc))]
    shipped = plausibility.oracles()[dataset.name]
    assert shipped["ll"] == pytest.approx(ll, abs=5e-3)
    assert shipped["rmse"] == pytest.approx(math.sqrt(variance.mean()), rel=1e-3)
    assert shipped["crps"] == pytest.approx(0.5 * np.mean(pairs), rel=1e-3)


def test_every_published_number_gets_a_verdict(full_store: Path) -> None:
    lines = ledger.ledger(Overview(results.load(full_store)))
    assert len(lines) == 189
    assert sum(ledger.counts(lines).values()) == 189
    by_key = {(line.dataset, line.metric, line.method): line for line in lines}
    assert by_key["boston", "rmse", "SIP_NS"].verdict == "not run"  # only the other prior is in the store
    assert by_key["naval", "rmse", "BBB"].verdict == "implausible as printed"
    assert "3.02e−4" in by_key["naval", "rmse", "BBB"].why
    assert by_key["boston", "ll", "BBB"].entry == "bbb"


@pytest.mark.parametrize(
    ("splits", "seconds", "reason"), [(2, 3.0, "2 splits of 3 s"), (5, 3.0, "5 splits of 3 s"), (2, 60.0, "2 splits of 60 s")]
)
def test_too_few_splits_or_seconds_get_no_verdict(
    make_store: MakeStore, splits: int, seconds: float, reason: str
) -> None:
    store = make_store(entries=("bbb", "vip"), splits=splits, seconds=seconds, datasets={"boston": 9.0})
    lines = ledger.ledger(Overview(results.load(store)))
    told = {(line.verdict, line.why) for line in lines if line.entry and line.dataset == "boston"}
    assert told == {("not comparable", reason)}
    assert reason in ledger.banner(lines)
    assert "at least 5 splits of 20 s" in ledger.banner(lines)


def test_other_splits_than_the_published_ones_get_no_verdict(make_store: MakeStore) -> None:
    store = make_store(entries=("bbb", "vip"), splits=5, seconds=20.0, datasets={"boston": 9.0}, scheme="standard")
    lines = ledger.ledger(Overview(results.load(store)))
    told = {(line.verdict, line.why) for line in lines if line.entry and line.dataset == "boston"}
    assert told == {("not comparable", "splits of the scheme standard")}


def test_enough_splits_and_seconds_get_a_verdict_and_no_banner(make_store: MakeStore) -> None:
    store = make_store(entries=("bbb", "vip"), splits=5, seconds=20.0, datasets={"boston": 9.0})
    lines = ledger.ledger(Overview(results.load(store)))
    assert {line.verdict for line in lines if line.entry and line.dataset == "boston"} <= {"reproduced", "better", "worse"}
    assert ledger.banner(lines) == ""


def test_a_variant_stands_beside_the_original_without_a_verdict(make_store: MakeStore) -> None:
    entries = ("sip[prior=bnn]", "sip[hyperprior=2.5]", "bbb")
    variants = {"sip[hyperprior=2.5]": "a hyper-prior on the prior's parameters", "bbb": "cold posterior"}
    store = make_store(entries=entries, splits=5, datasets={"boston": 9.0}, variants=variants)
    lines = [line for line in ledger.ledger(Overview(results.load(store))) if (line.dataset, line.metric) == ("boston", "ll")]
    sip = {line.entry: line.verdict for line in lines if line.method == "SIP_BNN"}
    assert sip["sip[hyperprior=2.5]"] == "variant"
    assert sip["sip[prior=bnn]"] in ("reproduced", "better", "worse")
    assert {line.entry: line.verdict for line in lines if line.method == "BBB"} == {None: "not run", "bbb": "variant"}


def published_row(mean: float, spread: float, metric: str = "rmse") -> dict[str, Any]:
    return {"metric": metric, "mean": mean, "spread": spread}


def own_row(mean: float, spread: float, splits: int = 20) -> pd.Series:
    return pd.Series({"mean": mean, "standard_deviation": spread, "splits": splits})


@pytest.mark.parametrize(
    ("metric", "ours", "verdict"),
    [("rmse", 2.6, "reproduced"), ("rmse", 1.0, "better"), ("rmse", 4.0, "worse"), ("ll", 4.0, "better")],
)
def test_verdicts(metric: str, ours: float, verdict: str) -> None:
    # Standard error of the difference: 0.5 √(2/20) = 0.16.
    given, why = ledger.compare(published_row(2.5, 0.5, metric), own_row(ours, 0.5))
    assert given == verdict
    assert why.startswith(("better by", "worse by"))
    assert ", p " in why


@pytest.mark.parametrize("splits", [5, 20])
def test_the_verdict_is_that_of_welchs_test(splits: int) -> None:
    for ours, spread in ((2.6, 0.5), (2.8, 0.3), (2.85, 0.9), (3.2, 0.1)):
        p_value = stats.ttest_ind_from_stats(ours, spread, splits, 2.5, 0.5, 20, equal_var=False).pvalue
        assert ledger.compare(published_row(2.5, 0.5), own_row(ours, spread, splits))[0] == ("worse" if p_value < 0.05 else "reproduced")


def test_equal_methods_on_random_splits_are_reproduced_in_95_of_100_ledgers() -> None:
    generator = np.random.default_rng(0)
    verdicts = []
    for _ in range(2000):
        printed, own = generator.normal(2.5, 0.5, 20), generator.normal(2.5, 0.5, 5)
        row = published_row(printed.mean(), printed.std(ddof=1))
        verdicts.append(ledger.compare(row, own_row(own.mean(), own.std(ddof=1), 5))[0])
    assert 0.93 < verdicts.count("reproduced") / len(verdicts) < 0.97


def test_one_survivor_of_five_splits_gets_no_verdict(make_store: MakeStore) -> None:
    failures = {("bbb", "boston", split): "diverged" for split in range(4)}  # and no `constant` to stand in for them
    overview = Overview(results.load(make_store(entries=("bbb", "sip"), splits=5, datasets={"boston": 9.0}, failures=failures)))
    lines = [line for line in ledger.ledger(overview) if (line.dataset, line.method) == ("boston", "BBB")]
    assert {line.verdict for line in lines} == {"not comparable"}
    assert lines[0].why == "only 1 splits ended well"
    assert ledger.compare(published_row(2.5, math.nan), own_row(2.5, 0.1))[0] == "not comparable"


def test_equal_numbers_without_spread_are_reproduced() -> None:
    assert ledger.compare(published_row(2.5, 0.0), own_row(2.5, 0.0))[0] == "reproduced"
    assert ledger.compare(published_row(2.5, 0.0), own_row(2.6, 0.0))[0] == "worse"


def test_own_ranks_are_compared_only_when_all_seven_methods_ran(make_store: MakeStore) -> None:
    entries = ("bbb", "avb", "aadm", "fbnn[prior=bnn]", "vip", "sip[prior=bnn]", "sip[prior=ns]")
    overview = Overview(results.load(make_store(entries=entries, splits=5, datasets={"boston": 9.0, "wine": 0.8})))
    ranks = [line for line in ledger.ledger(overview) if line.dataset == ledger.AVERAGE_RANK]
    assert {line.verdict for line in ranks} <= {"reproduced", "better", "worse"}
    assert sum(line.ours for line in ranks if line.metric == "ll") == pytest.approx(28.0)
    fewer = Overview(results.load(make_store("fewer", entries=entries[:3], datasets={"boston": 9.0})))
    assert {line.verdict for line in ledger.ledger(fewer) if line.dataset == ledger.AVERAGE_RANK} == {"not run"}


def test_own_results_are_checked_too(make_store: MakeStore) -> None:
    # Skill 0.29 of a spread of 5.2 on `bimodal`: far below the irreducible error of 5.35.
    overview = Overview(results.load(make_store(entries=("bbb", "sip", "vip"), datasets={"bimodal": 5.2})))
    assert ("bbb", "rmse") in found(ledger.own_doubts(overview), "oracle")
