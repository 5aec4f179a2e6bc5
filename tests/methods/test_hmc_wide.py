"""HMC of the infinitely wide network: against quadrature over its scales, and what it says of itself."""

from __future__ import annotations

import pytest
import torch

from fsibench.checks import problems
from fsibench.contract import Data, Meter
from fsibench.errors import Diverged
from fsibench.methods.hmc_wide import KEPT, HMCWide, WidePosterior


def wave(num_rows: int, noise: float = 0.1, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + noise * torch.randn(num_rows, generator=generator))


def fitted(options: HMCWide, data: Data, steps: int) -> WidePosterior:
    posterior = problems.fit(options, data, steps)
    assert isinstance(posterior, WidePosterior)
    return posterior


def test_chains_agree_where_data_have_almost_no_noise() -> None:
    """On a step; the posterior of a whole wave can have two modes, between which chains do not cross."""
    x = wave(60).x
    y = torch.tanh(2.0 * x[:, 0]) + 1e-3 * torch.randn(60, generator=torch.Generator().manual_seed(1))
    trace = fitted(HMCWide(), Data(x, y), 700).trace()
    assert trace["diagnostics_failed"] == 0.0
    assert float(trace["rhat"]) < 1.05
    assert float(trace["noise"]) < 5e-3


def test_the_noise_follows_the_inputs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 2.0 * torch.rand(150, 1, generator=generator) - 1.0
    sd = torch.exp(-2.0 + 1.5 * x[:, 0])
    data = Data(x, x[:, 0] + sd * torch.randn(150, generator=generator))
    predictive = fitted(HMCWide(), data, 400).predict(torch.tensor([[-0.8], [0.8]]), torch.Generator())
    low, high = predictive.variance.sqrt().tolist()
    assert low == pytest.approx(float(torch.exp(torch.tensor(-3.2))), rel=0.35)
    assert high == pytest.approx(float(torch.exp(torch.tensor(-0.8))), rel=0.35)


def test_its_mean_of_the_log_noise_is_that_of_importance_sampling_from_the_prior() -> None:
    data = wave(8)
    posterior = fitted(HMCWide(), data, 1500)
    sampled = posterior.chains.histories.stacked()[:, :, -2]  # n
    network = posterior.network
    xi = torch.randn(200_000, network.num_sampled, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    levels = torch.cat([0.5 * part.square().sum(1) - network.potential(part)[0] for part in xi.split(5_000)])
    weights = torch.softmax(levels, 0)
    exact = (weights * network.scales(xi).n).sum()
    spread = ((weights * (network.scales(xi).n - exact).square()).sum()).sqrt()
    assert 1.0 / weights.square().sum() > 300.0  # enough effective draws to compare with
    assert sampled.mean().item() == pytest.approx(exact.item(), abs=0.2 * spread.item())


def test_kept_processes_stay_bounded_and_pool_all_chains_that_move() -> None:
    posterior = fitted(HMCWide(num_chains=2, longest_burn_in=0.1), wave(12), 400)
    assert 1 < len(posterior.kept) <= KEPT
    assert posterior.predict(wave(5).x, torch.Generator()).loc.shape == (2 * len(posterior.kept), 5)


def test_there_is_a_prediction_after_every_pull() -> None:
    data = wave(15)
    for posterior in Meter(steps=60).pulls(HMCWide(num_chains=2), data, torch.Generator().manual_seed(0)):
        predictive = posterior.predict(data.x, torch.Generator())
        assert bool(torch.isfinite(predictive.loc).all())
        assert bool((predictive.scale > 0.0).all())


def test_targets_that_are_not_numbers_are_told() -> None:
    data = wave(10)
    with pytest.raises(Diverged, match="where the search begins"):
        fitted(HMCWide(), Data(data.x, torch.full_like(data.y, torch.nan)), 3)
