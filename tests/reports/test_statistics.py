"""Statistics against published examples, an independent library, closed forms and simulation."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fsibench.reports.analysis import ranking, statistics

# Demšar (2006), Table 6: AUC of C4.5 with and without tuning of m and cf, on 14 data sets. Two values of the 13th row
# are both printed as 0.975 and ranked 2 and 3; the fourth decimal here says so.
DEMSAR = pd.DataFrame(
    [
        (0.763, 0.768, 0.771, 0.798), (0.599, 0.591, 0.590, 0.569), (0.954, 0.971, 0.968, 0.967),
        (0.628, 0.661, 0.654, 0.657), (0.882, 0.888, 0.886, 0.898), (0.936, 0.931, 0.916, 0.931),
        (0.661, 0.668, 0.609, 0.685), (0.583, 0.583, 0.563, 0.625), (0.775, 0.838, 0.866, 0.875),
        (1.000, 1.000, 1.000, 1.000), (0.940, 0.962, 0.965, 0.962), (0.619, 0.666, 0.614, 0.669),
        (0.972, 0.981, 0.9751, 0.975), (0.957, 0.978, 0.946, 0.970),
    ],
    columns=["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"],
)  # fmt: skip
NUM_NULL_TABLES = 2000


def demsar_ranks() -> pd.DataFrame:
    return ranking.ranks(DEMSAR, larger_is_better=True)


def test_mean_ranks_are_those_of_demsar() -> None:
    np.testing.assert_allclose(demsar_ranks().mean(), [3.143, 2.000, 2.893, 1.964], atol=5e-4)


def test_friedman_and_f_are_those_of_demsar() -> None:
    # The paper's χ² ignores ties: χ² = 12N/(k(k+1)) · (Σ R² − k(k+1)²/4) = 9.28, F = 3.69.
    mean_ranks, n, k = demsar_ranks().mean(), 14, 4
    untied = 12 * n / (k * (k + 1)) * (float((mean_ranks**2).sum()) - k * (k + 1) ** 2 / 4)
    assert untied == pytest.approx(9.28, abs=0.01)
    assert statistics.iman_davenport(untied, n, k)[0] == pytest.approx(3.69, abs=0.01)
    corrected = statistics.friedman(demsar_ranks())
    assert corrected.statistic == pytest.approx(stats.friedmanchisquare(*DEMSAR.to_numpy().T).statistic)
    assert corrected.statistic > untied  # the tie correction divides by less than one
    assert corrected.p_value < 0.05


def test_critical_differences_are_those_of_demsar() -> None:
    assert statistics.nemenyi_critical_difference(4, 14, 0.05) == pytest.approx(1.25, abs=0.005)
    assert statistics.nemenyi_critical_difference(4, 14, 0.10) == pytest.approx(1.12, abs=0.005)


@pytest.mark.parametrize(("num_entries", "q_05"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)])
def test_critical_values_are_those_of_demsars_table_5(num_entries: int, q_05: float) -> None:
    unit = math.sqrt(num_entries * (num_entries + 1) / 6)
    assert statistics.nemenyi_critical_difference(num_entries, 1) / unit == pytest.approx(q_05, abs=1e-3)


def test_eight_data_sets_separate_seven_methods_by_3_18_ranks() -> None:
    assert statistics.nemenyi_critical_difference(7, 8) == pytest.approx(3.18, abs=0.005)


def test_nemenyi_p_values_equal_scikit_posthocs() -> None:
    posthocs = pytest.importorskip("scikit_posthocs")
    expected = posthocs.posthoc_nemenyi_friedman(DEMSAR.to_numpy())
    ours = statistics.nemenyi_p_values(demsar_ranks().mean(), 14)
    np.testing.assert_allclose(ours, expected, atol=1e-9)


def test_holm_equals_the_worked_example_and_statsmodels() -> None:
    np.testing.assert_allclose(statistics.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p_values = np.random.default_rng(0).uniform(size=20) ** 3
    np.testing.assert_allclose(statistics.holm(p_values.tolist()), multitest.multipletests(p_values, method="holm")[1])


def test_holm_does_not_count_tests_that_could_not_be_made() -> None:
    np.testing.assert_allclose(statistics.holm([math.nan, 0.02, 0.5]), [math.nan, 0.04, 0.5])


def test_signed_rank_statistic_is_the_one_of_demsars_table_2() -> None:
    # C4.5 against C4.5+m: R+ = 93, R- = 12 (zeros split evenly); z = -2.54.
    p_value = statistics.wilcoxon_holm(DEMSAR[["C4.5", "C4.5+m"]])["p_value"].iloc[0]
    assert p_value == pytest.approx(2 * stats.norm.sf(2.54), rel=0.15)


def test_cliques_of_a_small_diagram() -> None:
    mean_ranks = pd.Series({"a": 1.0, "b": 2.0, "c": 2.5, "d": 4.0})
    assert statistics.cliques(mean_ranks, 1.6) == [["a", "b", "c"], ["c", "d"]]
    assert statistics.cliques(mean_ranks, 0.1) == []
    assert statistics.cliques(mean_ranks, 9.0) == [["a", "b", "c", "d"]]


def test_tiers_begin_where_the_leader_is_left_behind() -> None:
    mean_ranks = pd.Series({"d": 4.0, "a": 1.0, "b": 2.0, "c": 2.7})
    assert statistics.tiers(mean_ranks, 1.6).to_dict() == {"d": 2, "a": 1, "b": 1, "c": 2}
    assert statistics.tiers(mean_ranks, 9.0).eq(1).all()


def test_corrected_test_without_overlap_is_the_paired_t_test() -> None:
    differences = np.random.default_rng(0).normal(0.3, 1.0, size=20)
    ours = statistics.corrected_paired_test(differences, test_to_train=0.0)
    assert ours.p_value == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue)


def test_corrected_error_is_nadeau_and_bengios() -> None:
    differences = np.random.default_rng(1).normal(size=20)
    ours = statistics.corrected_paired_test(differences, test_to_train=0.25)
    assert ours.standard_error == pytest.approx(math.sqrt((1 / 20 + 0.25) * differences.var(ddof=1)))


def test_equal_scores_are_never_different() -> None:
    assert statistics.corrected_paired_test(np.zeros(5), 0.25).p_value == 1.0
    assert math.isnan(statistics.corrected_paired_test(np.zeros(1), 0.25).p_value)


def test_all_pairs_at_once_equal_one_pair_at_a_time() -> None:
    values = pd.DataFrame(np.random.default_rng(7).normal(size=(12, 3)), columns=list("abc"))
    values.iloc[3, 1] = np.nan  # a failed cell leaves its split out of the pairs it is in
    table = statistics.paired_tests(values, 0.25).set_index(["a", "b"])
    for pair in [("a", "b"), ("a", "c"), ("b", "c")]:
        differences = (values[pair[0]] - values[pair[1]]).to_numpy()
        single = statistics.corrected_paired_test(differences, 0.25)
        row = table.loc[pair]
        assert row["p_value"] == pytest.approx(single.p_value)
        assert row["standard_error"] == pytest.approx(single.standard_error)
        assert row["splits"] == single.num_splits
        assert row["detectable"] == pytest.approx(statistics.smallest_detectable_difference(differences, 0.25))


def test_a_single_split_gives_a_difference_but_no_p_value() -> None:
    row = statistics.paired_tests(pd.DataFrame({"a": [1.0], "b": [3.0]}), 0.25).iloc[0]
    assert row["difference"] == -2.0
    assert math.isnan(row["p_value"])
    assert math.isnan(row["p_holm"])


def test_the_smallest_detectable_difference_is_found_with_the_stated_power() -> None:
    # Splits correlated as the correction assumes: d_j = √ρ c + √(1−ρ) e_j with ρ/(1−ρ) = n_test/n_train.
    generator = np.random.default_rng(0)
    null = _overlapping_differences(generator, 4000, 20)
    sizes = [statistics.smallest_detectable_difference(row, 0.25) for row in null[:200]]
    found = [statistics.corrected_paired_test(row + np.mean(sizes), 0.25).p_value < 0.05 for row in null[200:1200]]
    assert 0.74 < np.mean(found) < 0.86


def _overlapping_differences(generator: np.random.Generator, num_tables: int, num_splits: int) -> np.ndarray:
    """Differences of two equal methods over splits that share training rows, n_test/n_train = 1/4."""
    shared = generator.normal(size=(num_tables, 1))
    own = generator.normal(size=(num_tables, num_splits))
    return math.sqrt(0.2) * shared + math.sqrt(0.8) * own


def test_corrected_test_keeps_its_level_where_the_plain_one_does_not() -> None:
    tables = _overlapping_differences(np.random.default_rng(2), NUM_NULL_TABLES, 20)
    corrected = [statistics.corrected_paired_test(row, 0.25).p_value < 0.05 for row in tables]
    plain = [statistics.corrected_paired_test(row, 0.0).p_value < 0.05 for row in tables]
    assert np.mean(corrected) <= 0.06
    assert np.mean(plain) > 0.3


def _null_tables(num_tables: int, num_entries: int = 5, num_datasets: int = 8, num_splits: int = 5) -> np.ndarray:
    """Scores of equal methods: on each data set a method has its own luck, shared by the splits of that data set."""
    generator = np.random.default_rng(3)
    luck = generator.normal(size=(num_tables, num_datasets, 1, num_entries))
    noise = generator.normal(size=(num_tables, num_datasets, num_splits, num_entries))
    return luck + 0.5 * noise


@pytest.mark.slow
def test_family_wise_level_of_friedman_nemenyi_and_tiers() -> None:
    means = _null_tables(NUM_NULL_TABLES).mean(2)
    rejections = {"friedman": 0, "nemenyi": 0, "tiers": 0}
    critical = statistics.nemenyi_critical_difference(5, 8)
    for table in means:
        ranks = pd.DataFrame(stats.rankdata(table, axis=1), columns=list("abcde"))
        rejections["friedman"] += statistics.friedman(ranks).p_value < 0.05
        rejections["nemenyi"] += bool(np.ptp(ranks.mean()) > critical)
        rejections["tiers"] += bool(statistics.tiers(ranks.mean(), critical).max() > 1)
    assert max(rejections.values()) <= 0.06 * NUM_NULL_TABLES, rejections
    assert rejections["friedman"] > 0.03 * NUM_NULL_TABLES, rejections  # a test that never rejects is no test


@pytest.mark.slow
def test_family_wise_level_of_all_paired_tests_after_holm() -> None:
    generator = np.random.default_rng(4)
    rejections = 0
    for _ in range(NUM_NULL_TABLES):
        shared, own = generator.normal(size=(1, 3)), generator.normal(size=(10, 3))
        table = pd.DataFrame(math.sqrt(0.2) * shared + math.sqrt(0.8) * own, columns=list("abc"))
        rejections += bool((statistics.paired_tests(table, 0.25)["p_holm"] < 0.05).any())
    assert rejections <= 0.06 * NUM_NULL_TABLES


@pytest.mark.slow
def test_bootstrap_interval_of_eight_data_sets_covers_zero_95_times_in_100() -> None:
    index = pd.MultiIndex.from_product([range(8), range(5)], names=["dataset", "split"])
    tables = _null_tables(NUM_NULL_TABLES)
    misses = 0
    for number, table in enumerate(tables):
        difference = (table[..., 0] - table[..., 1]).reshape(-1, 1)
        frame = pd.DataFrame(difference, index=index, columns=["a"])
        draws = statistics.two_level_bootstrap(frame, 400, seed=number)
        interval = statistics.expanded_interval(draws, 8).loc["a"]
        misses += not interval["low"] <= 0.0 <= interval["high"]
    assert misses <= 0.06 * NUM_NULL_TABLES
    assert misses > 0.005 * NUM_NULL_TABLES  # an interval that always covers says nothing


def test_bootstrap_variance_has_a_part_for_data_sets_and_one_for_splits() -> None:
    generator = np.random.default_rng(5)
    index = pd.MultiIndex.from_product([range(30), range(10)], names=["dataset", "split"])
    values = generator.normal(size=(30, 1)) * 2.0 + generator.normal(size=(30, 10))
    draws = statistics.two_level_bootstrap(pd.DataFrame({"a": values.ravel()}, index=index), 20_000)
    # Var = population variance of the data set means / D  +  mean within-variance / (D n)
    expected = values.mean(1).var() / 30 + values.var(1).mean() / (30 * 10)
    assert float(draws["a"].var()) == pytest.approx(expected, rel=0.05)


def test_leaving_out_a_data_set_leaves_the_mean_of_the_others() -> None:
    index = pd.MultiIndex.from_product([["x", "y", "z"], [0, 1]], names=["dataset", "split"])
    ranks = pd.DataFrame({"a": [1, 1, 1, 1, 2, 2], "b": [2, 2, 2, 2, 1, 1]}, index=index, dtype=float)
    table = statistics.leave_one_dataset_out(ranks)
    assert table.loc["z"].to_dict() == {"a": 1.0, "b": 2.0}
    assert table.loc["x"].to_dict() == {"a": 1.5, "b": 1.5}


def test_times_to_targets_of_a_curve_that_gets_worse_again() -> None:
    seconds = np.array([1.0, 2.0, 4.0, 8.0])
    falling = np.array([np.nan, 3.0, 1.0, 2.0])
    times = statistics.time_to_targets(seconds, falling, np.array([3.5, 2.5, 1.0, 0.5]), larger_is_better=False)
    np.testing.assert_array_equal(times, [2.0, 4.0, 4.0, np.inf])
    rising = statistics.time_to_targets(seconds, -falling, np.array([-2.5]), larger_is_better=True)
    np.testing.assert_array_equal(rising, [4.0])


def test_share_of_targets_reached_is_a_distribution_function() -> None:
    shares = statistics.reached_share(np.array([1.0, 2.0, np.inf, 4.0]), np.array([0.5, 1.0, 3.0, 100.0]))
    np.testing.assert_array_equal(shares, [0.0, 0.25, 0.5, 0.75])


def test_targets_run_from_better_than_worst_to_best() -> None:
    wanted = statistics.targets(10.0, 0.0, 5)
    np.testing.assert_allclose(wanted, [8.0, 6.0, 4.0, 2.0, 0.0])


def test_area_is_the_mean_over_log_time() -> None:
    seconds = np.array([1.0, 10.0, 1000.0])
    # One decade at 0, two decades at 0.6.
    assert statistics.area_under_curve(seconds, np.array([0.0, 0.6, 0.9])) == pytest.approx(0.4)
    assert statistics.area_under_curve(np.array([3.0]), np.array([0.7])) == 0.7
