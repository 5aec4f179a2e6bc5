"""Change points of made-up series, and asv's own detector beside ours."""

from __future__ import annotations

import numpy as np
import pytest

from fsibench.history.change_points import LEAST_VOTES, Values, change_points, energy, steps, stretch


def series(levels: list[float], noise: float, seed: int, repeats: int = 3) -> Values:
    generator = np.random.default_rng(seed)
    commits = noise * generator.standard_normal((len(levels), 1))
    return np.array(levels)[:, None] + commits + noise * generator.standard_normal((len(levels), repeats))


def test_a_step_is_found_where_it_is_with_its_size() -> None:
    (found,) = change_points(series([10.0] * 15 + [13.0] * 15, 0.3, seed=0).tolist())
    assert found.place == 15
    assert found.after - found.before == pytest.approx(3.0, abs=0.4)
    assert len(found.votes) >= LEAST_VOTES


def test_two_steps_are_two_points() -> None:
    found = change_points(series([10.0] * 10 + [14.0] * 10 + [8.0] * 10, 0.2, seed=1).tolist())
    assert [step.place for step in found] == [10, 20]


def test_noise_alone_changes_hardly_ever() -> None:
    found = [change_points(series([10.0] * 30, 0.5, seed).tolist()) for seed in range(12)]
    assert sum(map(len, found)) <= 1


def test_a_constant_series_does_not_change() -> None:
    assert change_points([[2.0]] * 12) == []


def test_one_odd_commit_is_no_change() -> None:
    values = series([10.0] * 24, 0.1, seed=3)
    values[11] += 4.0
    assert change_points(values.tolist()) == []


def test_each_detector_finds_a_clear_step() -> None:
    values = series([1.0] * 12 + [2.0] * 12, 0.05, seed=4)
    middles = np.median(values, axis=1)
    assert steps(middles) == energy(middles) == stretch(values.tolist()) == [12]


def test_splits_are_paired_in_the_test_against_the_last_stretch() -> None:
    """Splits differ by far more than the step: only their pairs show it."""
    split_levels = np.array([-3.0, -1.0, 1.0, 3.0])
    values = 0.01 * np.random.default_rng(5).standard_normal((16, 4)) + split_levels
    values[8:] += 0.1
    assert stretch(values.tolist()) == [8]


def test_steps_agree_with_asv() -> None:
    step_detect = pytest.importorskip("asv.step_detect", reason="asv is not installed")
    for seed in range(5):
        middles = np.median(series([10.0] * 12 + [20.0] * 9 + [5.0] * 12, 0.2, seed), axis=1)
        assert steps(middles) == [left for left, *_ in step_detect.detect_steps(list(middles))][1:] == [12, 21]
