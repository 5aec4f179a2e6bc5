"""Distances from a posterior: zero for equal distributions, closed forms for Gaussians."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fsibench.metrics import Prediction, known, score
from fsibench.predictive import Predictive, SamplePredictive
from fsibench.references import LEVELS, Reference, distances

MEAN, SD, NOISE, SCALE = np.array([0.0, 1.0, -2.0, 3.0]), np.array([0.5, 1.0, 2.0, 0.3]), 0.4, 2.0
ALL = np.arange(4)


def gaussian_reference() -> Reference:
    """f ~ N(MEAN, SD²) independently in four rows, noise of sd NOISE; the last two rows are outside."""
    total = np.sqrt(SD**2 + NOISE**2)
    quantiles = MEAN[:, None] + total[:, None] * stats.norm.ppf(LEVELS)
    draws = np.random.default_rng(0).normal(MEAN, SD, (1000, 4)).astype(np.float32)
    return Reference(
        inside=np.array([True, True, False, False]), draws=draws, mean=MEAN, sd=SD, quantiles=quantiles,
        log_density=stats.norm.logpdf(quantiles, MEAN[:, None], total[:, None]), rhat=np.ones(4), ess=np.full(4, 1e3),
        z=np.zeros(4), about={"target_scale": SCALE, "noise": [NOISE] * 10},
    )  # fmt: skip


def gaussian(shift: float = 0.0, factor: float = 1.0) -> Predictive:
    total = factor * np.sqrt(SD**2 + NOISE**2)
    return Predictive(torch.from_numpy(MEAN + shift)[None], torch.from_numpy(total)[None])


def test_distances_vanish_for_the_exact_predictive() -> None:
    reference, exact = gaussian_reference(), gaussian()
    for distance in (distances.wasserstein, distances.divergence, distances.mean_error, distances.sd_error):
        assert distance(exact, reference, ALL) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("shift", "factor"), [(0.7, 1.0), (0.0, 1.5), (-0.4, 0.7)])
def test_w2_and_kl_of_gaussians_are_their_closed_forms(shift: float, factor: float) -> None:
    reference, other = gaussian_reference(), gaussian(shift, factor)
    total = np.sqrt(SD**2 + NOISE**2)
    w2 = np.sqrt(shift**2 + (factor - 1.0) ** 2 * total**2).mean() / SCALE
    # a hundred levels cut the tails: 2 % of a variance
    assert distances.wasserstein(other, reference, ALL) == pytest.approx(w2, rel=0.02)
    kl = (math.log(factor) + (total**2 + shift**2) / (2.0 * factor**2 * total**2) - 0.5).mean()
    assert distances.divergence(other, reference, ALL) == pytest.approx(kl, rel=0.06, abs=2e-3)


def test_errors_of_mean_and_sd_are_told_apart() -> None:
    reference = gaussian_reference()
    assert distances.mean_error(gaussian(0.6), reference, ALL) == pytest.approx(0.3)
    assert distances.sd_error(gaussian(0.6), reference, ALL) == pytest.approx(0.0, abs=1e-9)
    assert distances.mean_error(gaussian(0.0, 2.0), reference, ALL) == 0.0
    spread = np.sqrt(np.mean(SD**2 + NOISE**2)) / SCALE
    assert distances.sd_error(gaussian(0.0, 2.0), reference, ALL) == pytest.approx(spread)


def test_inside_and_outside_look_at_different_rows() -> None:
    reference = gaussian_reference()
    shifted = Predictive(torch.from_numpy(MEAN + np.array([0.0, 0.0, 1.0, 1.0]))[None], gaussian().scale)
    assert distances.mean_error(shifted, reference, distances.rows_of(reference, True)) == 0.0
    assert distances.mean_error(shifted, reference, distances.rows_of(reference, False)) == pytest.approx(0.5)


def test_the_energy_distance_is_zero_for_one_distribution_and_its_closed_form_for_two() -> None:
    generator = np.random.default_rng(1)
    first, second = generator.normal(0.0, 1.0, (2000, 1)), generator.normal(0.0, 1.0, (2000, 1))
    assert distances.energy(first, second) == pytest.approx(0.0, abs=0.01)

    def mean_absolute(m: float, s: float) -> float:
        return float(2.0 * s * stats.norm.pdf(m / s) + m * (2.0 * stats.norm.cdf(m / s) - 1.0))

    exact = 2.0 * mean_absolute(0.8, math.sqrt(2.0)) - 2.0 * mean_absolute(0.0, math.sqrt(2.0))
    assert distances.energy(first, second + 0.8) == pytest.approx(exact, rel=0.1)


def test_joint_draws_of_the_posterior_are_near_and_independent_rows_of_another_are_not() -> None:
    reference = gaussian_reference()
    functions = torch.from_numpy(np.random.default_rng(2).normal(MEAN, SD, (200, 4)))
    near = distances.energy_distance(functions, reference, ALL)
    far = distances.energy_distance(functions + 1.0, reference, ALL)
    assert abs(near) < 0.02
    assert far > 5.0 * abs(near)


def test_metrics_of_truth_exist_where_a_posterior_is_known_and_nowhere_else() -> None:
    keys = {key for key in known() if key.startswith("truth_")}
    assert len(keys) == 10
    y = torch.from_numpy(MEAN)
    assert not keys & set(score(Prediction(gaussian(), y)))
    draws = torch.from_numpy(np.random.default_rng(2).normal(MEAN, SD, (200, 4)))
    values = score(Prediction(gaussian(0.6), y, lambda: draws, gaussian_reference()))
    assert keys <= set(values)
    assert values["truth_mean"] == pytest.approx(0.3)
    assert "truth_w2" not in score(Prediction(gaussian().rows(slice(0, 2)), y[:2], None, gaussian_reference()))


def test_a_prediction_without_a_density_has_no_kl() -> None:
    values = SamplePredictive(torch.from_numpy(np.random.default_rng(3).normal(MEAN, SD, (50, 4))))
    assert math.isnan(distances.divergence(values, gaussian_reference(), ALL))
    assert math.isfinite(distances.wasserstein(values, gaussian_reference(), ALL))
