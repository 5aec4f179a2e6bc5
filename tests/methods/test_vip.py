"""VIP: energy against quadrature, the linear model against exact Gaussian processes, the options it offers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fsibench import checks
from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.gaussian import standard_kl
from fsibench.blocks.kernels import GaussianProcess
from fsibench.blocks.networks import DropoutMasks
from fsibench.blocks.priors import Prior
from fsibench.contract import Data
from fsibench.errors import UsageError
from fsibench.methods.gp import GPPosterior
from fsibench.methods.vip import VIP, LinearisedProcess, released_energy


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


def fitted(data: Data, steps: int, **options: object) -> LinearisedProcess:
    posterior = checks.fit(VIP(**options), data, steps)
    assert isinstance(posterior, LinearisedProcess)
    return posterior


def expected_power(y: float, mean: float, variance: float, noise: float, alpha: float) -> float:
    """1/α log E_{N(f; mean, variance)}[N(y | f, noise)^α] by Gauss-Hermite quadrature with 200 nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    f = mean + math.sqrt(variance) * nodes
    log_power = alpha * (-0.5 * (y - f) ** 2 / noise - 0.5 * math.log(2 * math.pi * noise))
    return float(np.log(np.sum(weights / weights.sum() * np.exp(log_power))) / alpha)


@pytest.mark.parametrize("alpha", [1e-4, 0.3, 0.5, 1.0])
def test_the_energy_of_a_gaussian_equals_quadrature(alpha: float) -> None:
    y, mean, variance, noise = 0.7, 0.2, 0.3, 0.25
    as_tensor = [torch.tensor(value, dtype=torch.float64) for value in (y, mean, variance, noise)]
    energy = alpha_energy(as_tensor[0], as_tensor[1][None], as_tensor[2], as_tensor[3], alpha).item()
    assert energy == pytest.approx(expected_power(y, mean, variance, noise, alpha), abs=1e-8)
    # the closed form as the specification of the method writes it
    inner = noise / alpha + variance
    closed = -0.5 * math.log(2 * math.pi * inner) - 0.5 * (y - mean) ** 2 / inner
    closed += 0.5 * (1 - alpha) * math.log(2 * math.pi * noise) - 0.5 * math.log(alpha)
    assert energy == pytest.approx(closed / alpha, abs=1e-8)


def test_the_energy_ends_in_the_evidence_bound_and_in_the_log_predictive_density() -> None:
    y, mean, variance, noise = torch.tensor([0.7, 0.2, 0.3, 0.25], dtype=torch.float64)
    bound = torch.distributions.Normal(mean, noise.sqrt()).log_prob(y) - 0.5 * variance / noise
    predictive = torch.distributions.Normal(mean, (variance + noise).sqrt()).log_prob(y)
    assert alpha_energy(y, mean[None], variance, noise, 0.0).item() == pytest.approx(bound.item(), abs=1e-12)
    assert alpha_energy(y, mean[None], variance, noise, 1.0).item() == pytest.approx(predictive.item(), abs=1e-12)


def test_the_released_energy_prefers_far_too_little_noise() -> None:
    # For a squared residual of 0.25 and a sure function, the maximum is at 0.038 instead of 0.25.
    noise = torch.logspace(-3, 0.5, 4000, dtype=torch.float64)
    y, zero = torch.tensor(0.5, dtype=torch.float64), torch.zeros_like(noise)
    released = noise[released_energy(y, zero, zero + 1e-9, noise, 0.5).argmax()].item()
    correct = noise[alpha_energy(y, zero[None], 1e-9, noise, 0.5).argmax()].item()
    assert released == pytest.approx(0.038, abs=0.004)
    assert correct == pytest.approx(0.25, abs=0.01)


def test_the_kl_of_q_vanishes_at_the_prior() -> None:
    assert standard_kl(torch.zeros(4), torch.eye(4)).item() == 0.0
    assert fitted(wave(20), 1, basis="fixed", num_functions=5).trace()["kl"] == pytest.approx(0.0, abs=0.01)


class RandomFeatures(Prior):
    """Functions of an RBF process as √(2/F) Σ cos(ωᵀx + b) w: a prior whose exact posterior is known."""

    def __init__(self, lengthscale: float) -> None:
        self.lengthscale = lengthscale

    @property
    def parameters(self) -> list[Tensor]:
        return []

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        shape = (num_draws, 3, 200)
        noise = torch.randn(shape, generator=generator)
        noise[:, 1] = 2.0 * math.pi * torch.rand(num_draws, 200, generator=generator)
        return noise

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        frequency, phase, weight = noise.unbind(1)  # [S, F]
        waves = torch.cos(x[:, 0] * frequency[..., None] / self.lengthscale + phase[..., None])  # [S, F, N]
        return math.sqrt(2.0 / 200) * (weight[..., None] * waves).sum(1)


def test_with_many_functions_of_a_gaussian_process_predictions_are_those_of_the_process() -> None:
    data = wave(40)
    model = LinearisedProcess(VIP(num_test_bases=1, num_test_functions=2000), data, torch.Generator().manual_seed(0))
    model.prior = RandomFeatures(0.7)
    model.bases = [model.prior.draw_noise(2000, torch.Generator().manual_seed(1))]
    with torch.no_grad():
        model.log_noise.fill_(math.log(0.01))
    process = GaussianProcess(torch.tensor([0.7]).double(), torch.tensor(1.0).double(), model.noise.detach().double())
    x = torch.linspace(-2.0, 2.0, 50)[:, None]
    exact = GPPosterior(process, data, 0.0).predict(x, torch.Generator())
    ours = model.predict(x, torch.Generator())
    truth = torch.sin(2.0 * x[:, 0])
    errors = [(predictive.mean - truth).square().mean().sqrt().item() for predictive in (ours, exact)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)
    assert ours.variance.sqrt().numpy() == pytest.approx(exact.variance.sqrt().numpy(), rel=0.15)


def test_the_collapsed_objective_is_the_density_of_the_targets() -> None:
    data = wave(12)
    options = VIP(hyperprior_means=0.0, hyperprior_scales=0.0, num_functions=7, output_layer="sampled")
    model = LinearisedProcess(options, data, torch.Generator().manual_seed(0))
    noise = model.prior.draw_noise(7, torch.Generator().manual_seed(5))
    value = model.objective(data, torch.Generator().manual_seed(5)).item()
    f = model.prior.functions(data.x, noise).double()
    covariance = torch.cov(f.mT) + model.noise.double() * torch.eye(12, dtype=torch.float64)
    dense = torch.distributions.MultivariateNormal(f.mean(0), covariance).log_prob(data.y.double())
    assert value == pytest.approx(dense.item(), rel=1e-4)


def test_integrating_the_output_layer_keeps_the_covariance_and_scatters_less() -> None:
    data = wave(12)

    def covariances(output_layer: str) -> Tensor:
        """Of 300 sets of 40 functions or networks each: [300, 12, 12]."""
        model = LinearisedProcess(VIP(output_layer=output_layer), data, torch.Generator().manual_seed(0))
        stream = torch.Generator().manual_seed(1)
        with torch.no_grad():
            sets = [model.features(data.x, model.prior.draw_noise(40, stream))[1].double() for _ in range(300)]
        return torch.stack([features @ features.mT for features in sets])

    integrated, sampled = covariances("integrated"), covariances("sampled")
    difference = integrated.mean(0) - sampled.mean(0)
    assert difference.norm().item() < 0.05 * sampled.mean(0).norm().item()
    assert integrated.var(0).mean().item() < 0.5 * sampled.var(0).mean().item()


def test_q_approaches_the_exact_linear_posterior_when_only_q_is_trained() -> None:
    # α = 0: the evidence bound is maximal at the exact posterior.
    data = wave(30)
    options = VIP(basis="fixed", alpha=0.0, num_functions=6, prediction="q", hyperprior_means=0.0, hyperprior_scales=0.0)
    model = LinearisedProcess(options, data, torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam([model.q_mean, model.q_factor], lr=0.05)
    for step in range(1500):
        optimiser.param_groups[0]["lr"] = 0.05 * (1.0 - step / 1500)
        optimiser.zero_grad()
        (-model.objective(data, torch.Generator())).backward()
        optimiser.step()
    exact = LinearisedProcess(VIP(basis="fixed", num_functions=6, prediction="exact"), data, torch.Generator())
    exact.prior, exact.bases, exact.log_noise = model.prior, model.bases, model.log_noise
    x = torch.linspace(-2.0, 2.0, 9)[:, None]
    ours, theirs = model.predict(x, torch.Generator()), exact.predict(x, torch.Generator())
    assert ours.mean.numpy() == pytest.approx(theirs.mean.numpy(), abs=0.02)
    assert ours.scale.numpy() == pytest.approx(theirs.scale.numpy(), rel=0.03)


def test_draws_have_the_moments_of_the_predictive_without_noise() -> None:
    model = fitted(wave(40), 60, num_functions=30, num_test_functions=50)
    x = torch.linspace(-2.0, 2.0, 5)[:, None]
    draws = model.draw(x, 9000, torch.Generator().manual_seed(1))
    predictive = model.predict(x, torch.Generator())
    assert draws.mean(0).numpy() == pytest.approx(predictive.mean.numpy(), abs=0.03)
    function_variance = predictive.variance - model.noise.detach()
    assert draws.var(0).numpy() == pytest.approx(function_variance.numpy(), rel=0.15, abs=2e-3)


def test_it_learns_a_wave() -> None:
    data, test = wave(100), wave(100, seed=1)
    predictive = fitted(data, 250).predict(test.x, torch.Generator())
    assert predictive.log_prob(test.y).mean().item() > 0.5  # the truth has 0.88
    assert (predictive.mean - test.y).square().mean().sqrt().item() < 0.15


@pytest.mark.parametrize(
    "options",
    [
        {"basis": "fixed", "regulariser": "paper"},
        {"basis": "fixed", "regulariser": "released"},
        {"basis": "fixed", "objective": "released"},
        {"basis": "fixed", "prediction": "q"},
        {"tied": True},
        {"prior": "ns"},
        {"psi": 0.5},
        {"basis": "fixed", "prior": "ns", "alpha": 0.0},
    ],
    ids=str,
)
def test_every_option_trains_and_predicts(options: dict[str, object]) -> None:
    data = wave(30)
    model = fitted(data, 5, num_functions=8, num_test_functions=8, hidden_units=6, **options)
    assert bool(torch.isfinite(model.predict(data.x, torch.Generator()).log_prob(data.y)).all())
    assert model.draw_prior(data.x, 3, torch.Generator().manual_seed(0)).shape == (3, 30)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="basis=fixed"):
        VIP(regulariser="paper")
    with pytest.raises(UsageError, match="prior=bnn"):
        VIP(prior="ns", tied=True)


@pytest.mark.parametrize("option", ["num_functions", "num_networks", "num_test_functions", "num_test_networks"])
def test_fewer_than_two_draws_have_no_covariance_and_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be at least 2, got 1"):
        VIP(**{option: 1})
