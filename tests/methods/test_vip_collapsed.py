"""VIP with its coefficients integrated out: the objective, exact posteriors, work inside pulls."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fsibench.blocks.kernels import GaussianProcess
from fsibench.blocks.linear_process import MomentPosterior
from fsibench.blocks.networks import DropoutMasks
from fsibench.blocks.priors import Prior
from fsibench.checks import problems
from fsibench.contract import Data, Meter
from fsibench.methods.gp import GPPosterior
from fsibench.methods.vip_collapsed import CollapsedProcess, VIPCollapsed


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


def fitted(data: Data, steps: int, **options: object) -> MomentPosterior:
    posterior = problems.fit(VIPCollapsed(**options), data, steps)
    assert isinstance(posterior, MomentPosterior)
    return posterior


class RandomFeatures(Prior):
    """Functions of an RBF process as √(2/F) Σ cos(ωᵀx + b) w: a prior whose exact posterior is known."""

    def __init__(self, lengthscale: float) -> None:
        self.lengthscale = lengthscale

    @property
    def parameters(self) -> list[Tensor]:
        return []

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(num_draws, 3, 200, generator=generator)
        noise[:, 1] = 2.0 * math.pi * torch.rand(num_draws, 200, generator=generator)
        return noise

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        frequency, phase, weight = noise.unbind(1)  # [S, F]
        waves = torch.cos(x[:, 0] * frequency[..., None] / self.lengthscale + phase[..., None])  # [S, F, N]
        return math.sqrt(2.0 / 200) * (weight[..., None] * waves).sum(1)


def test_with_many_functions_of_a_gaussian_process_predictions_are_those_of_the_process() -> None:
    data = wave(40)
    model = CollapsedProcess(VIPCollapsed(num_test_bases=1), data, torch.Generator().manual_seed(0))
    model.prior = RandomFeatures(0.7)
    model.bases = [model.prior.draw_noise(2000, torch.Generator().manual_seed(1))]
    with torch.no_grad():
        model.log_noise.fill_(math.log(0.01))
    process = GaussianProcess(torch.tensor([0.7]).double(), torch.tensor(1.0).double(), model.noise.detach().double())
    x = torch.linspace(-2.0, 2.0, 50)[:, None]
    exact = GPPosterior(process, data, 0.0).predict(x, torch.Generator())
    ours = model.posterior(data).predict(x, torch.Generator())
    truth = torch.sin(2.0 * x[:, 0])
    errors = [(predictive.mean - truth).square().mean().sqrt().item() for predictive in (ours, exact)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)
    assert ours.variance.sqrt().numpy() == pytest.approx(exact.variance.sqrt().numpy(), rel=0.15)


def test_the_objective_is_the_density_of_the_targets() -> None:
    data = wave(12)
    options = VIPCollapsed(prior="ns", num_draws=7)
    model = CollapsedProcess(options, data, torch.Generator().manual_seed(0))
    noise = model.prior.draw_noise(7, torch.Generator().manual_seed(5))
    value = model.objective(data, torch.Generator().manual_seed(5)).item()
    f = model.prior.functions(data.x, noise).double()
    covariance = torch.cov(f.mT) + model.noise.double() * torch.eye(12, dtype=torch.float64)
    dense = torch.distributions.MultivariateNormal(f.mean(0), covariance).log_prob(data.y.double())
    assert value == pytest.approx(dense.item(), rel=1e-4)


def test_draws_have_the_moments_of_the_predictive_without_noise() -> None:
    model = fitted(wave(40), 60)
    x = torch.linspace(-2.0, 2.0, 5)[:, None]
    draws = model.draw(x, 9000, torch.Generator().manual_seed(1))
    predictive = model.predict(x, torch.Generator())
    assert draws.mean(0).numpy() == pytest.approx(predictive.mean.numpy(), abs=0.03)
    noise = model.trace()["noise"]
    assert isinstance(noise, float)
    assert draws.var(0).numpy() == pytest.approx((predictive.variance - noise**2).numpy(), rel=0.15, abs=2e-3)


def test_predictions_touch_no_training_row() -> None:
    data = wave(40)
    mine = Data(data.x.clone(), data.y.clone())
    (posterior,) = Meter(steps=1).pulls(VIPCollapsed(), mine, torch.Generator().manual_seed(0))
    before = posterior.predict(data.x, torch.Generator())
    mine.y.zero_()
    assert problems.same(posterior.predict(data.x, torch.Generator()), before)


def test_the_last_pull_of_a_budget_renews_predictions() -> None:
    """Renewals come at steps 1, 2, 3, 5, 8: a budget of seven steps ends with the seventh, not with the fifth."""
    data = wave(40)

    def means(budget: int) -> list[float]:
        pulls = Meter(steps=budget).pulls(VIPCollapsed(schedule="constant"), data, torch.Generator().manual_seed(0))
        return [posterior.predict(data.x[:1], torch.Generator()).mean.item() for posterior in pulls]

    seven, nine = means(7), means(9)
    assert seven[:6] == nine[:6]
    assert seven[4] == seven[5] != seven[6]
    assert nine[4] == nine[6]


def test_it_learns_a_wave() -> None:
    data, test = wave(100), wave(100, seed=1)
    predictive = fitted(data, 250).predict(test.x, torch.Generator())
    assert predictive.log_prob(test.y).mean().item() > 0.5  # the truth has 0.88
    assert (predictive.mean - test.y).square().mean().sqrt().item() < 0.15


@pytest.mark.parametrize("prior", ["bnn_tied", "ns", "ns_concat", "gp"])
def test_every_prior_trains_and_predicts(prior: str) -> None:
    data = wave(30)
    model = fitted(data, 5, prior=prior, hidden_units=6)
    assert bool(torch.isfinite(model.predict(data.x, torch.Generator()).log_prob(data.y)).all())
    assert model.draw_prior(data.x, 3, torch.Generator().manual_seed(0)).shape == (3, 30)


@pytest.mark.parametrize("option", ["num_draws", "num_test_draws"])
def test_fewer_than_two_draws_have_no_covariance_and_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be at least 2, got 1"):
        VIPCollapsed(**{option: 1})


def test_it_says_that_it_is_a_variant() -> None:
    assert VIPCollapsed().departure()
    assert VIPCollapsed().published_column() == ""
