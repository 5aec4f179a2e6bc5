"""Gaussian conditionals: against textbook formulas, between their two forms, and against GP regression."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsibench.blocks.conditionals import gaussian_conditional, low_rank_conditional, root
from fsibench.blocks.linalg import JITTER, cholesky


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_exact_moments(mean: Tensor, covariance: Tensor) -> Tensor:
    """2n draws whose sample mean and covariance (divisor 2n − 1) are exactly the given ones."""
    n = len(mean)
    L = torch.linalg.cholesky(covariance)
    steps = L.mT * ((2 * n - 1) / 2.0) ** 0.5
    return torch.cat([mean + steps, mean - steps])


def test_conditional_equals_the_textbook_formula() -> None:
    f_x, f_z, u = normal(40, 3), normal(40, 5, seed=1), normal(6, 5, seed=2)
    f_x = f_x + f_z[:, :3]  # correlated
    K = torch.cov(torch.cat([f_x, f_z], 1).mT)
    K_xz, K_zz = K[:3, 3:], K[3:, 3:] + JITTER * torch.eye(5, dtype=torch.float64)
    expected_mean = f_x.mean(0) + (u - f_z.mean(0)) @ torch.linalg.solve(K_zz, K_xz.mT)
    expected_variance = (K[:3, :3] - K_xz @ torch.linalg.solve(K_zz, K_xz.mT)).diagonal()
    mean, variance = gaussian_conditional(f_x, f_z, u)
    torch.testing.assert_close(mean, expected_mean)
    torch.testing.assert_close(variance, expected_variance)


@pytest.mark.parametrize("num_inducing", [3, 10, 40])
def test_low_rank_form_equals_the_full_one(num_inducing: int) -> None:
    """Fewer, as many and more inducing points than the process has dimensions."""
    a_x, a_z, v, u = normal(6, 10), normal(num_inducing, 10, seed=1), normal(50, 10, seed=2), normal(4, num_inducing)
    full = gaussian_conditional(v @ a_x.mT, v @ a_z.mT, u)
    low_rank = low_rank_conditional(a_x, a_z, v, u)
    for expected, got in zip(full, low_rank, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)


def test_low_rank_variance_is_positive_where_the_full_one_is_all_rounding() -> None:
    a_x, a_z, v = normal(20, 10), normal(100, 10, seed=1), normal(100, 10, seed=2)
    _, variance = low_rank_conditional(a_x.float(), a_z.float(), v.float(), normal(3, 100).float())
    assert bool((variance > 0).all())


def test_conditional_on_inducing_inputs_returns_their_values() -> None:
    f_z, u = normal(60, 4), normal(5, 4, seed=1)
    mean, variance = gaussian_conditional(f_z, f_z, u, jitter=1e-10)
    torch.testing.assert_close(mean, u, rtol=1e-6, atol=1e-6)
    assert float(variance.max()) < 1e-8


@pytest.mark.parametrize("form", ["full", "low rank"])
def test_gradients_are_those_of_finite_differences(form: str) -> None:
    if form == "full":
        inputs = [normal(9, 2).requires_grad_(), normal(9, 3, seed=1).requires_grad_(), normal(2, 3).requires_grad_()]
        assert torch.autograd.gradcheck(gaussian_conditional, inputs)
    else:
        shapes = [(2, 3), (5, 3), (8, 3), (2, 5)]  # a_x, a_z, v, u
        inputs = [normal(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
        assert torch.autograd.gradcheck(low_rank_conditional, inputs)


def test_exact_posterior_of_u_reproduces_gp_regression() -> None:
    """p(f(x*) | u) q(u) with q(u) = p(u | y) is the GP's posterior; moments matched exactly, so is the result."""
    x, x_new = torch.linspace(-2.0, 2.0, 8, dtype=torch.float64), torch.tensor([-2.5, 0.1, 1.3], dtype=torch.float64)
    y, noise = torch.sin(2.0 * x), 0.1

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-0.5 * (a[:, None] - b[None]).square())

    both = torch.cat([x_new, x])
    f = with_exact_moments(
        torch.zeros(11, dtype=torch.float64), kernel(both, both) + 1e-9 * torch.eye(11, dtype=torch.float64)
    )
    K, k_new = kernel(x, x), kernel(x_new, x)
    noisy = K + noise * torch.eye(8, dtype=torch.float64)
    u_mean, u_covariance = K @ torch.linalg.solve(noisy, y), K - K @ torch.linalg.solve(noisy, K)
    u = with_exact_moments(u_mean, 0.5 * (u_covariance + u_covariance.mT) + 1e-12 * torch.eye(8, dtype=torch.float64))
    mean, variance = gaussian_conditional(f[:, :3], f[:, 3:], u, jitter=1e-9)

    torch.testing.assert_close(mean.mean(0), k_new @ torch.linalg.solve(noisy, y), rtol=1e-5, atol=1e-5)
    posterior_variance = 1.0 - (k_new @ torch.linalg.solve(noisy, k_new.mT)).diagonal()
    torch.testing.assert_close(variance + mean.var(0), posterior_variance, rtol=1e-4, atol=1e-5)


def test_root_of_a_singular_covariance() -> None:
    v = normal(4, 10)  # four draws in ten dimensions
    covariance = torch.cov(v.mT)
    L = root(covariance)
    torch.testing.assert_close(L @ L.mT, covariance, rtol=1e-5, atol=1e-5)


def test_the_variance_is_that_of_the_jitter_that_was_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factorisation that fails at first needs more jitter than asked for; the variance is proportional to it."""
    first = []

    def fails_twice(matrix: Tensor, jitter: float) -> tuple[Tensor, float]:
        first.append(jitter)
        return cholesky(matrix, 100.0 * jitter)

    shapes = [(2, 3), (5, 3), (8, 3), (2, 5)]
    a_x, a_z, v, u = (normal(*shape, seed=seed) for seed, shape in enumerate(shapes))
    expected = low_rank_conditional(a_x, a_z, v, u, 1e-3)
    monkeypatch.setattr("fsibench.blocks.conditionals.cholesky", fails_twice)
    escalated = low_rank_conditional(a_x, a_z, v, u, 1e-5)
    assert first == [1e-5]
    torch.testing.assert_close(escalated, expected)
