"""Gaussian algebra against dense formulas and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from fsibench.blocks.gaussian import (
    factor,
    gaussian_kl,
    linear_posterior,
    low_rank_log_evidence,
    moment_kl,
    multivariate_log_density,
)
from fsibench.errors import Diverged


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive_definite(size: int, seed: int = 0) -> torch.Tensor:
    root = normal(size, size + 2, seed=seed)
    return root @ root.T / size


@pytest.mark.parametrize("num_features", [7, 30, 80])
def test_low_rank_evidence_equals_the_dense_density_to_ten_digits(num_features: int) -> None:
    residual, features, noise = normal(30), normal(30, num_features, seed=1), torch.tensor(0.04, dtype=torch.float64)
    covariance = (features @ features.T).numpy() + 0.04 * np.eye(30)
    dense = multivariate_normal(np.zeros(30), covariance).logpdf(residual.numpy())
    assert low_rank_log_evidence(residual, features, noise).item() == pytest.approx(dense, abs=1e-10)


@pytest.mark.parametrize("num_features", [7, 30, 80])
def test_the_gradient_of_the_evidence_is_that_of_the_dense_density(num_features: int) -> None:
    residual, features = normal(30).requires_grad_(), normal(30, num_features, seed=1).requires_grad_()
    noise = torch.tensor(0.04, dtype=torch.float64, requires_grad=True)
    Sigma = features @ features.T + noise * torch.eye(30, dtype=torch.float64)
    dense = torch.distributions.MultivariateNormal(torch.zeros_like(residual), Sigma).log_prob(residual)
    expected = torch.autograd.grad(3.0 * dense, [residual, features, noise])
    found = torch.autograd.grad(3.0 * low_rank_log_evidence(residual, features, noise), [residual, features, noise])
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm().item() < 1e-12 * theirs.norm().item()


def test_float32_features_get_a_gradient_of_their_own_precision() -> None:
    residual, features, noise = normal(40).float(), normal(40, 9, seed=1).float(), torch.tensor(1e-4)
    inputs = [tensor.requires_grad_() for tensor in (residual, features, noise)]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    found = torch.autograd.grad(low_rank_log_evidence(*inputs), inputs)
    expected = torch.autograd.grad(low_rank_log_evidence(*exact), exact)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm().item() < 1e-5 * theirs.norm().item()


def test_the_kl_from_moments_and_its_gradient_are_those_of_the_factors() -> None:
    mean_q, features, mean_p = normal(6).requires_grad_(), normal(6, 4, seed=1).requires_grad_(), normal(6, seed=2)
    L_p = factor(positive_definite(6, seed=3))
    K_q = features @ features.T + 0.01 * torch.eye(6, dtype=torch.float64)
    expected = gaussian_kl(mean_q, torch.linalg.cholesky(K_q), mean_p, L_p)
    found = moment_kl(mean_q, features, mean_p, L_p, 0.01)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    inputs = [mean_q, features]
    gradients = torch.autograd.grad(2.0 * found, inputs), torch.autograd.grad(2.0 * expected, inputs)
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours - theirs).norm().item() < 1e-12 * theirs.norm().item()


def test_linear_posterior_equals_conditioning_the_joint_gaussian() -> None:
    residual, features, noise = normal(20), normal(20, 5, seed=1), torch.tensor(0.3, dtype=torch.float64)
    mean, C = linear_posterior(residual, features, noise)
    gain = features.T @ torch.linalg.inv(features @ features.T + 0.3 * torch.eye(20, dtype=torch.float64))
    assert mean.numpy() == pytest.approx((gain @ residual).numpy(), abs=1e-10)
    covariance = torch.eye(5, dtype=torch.float64) - gain @ features
    assert torch.cholesky_inverse(C).numpy() == pytest.approx(covariance.numpy(), abs=1e-10)


def test_multivariate_density_equals_scipy() -> None:
    covariance, residual = positive_definite(6), normal(4, 6, seed=3)
    expected = multivariate_normal(np.zeros(6), covariance.numpy()).logpdf(residual.numpy())
    assert multivariate_log_density(residual, factor(covariance)).numpy() == pytest.approx(expected, abs=1e-10)


def test_gaussian_kl_is_the_mean_log_ratio() -> None:
    mean_q, mean_p = normal(3, seed=1), normal(3, seed=2)
    L_q, L_p = factor(positive_definite(3, seed=3)), factor(positive_definite(3, seed=4))
    draws = mean_q + normal(400_000, 3, seed=5) @ L_q.T
    ratio = multivariate_log_density(draws - mean_q, L_q) - multivariate_log_density(draws - mean_p, L_p)
    standard_error = ratio.std().item() / len(ratio) ** 0.5
    assert gaussian_kl(mean_q, L_q, mean_p, L_p).item() == pytest.approx(ratio.mean().item(), abs=4 * standard_error)
    assert gaussian_kl(mean_q, L_q, mean_q, L_q).item() == pytest.approx(0.0, abs=1e-12)


def test_a_singular_matrix_gets_the_smallest_jitter_that_works() -> None:
    direction = normal(5, 1)
    singular = direction @ direction.T
    L = factor(singular)
    assert (L @ L.T - singular).abs().max().item() < 1e-6


def test_a_definite_matrix_gets_no_jitter() -> None:
    matrix = positive_definite(5)
    assert torch.equal(factor(matrix), torch.linalg.cholesky(matrix))


def test_a_matrix_that_is_not_finite_counts_as_divergence() -> None:
    with pytest.raises(Diverged):
        factor(torch.full((3, 3), float("nan")))
