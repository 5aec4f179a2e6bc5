"""Verdicts: directions, units, and what an interval must show before anybody is alarmed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsibench.errors import UsageError
from fsibench.history.verdicts import (
    MEMORY,
    TIME,
    Change,
    duet_change,
    mean_change,
    paired_change,
    scale_of,
    separated_change,
)


def test_log_scores_are_judged_in_nats_and_larger_is_better() -> None:
    scale = scale_of("track", "track_ll", "nats")
    assert (scale.unit, scale.larger_is_better) == ("nats", True)
    change = paired_change([-7.0] * 5, [-6.9] * 5, scale)
    assert change.middle == pytest.approx(-0.1)
    assert change.verdict(scale.tolerance) == "improved"


def test_a_log_score_that_stays_is_unchanged_whatever_its_sign() -> None:
    scale = scale_of("track", "track_ll", "nats")
    for level in (-7.0, -0.01, 0.0, 3.0):
        assert paired_change([level] * 3, [level] * 3, scale).verdict(scale.tolerance) == "unchanged"


def test_errors_are_judged_in_per_cent_of_their_mean_and_smaller_is_better() -> None:
    scale = scale_of("track", "track_rmse", "sd")
    change = paired_change([0.2, 0.4], [0.21, 0.41], scale)
    assert change.middle == pytest.approx(100 * 0.01 / 0.3)
    assert scale_of("track", "track_crps", "sd") == scale


def test_the_interval_of_paired_scores_is_students() -> None:
    scale = scale_of("track", "track_calibration", "")
    base, head = np.array([0.1, 0.2, 0.15, 0.3]), np.array([0.13, 0.21, 0.16, 0.38])
    change = paired_change(base, head, scale)
    expected = stats.ttest_rel(head, base).confidence_interval(0.99)
    assert (change.low, change.high) == pytest.approx((expected.low, expected.high))


def test_one_pair_never_makes_a_regression() -> None:
    assert paired_change([1.0], [9.0], TIME).verdict(3.0) == "worse within noise"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (Change(5.0, 1.0, 9.0), "regression"),
        (Change(5.0, -1.0, 11.0), "worse within noise"),
        (Change(2.0, 1.0, 3.0), "unchanged"),
        (Change(-5.0, -9.0, -1.0), "improved"),
        (Change(-5.0, -11.0, 1.0), "unchanged"),
    ],
)
def test_the_four_verdicts(change: Change, verdict: str) -> None:
    assert change.verdict(3.0) == verdict


def test_a_duet_finds_the_ratio_through_outliers() -> None:
    generator = np.random.default_rng(0)
    pairs = np.log(1.05) + 0.02 * generator.standard_normal((6, 12))
    pairs[:, 0] += 2.0  # a neighbour woke up
    change = duet_change(pairs.tolist())
    assert change.middle == pytest.approx(5.0, abs=1.0)
    assert change.low > 0.0


def test_copies_that_differ_widen_the_interval_of_a_duet() -> None:
    generator = np.random.default_rng(0)
    steady = 0.01 * generator.standard_normal((6, 12))
    moody = steady + 0.05 * np.array([-1, 1, -1, 1, -1, 1])[:, None]
    widths = [change.high - change.low for change in (duet_change(steady.tolist()), duet_change(moody.tolist()))]
    assert widths[1] > 3 * widths[0]


def test_the_interval_of_four_copies_is_as_wide_as_it_says() -> None:
    """Equal sides, copies that differ by more than their rounds: resampled copies miss zero in 43 of 400 tries, not in 4."""
    generator = np.random.default_rng(1)
    duets = 0.04 * generator.standard_normal((1000, 4, 1)) + 0.03 * generator.standard_t(4, (1000, 4, 12))
    missed = sum(not change.low <= 0.0 <= change.high for change in (duet_change(one.tolist()) for one in duets))
    assert missed <= 20


def test_one_copy_never_makes_a_regression() -> None:
    assert duet_change([[0.3, 0.31, 0.32]]).verdict(TIME.tolerance) == "worse within noise"


def test_several_measurements_count_by_their_mean() -> None:
    clear, unclear = Change(6.0, 4.0, 8.0), Change(6.0, -6.0, 18.0)
    assert mean_change([clear, clear]).verdict(TIME.tolerance) == "regression"
    assert mean_change([clear, unclear]).verdict(TIME.tolerance) == "worse within noise"
    assert mean_change([clear, Change(-5.0, -8.0, -2.0)]).verdict(TIME.tolerance) == "unchanged"


def test_memory_is_worse_only_where_the_runs_do_not_overlap() -> None:
    assert separated_change([300, 301, 302], [330, 331, 332]).verdict(MEMORY.tolerance) == "regression"
    assert separated_change([300, 301, 340], [330, 331, 332]).verdict(MEMORY.tolerance) == "worse within noise"
    assert separated_change([300, 301, 302], [300, 301, 302]).verdict(MEMORY.tolerance) == "unchanged"
    assert separated_change([300], [330]).verdict(MEMORY.tolerance) == "worse within noise"


def test_a_tracked_value_must_be_named_after_a_metric() -> None:
    with pytest.raises(UsageError, match="track_beauty is named after no metric"):
        scale_of("track", "track_beauty", "")
