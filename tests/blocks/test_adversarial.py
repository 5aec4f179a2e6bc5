from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from fsibench.blocks.adversarial import Discriminator, Moments, adaptive_contrast


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draws_of(distribution: Normal, num_draws: int, generator: torch.Generator) -> Tensor:
    noise = torch.randn(num_draws, *distribution.mean.shape, generator=generator)
    return distribution.mean + distribution.stddev * noise


def correlation(first: Tensor, second: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([first, second]))[0, 1])


def test_discriminator_recovers_a_gaussian_log_ratio() -> None:
    q = Normal(torch.tensor([0.6, -0.3, 0.0]), torch.tensor([0.7, 1.0, 1.2]))
    p = Normal(torch.zeros(3), torch.ones(3))
    discriminator, generator = Discriminator(3, stream(), 5e-3, "cosine", weight_scale=None), stream(1)
    for step in range(800):
        discriminator.improve(draws_of(q, 256, generator), draws_of(p, 256, generator), step / 800)
    held_out = torch.cat([draws_of(q, 500, generator), draws_of(p, 500, generator)])
    exact = (q.log_prob(held_out) - p.log_prob(held_out)).sum(1)
    learned = discriminator.log_ratio(held_out)
    assert correlation(learned, exact) > 0.95
    assert float((learned - exact).mean().abs()) < 0.15  # label 1 is the first: no flipped sign, no offset


def test_discriminator_recovers_the_ratio_to_a_standard_normal() -> None:
    q = Normal(torch.tensor([0.0, 0.5]), torch.tensor([1.3, 0.8]))
    discriminator, generator = Discriminator(2, stream(), 5e-3, "cosine", weight_scale=None), stream(1)
    for step in range(800):
        discriminator.improve_on_gaussian(draws_of(q, 255, generator), step / 800, generator)  # odd: an unpaired draw
    held_out = draws_of(q, 1000, generator)
    exact = (q.log_prob(held_out) - Normal(0.0, 1.0).log_prob(held_out)).sum(1)
    assert correlation(discriminator.log_ratio(held_out), exact) > 0.95


def cross_entropy(discriminator: Discriminator, first: Tensor, second: Tensor) -> Tensor:
    """By plain torch, with gradients to T."""
    log_sigmoid = torch.nn.functional.logsigmoid
    logits = discriminator.network(first), discriminator.network(second)
    return -0.5 * (log_sigmoid(logits[0]).mean() + log_sigmoid(-logits[1]).mean())


@pytest.mark.parametrize("sizes", [(6, 6), (9, 4), (1, 3)])
def test_written_out_gradient_is_that_of_the_cross_entropy(sizes: tuple[int, int]) -> None:
    discriminator = Discriminator(4, stream(), 1e-3, weight_scale=0.5, dtype=torch.float64)
    first, second = (torch.randn(size, 4, generator=stream(1), dtype=torch.float64) for size in sizes)
    expected = cross_entropy(discriminator, first, second)
    (expected_gradient,) = torch.autograd.grad(expected, discriminator.network.flat)
    with torch.no_grad():
        value, gradient = discriminator.cross_entropy_gradient(first, second)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("num_draws", [6, 7])
def test_written_out_gradient_against_pairs_is_that_of_the_cross_entropy(num_draws: int) -> None:
    discriminator = Discriminator(4, stream(), 1e-3, weight_scale=0.5, dtype=torch.float64)
    draws = torch.randn(num_draws, 4, generator=stream(1), dtype=torch.float64)
    pairs = torch.randn((num_draws + 1) // 2, 4, generator=stream(2), dtype=torch.float64)
    expected = cross_entropy(discriminator, draws, torch.cat([pairs, -pairs])[:num_draws])
    (expected_gradient,) = torch.autograd.grad(expected, discriminator.network.flat)
    hidden: list[Tensor] = []
    discriminator.log_ratio(draws, hidden)
    with torch.no_grad():
        value, gradient = discriminator.gaussian_gradient(draws, hidden, pairs)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, expected_gradient)


def test_known_activations_change_nothing() -> None:
    draws = torch.randn(9, 4, generator=stream(1))
    trained = []
    for reuse in (True, False):
        discriminator = Discriminator(4, stream(), 1e-2, weight_scale=0.5)
        hidden: list[Tensor] = []
        discriminator.log_ratio(draws, hidden)
        discriminator.improve_on_gaussian(draws, 0.0, stream(2), hidden if reuse else None)
        trained.append(discriminator.network.flat.detach())
    torch.testing.assert_close(*trained)


def test_learning_the_ratio_sends_no_gradient_to_the_draws() -> None:
    discriminator = Discriminator(2, stream(), 1e-3)
    draws = torch.randn(8, 2, generator=stream(1), requires_grad=True)
    discriminator.improve(draws, draws + 1.0, 0.0)
    discriminator.improve_on_gaussian(draws, 0.0, stream(2))
    assert draws.grad is None


def test_moments_give_the_divergence_of_two_gaussians() -> None:
    draws = torch.randn(50, 3, generator=stream(), dtype=torch.float64) * 0.5 + 1.0
    mean, log_variance = torch.tensor([0.0, 1.0, 2.0]).double(), torch.tensor([0.1, -0.4, 0.0]).double()
    own = Normal(draws.mean(0), draws.std(0, correction=0))
    expected = kl_divergence(own, Normal(mean, (0.5 * log_variance).exp())).sum()
    torch.testing.assert_close(Moments(draws).divergence(mean, log_variance), expected)


def test_divergence_of_moments_has_the_gradient_of_constant_moments() -> None:
    """Adaptive contrast holds q̄ constant and differentiates log q̄ − log p̄ through the draws."""
    draws = torch.randn(20, 3, generator=stream(), dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(-0.5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(Moments(draws).divergence(0.0, tau), draws)
    fixed = Normal(draws.mean(0).detach(), draws.std(0, correction=0).detach())
    prior = Normal(torch.zeros(3, dtype=torch.float64), (0.5 * tau).exp())
    surrogate = (fixed.log_prob(draws) - prior.log_prob(draws)).sum(1).mean()
    (expected,) = torch.autograd.grad(surrogate, draws)
    torch.testing.assert_close(gradient, expected)


def test_standardised_draws_have_unit_moments_and_take_moments_as_constants() -> None:
    draws = (3.0 * torch.randn(40, 4, generator=stream(), dtype=torch.float64) - 1.0).requires_grad_()
    moments = Moments(draws)
    torch.testing.assert_close(moments.standardised.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0.0)
    torch.testing.assert_close(moments.standardised.var(0, correction=0), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(moments.standardise(draws), moments.standardised)
    weights = torch.randn(40, 4, generator=stream(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * moments.standardised).sum(), draws)
    torch.testing.assert_close(gradient, weights / moments.scale)


def test_adaptive_contrast_is_the_log_ratio_and_the_divergence_of_its_moments() -> None:
    discriminator = Discriminator(4, stream(), 1e-3, weight_scale=0.5, dtype=torch.float64)
    draws = (0.5 * torch.randn(9, 4, generator=stream(1), dtype=torch.float64) + 0.2).requires_grad_()
    log_prior = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
    moments = Moments(draws)
    hidden: list[Tensor] = []
    expected = discriminator.log_ratio(moments.standardised, hidden).mean() + moments.divergence(0.0, log_prior)
    contrast = adaptive_contrast(draws, log_prior, discriminator)
    torch.testing.assert_close(contrast.kl, expected)
    torch.testing.assert_close(contrast.standardised, moments.standardised.detach())
    torch.testing.assert_close(contrast.hidden, [activations.detach() for activations in hidden])
    for got, known in zip(
        torch.autograd.grad(contrast.kl, [draws, log_prior]), torch.autograd.grad(expected, [draws, log_prior]), strict=True
    ):
        torch.testing.assert_close(got, known)


def test_collapsed_draws_stay_finite() -> None:
    draws = torch.ones(10, 3, requires_grad=True)
    moments = Moments(draws)
    loss = moments.divergence(0.0, torch.tensor(0.0)) + moments.standardised.sum()
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert draws.grad is not None
    assert bool(torch.isfinite(draws.grad).all())


@pytest.mark.parametrize("num_draws", [1, 2, 5])
def test_any_number_of_draws_can_be_contrasted(num_draws: int) -> None:
    discriminator = Discriminator(3, stream(), 1e-3)
    loss = discriminator.improve_on_gaussian(torch.zeros(num_draws, 3), 0.0, stream(1))
    assert loss == pytest.approx(0.693, abs=0.1)
