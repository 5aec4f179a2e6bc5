"""The predictive mixture against closed forms, quadrature and properscoring."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import properscoring
import pytest
import scipy.integrate
import scipy.stats
import torch

from fsibench.predictive import Predictive, SamplePredictive, crps_ensemble


def mixture(num_components: int, num_points: int = 6, seed: int = 0, smallest: float = 0.3) -> Predictive:
    generator = torch.Generator().manual_seed(seed)
    loc = 2.0 * torch.randn(num_components, num_points, generator=generator, dtype=torch.float64)
    scale = smallest + torch.rand(num_components, num_points, generator=generator, dtype=torch.float64)
    return Predictive(loc, scale)


def observations(num_points: int = 6, seed: int = 1) -> torch.Tensor:
    return 2.0 * torch.randn(num_points, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def crps_by_quadrature(predictive: Predictive, y: float, point: int) -> float:
    """∫ (F(t) − 1{y ≤ t})² dt, straight from the definition."""
    loc, scale = predictive.loc[:, point].numpy(), predictive.scale[:, point].numpy()

    def squared_gap(t: float) -> float:
        F = np.mean(scipy.stats.norm.cdf(t, loc, scale))
        return float((F - (y <= t)) ** 2)

    low, high = min(loc.min() - 12, y - 1), max(loc.max() + 12, y + 1)
    return float(scipy.integrate.quad(squared_gap, low, high, points=[y], limit=500)[0])


@pytest.mark.parametrize("num_components", [1, 2, 7, 40])
@pytest.mark.parametrize("algorithm", ["pairs", "integral", "auto"])
def test_crps_equals_its_definition(num_components: int, algorithm: str) -> None:
    predictive, y = mixture(num_components), observations()
    expected = [crps_by_quadrature(predictive, float(y[i]), i) for i in range(6)]
    assert predictive.crps(y, algorithm).numpy() == pytest.approx(expected, abs=2e-7)  # type: ignore[arg-type]


def test_crps_of_one_gaussian_is_that_of_properscoring() -> None:
    predictive, y = mixture(1, 50), observations(50)
    expected = properscoring.crps_gaussian(y.numpy(), predictive.loc[0].numpy(), predictive.scale[0].numpy())
    assert predictive.crps(y).numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("smallest", [1e-3, 0.05, 1.0])
def test_integral_and_pair_sum_agree_at_every_resolution(smallest: float) -> None:
    predictive, y = mixture(60, 20, smallest=smallest), observations(20)
    assert torch.allclose(predictive.crps(y, "integral"), predictive.crps(y, "pairs"), rtol=0, atol=1e-9)


def test_crps_of_points_with_different_resolutions_keeps_their_order() -> None:
    fine, coarse = mixture(30, 5, smallest=1e-4), mixture(30, 5, smallest=2.0)
    both = Predictive(torch.cat([fine.loc, coarse.loc], 1), torch.cat([fine.scale, coarse.scale], 1))
    y = observations(10)
    expected = torch.cat([fine.crps(y[:5], "pairs"), coarse.crps(y[5:], "pairs")])
    assert torch.allclose(both.crps(y), expected, rtol=0, atol=1e-9)


def test_ensemble_crps_is_that_of_properscoring() -> None:
    draws, y = mixture(200, 30).loc, observations(30)
    expected = properscoring.crps_ensemble(y.numpy(), draws.T.numpy())
    assert crps_ensemble(draws, y).numpy() == pytest.approx(expected, abs=1e-12)


def test_fair_ensemble_crps_is_unbiased_where_the_plain_one_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(10, 40_000, generator=generator, dtype=torch.float64)
    y = torch.zeros(40_000, dtype=torch.float64)
    exact = float(properscoring.crps_gaussian(0.0, 0.0, 1.0))
    # Standard error of the mean over 40,000 points is about 0.001; the plain bias is 2/√π/20 ≈ 0.056.
    assert float(crps_ensemble(draws, y, fair=True).mean()) == pytest.approx(exact, abs=0.004)
    assert float(crps_ensemble(draws, y).mean()) > exact + 0.04


def test_ensemble_of_mixture_draws_approaches_the_exact_crps() -> None:
    predictive, y = mixture(5), observations()
    draws = predictive.sample(100_000, torch.Generator().manual_seed(2))
    assert torch.allclose(crps_ensemble(draws, y, fair=True), predictive.crps(y), atol=0.02)


def test_fair_ensemble_of_one_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two draws"):
        crps_ensemble(torch.zeros(1, 3), torch.zeros(3), fair=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is given in other units")
def test_crps_of_ten_thousand_points_with_500_components_needs_less_than_500_megabytes() -> None:
    program = """
import resource, torch
torch.set_num_threads(1)
from fsibench import Predictive
generator = torch.Generator().manual_seed(0)
loc = torch.randn(500, 10_000, generator=generator)
scale = 0.2 + 0.3 * torch.rand(500, 10_000, generator=generator)
predictive, y = Predictive(loc, scale), torch.randn(10_000, generator=generator)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
predictive.crps(y)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""
    used = float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert used < 500


def test_log_prob_integrates_to_one() -> None:
    predictive = mixture(7, 1)
    total = scipy.integrate.quad(lambda t: float(predictive.log_prob(torch.tensor([t])).exp()), -20, 20, limit=300)[0]
    assert total == pytest.approx(1.0, abs=1e-8)


def test_log_prob_is_the_log_of_the_average_density() -> None:
    predictive, y = mixture(9), observations()
    density = scipy.stats.norm.pdf(y.numpy(), predictive.loc.numpy(), predictive.scale.numpy()).mean(0)
    assert predictive.log_prob(y).numpy() == pytest.approx(np.log(density), abs=1e-12)


def test_log_prob_stays_finite_far_away() -> None:
    predictive = Predictive(torch.zeros(3, 1), torch.full((3, 1), 0.01))
    assert float(predictive.log_prob(torch.tensor([10.0]))) == pytest.approx(-0.5e6 - math.log(0.01) - 0.919, rel=1e-4)


def test_moments_are_those_of_many_draws() -> None:
    predictive = mixture(4)
    draws = predictive.sample(400_000, torch.Generator().manual_seed(5))
    assert torch.allclose(draws.mean(0), predictive.mean, atol=0.02)
    assert torch.allclose(draws.var(0), predictive.variance, rtol=0.02)


def test_quantiles_invert_the_cdf() -> None:
    predictive = mixture(11)
    levels = torch.tensor([0.01, 0.25, 0.5, 0.9, 0.999])
    quantiles = predictive.quantile(levels)
    for level, quantile in zip(levels, quantiles, strict=True):
        assert torch.allclose(predictive.cdf(quantile), level.double().expand(6), atol=1e-7)
    assert torch.equal(predictive.quantile(0.25), predictive.quantile(torch.tensor([0.25]))[0])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5])
def test_quantiles_outside_the_open_unit_interval_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        mixture(2).quantile(level)


def test_rescaling_moves_every_score_as_units_do() -> None:
    predictive, y = mixture(5), observations()
    scale, shift = 3.5, -2.0
    moved, moved_y = predictive.rescale(scale, shift), y * scale + shift
    assert torch.allclose(moved.log_prob(moved_y), predictive.log_prob(y) - math.log(scale))
    assert torch.allclose(moved.crps(moved_y), predictive.crps(y) * scale)
    assert torch.allclose(moved.cdf(moved_y), predictive.cdf(y))
    assert torch.allclose(moved.mean, predictive.mean * scale + shift)
    assert torch.allclose(moved.variance, predictive.variance * scale**2)


def test_a_scale_shared_by_all_components_may_be_given_once() -> None:
    loc = mixture(5).loc
    assert Predictive(loc, torch.tensor(0.5)).scale.shape == loc.shape


def test_a_predictive_without_component_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[S, N\]"):
        Predictive(torch.zeros(4), torch.ones(4))


# One scale per point: the grid ----------------------------------------------------------------------------------------


def one_scale(num_components: int, smallest: float, num_points: int = 12, seed: int = 3, weighted: bool = False) -> Predictive:
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(num_components, num_points, generator=generator, dtype=torch.float64)
    scale = smallest * (1.0 + torch.rand(num_points, generator=generator, dtype=torch.float64))
    weights = torch.rand(num_components, num_points, generator=generator, dtype=torch.float64) if weighted else None
    return Predictive(loc, scale, weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smallest", [3.0, 0.3, 0.02])
@pytest.mark.parametrize("num_components", [2, 30, 200])
def test_the_grid_and_the_pair_sum_give_one_crps(num_components: int, smallest: float, weighted: bool) -> None:
    predictive, y = one_scale(num_components, smallest, weighted=weighted), observations(12)
    gap = (predictive.crps(y, "grid") - predictive.crps(y, "pairs")).abs() / predictive.scale[0]
    assert float(gap.max()) < 5e-9


@pytest.mark.parametrize("smallest", [0.5, 0.05])
def test_crps_on_a_grid_equals_its_definition(smallest: float) -> None:
    predictive, y = one_scale(25, smallest, num_points=3), observations(3)
    expected = [crps_by_quadrature(predictive, float(y[i]), i) for i in range(3)]
    assert predictive.crps(y, "grid").numpy() == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("smallest", [1e-2, 1e-4, 1e-8])
def test_crps_of_narrow_mixtures_approaches_that_of_their_locations(smallest: float) -> None:
    predictive, y = one_scale(100, smallest), observations(12)
    expected = properscoring.crps_ensemble(y.numpy(), predictive.loc.T.numpy())
    assert predictive.crps(y).numpy() == pytest.approx(expected, abs=0.05 * smallest + 1e-12)


def test_the_grid_refuses_several_scales() -> None:
    with pytest.raises(ValueError, match="one scale"):
        mixture(20).crps(observations(), "grid")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smallest", [1.0, 0.1, 0.01])
def test_distribution_function_and_quantiles_on_a_grid_are_exact(smallest: float, weighted: bool) -> None:
    predictive = one_scale(80, smallest, weighted=weighted)
    thresholds = torch.linspace(-9.0, 9.0, 61, dtype=torch.float64)
    direct = torch.stack([predictive.cdf(z.expand(12)) for z in thresholds])
    assert torch.allclose(predictive.cdf_at(thresholds), direct, rtol=0, atol=1e-8)
    levels = torch.tensor([0.001, 0.025, 0.5, 0.8, 0.999], dtype=torch.float64)
    for level, quantile in zip(levels, predictive.quantile(levels), strict=True):
        assert torch.allclose(predictive.cdf(quantile), level.expand(12), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "predictive",
    [
        mixture(5),
        Predictive(mixture(5).loc, mixture(5).scale, torch.arange(1.0, 6.0, dtype=torch.float64)),
        Predictive(mixture(5).loc, mixture(5).scale, df=4.0),
        SamplePredictive(mixture(9).loc),
        SamplePredictive(mixture(9).loc, torch.arange(1.0, 10.0, dtype=torch.float64)),
    ],
)
def test_shared_thresholds_give_the_distribution_function(predictive: Predictive) -> None:
    thresholds = torch.cat([torch.linspace(-6.0, 6.0, 25, dtype=torch.float64), predictive.loc[:2, 0]])
    direct = torch.stack([predictive.cdf(z.expand(6)) for z in thresholds])
    assert torch.allclose(predictive.cdf_at(thresholds), direct, rtol=0, atol=1e-12)


def test_far_tails_keep_their_digits() -> None:
    predictive = Predictive(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    for z in (-30.0, -8.0, 8.0):
        assert float(predictive.cdf(torch.tensor([z]))) == pytest.approx(scipy.stats.norm.cdf(z), rel=1e-12)
