"""The alpha-energy against quadrature and its limits; Gaussian divergences against Monte Carlo and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from fsibench.blocks.divergences import (
    alpha_energy,
    diagonal_gaussian_entropy,
    diagonal_gaussian_kl,
    mean_alpha_energy,
)
from fsibench.blocks.likelihoods import noise_variance

Y = torch.tensor([0.3, -1.2], dtype=torch.float64)
MEAN = torch.tensor([[0.1, -0.4], [0.9, -2.0], [-0.5, 0.3]], dtype=torch.float64)  # [S, N]
W = torch.tensor([0.2, 0.05], dtype=torch.float64)  # conditional variance, [N]
NOISE = torch.tensor(0.09, dtype=torch.float64)


def energy_by_quadrature(alpha: float) -> list[float]:
    """1/α log 1/S Σₛ ∫ N(f; μₛ, w) N(y; f, v)^α df, by adaptive integration."""
    scale = math.sqrt(float(NOISE))
    energies = []
    for i, y in enumerate(Y.tolist()):
        terms = []
        for mean in MEAN[:, i].tolist():
            prior = stats.norm(mean, math.sqrt(float(W[i])))
            value, _ = integrate.quad(
                lambda f, prior=prior, y=y: prior.pdf(f) * math.exp(alpha * stats.norm.logpdf(y, f, scale)),
                min(mean, y) - 6.0, max(mean, y) + 6.0, epsabs=0.0, epsrel=1e-11, limit=400,
                points=sorted({mean, y}),
            )  # fmt: skip
            terms.append(value)
        energies.append(math.log(float(np.mean(terms))) / alpha)
    return energies


@pytest.mark.parametrize("alpha", [1e-4, 0.3, 0.5, 1.0])
def test_alpha_energy_equals_quadrature(alpha: float) -> None:
    expected = energy_by_quadrature(alpha)
    assert alpha_energy(Y, MEAN, W, NOISE, alpha).tolist() == pytest.approx(expected, rel=1e-6)


def test_alpha_energy_at_zero_is_the_expected_log_likelihood() -> None:
    # E log N(y | f, v) over f ~ N(μ, w): the second moment of y − f is (y − μ)² + w
    expected = (Normal(MEAN, NOISE.sqrt()).log_prob(Y) - 0.5 * W / NOISE).mean(0)
    torch.testing.assert_close(alpha_energy(Y, MEAN, W, NOISE, 0.0), expected)


def test_alpha_energy_at_one_is_the_log_predictive_density() -> None:
    density = Normal(MEAN, (W + NOISE).sqrt()).log_prob(Y)
    torch.testing.assert_close(alpha_energy(Y, MEAN, W, NOISE, 1.0), density.logsumexp(0) - math.log(3))


def test_alpha_energy_tends_to_its_limit() -> None:
    limit = alpha_energy(Y, MEAN, W, NOISE, 0.0)
    gaps = [float((alpha_energy(Y, MEAN, W, NOISE, alpha) - limit).abs().max()) for alpha in (1e-2, 1e-3, 1e-4)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02


def test_alpha_energy_grows_with_alpha() -> None:
    energies = torch.stack([alpha_energy(Y, MEAN, W, NOISE, alpha) for alpha in (0.0, 0.1, 0.5, 1.0)])
    assert bool((energies.diff(dim=0) > 0).all())  # Jensen


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_alpha_outside_the_unit_interval_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        alpha_energy(Y, MEAN, W, NOISE, alpha)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_alpha_energy_gradients_are_those_of_finite_differences(alpha: float) -> None:
    inputs = [tensor.clone().requires_grad_(True) for tensor in (MEAN, W, NOISE)]

    def energy(mean: Tensor, w: Tensor, noise: Tensor) -> Tensor:
        return alpha_energy(Y, mean, w, noise, alpha)

    assert torch.autograd.gradcheck(energy, inputs)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("w_shape", [(), (2,), (3, 2)])
@pytest.mark.parametrize("noise_shape", [(), (2,)])
def test_alpha_energy_gradients_reach_every_shape(
    alpha: float, w_shape: tuple[int, ...], noise_shape: tuple[int, ...]
) -> None:
    w = torch.full(w_shape, 0.2, dtype=torch.float64, requires_grad=True)
    noise = torch.full(noise_shape, 0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w, noise: alpha_energy(Y, MEAN, w, noise, alpha), [w, noise])


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("has_variance", [True, False])
def test_mean_alpha_energy_is_the_mean_in_value_and_gradient(alpha: float, has_variance: bool) -> None:
    mean, log_noise = MEAN.clone().requires_grad_(), NOISE.log().requires_grad_()
    w = W.clone().requires_grad_() if has_variance else None
    leaves = [tensor for tensor in (mean, w, log_noise) if tensor is not None]
    expected = alpha_energy(Y, mean, 0.0 if w is None else w, noise_variance(log_noise), alpha).mean()
    value = mean_alpha_energy(Y, mean, w, log_noise, alpha)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(3.0 * value, leaves), torch.autograd.grad(3.0 * expected, leaves))


@pytest.mark.parametrize("shape", [(), (4,)])
def test_diagonal_gaussian_kl_gradients_are_those_of_finite_differences(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4,), (4,), shape, shape)
    leaves = [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(diagonal_gaussian_kl, leaves)


def test_diagonal_gaussian_kl_equals_torch() -> None:
    mean, log_variance = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    prior_mean, prior_log_variance = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = kl_divergence(
        Normal(mean, (0.5 * log_variance).exp()), Normal(prior_mean, (0.5 * prior_log_variance).exp())
    ).sum()
    torch.testing.assert_close(diagonal_gaussian_kl(mean, log_variance, prior_mean, prior_log_variance), expected)


def test_diagonal_gaussian_kl_counts_a_scalar_prior_for_every_coordinate() -> None:
    mean, log_variance = torch.tensor([0.5, -1.0]), torch.tensor([-0.3, 0.2])
    tau = torch.tensor(-0.7)
    expected = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, (0.5 * tau).exp())).sum()
    torch.testing.assert_close(diagonal_gaussian_kl(mean, log_variance, 0.0, tau), expected)


def test_kl_vanishes_when_q_is_the_prior() -> None:
    tau = torch.tensor(-1.3)
    assert float(diagonal_gaussian_kl(torch.zeros(5), tau.expand(5), 0.0, tau)) == pytest.approx(0.0, abs=1e-6)


def test_entropy_equals_torch() -> None:
    log_variance = torch.tensor([-1.0, 0.5, 2.0])
    expected = Normal(torch.zeros(3), (0.5 * log_variance).exp()).entropy().sum()
    torch.testing.assert_close(diagonal_gaussian_entropy(log_variance), expected)
