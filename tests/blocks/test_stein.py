"""The spectral Stein gradient estimator against its definition and against known scores."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fsibench.blocks.kernels import rbf
from fsibench.blocks.stein import median_width, median_widths, spectral_score, whitened_score


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(samples: Tensor, at: Tensor, num_pairs: int, widths: Tensor) -> Tensor:
    """Σ_j β_j ψ_j(x) with ψ_j(x) = √M/λ_j Σ_m u_jm k(x, x_m) and β_j = −1/M Σ_m ∇ψ_j(x_m), gradients by autograd."""
    M = len(samples)
    U: Tensor
    eigenvalues, U = torch.linalg.eigh(rbf(samples, samples, widths))
    lam: Tensor = eigenvalues.flip(0)[:num_pairs]
    U = U.flip(1)[:, :num_pairs]

    def psi(x: Tensor) -> Tensor:
        return math.sqrt(M) * rbf(x, samples, widths) @ U / lam  # [M', J]

    points = samples.clone().requires_grad_()
    values = psi(points).sum(0)  # rows do not interact
    beta: Tensor = torch.stack([-torch.autograd.grad(value, points, retain_graph=True)[0].mean(0) for value in values])
    return psi(at) @ beta


def kept_pairs(samples: Tensor, widths: Tensor, explained: float) -> int:
    eigenvalues = torch.linalg.eigvalsh(rbf(samples, samples, widths)).flip(0)
    return max(1, int((eigenvalues.cumsum(0) / eigenvalues.sum() < explained).sum()))


def smooth_gaussian(d: int, num_draws: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draws of a smooth function at d points of [−1, 1], length scale 0.5, nugget 0.01, and their exact scores."""
    x = torch.linspace(-1.0, 1.0, d, dtype=torch.float64)[:, None]
    covariance = rbf(x, x, 0.5) + 0.01 * torch.eye(d, dtype=torch.float64)
    draws = normal(num_draws, d, seed=seed) @ torch.linalg.cholesky(covariance).mT
    return draws, -torch.linalg.solve(covariance, draws.mT).mT


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))


@pytest.mark.parametrize("where", ["at the draws", "elsewhere"])
def test_the_matrix_form_equals_the_definition(where: str) -> None:
    samples = normal(40, 3)
    at = samples if where == "at the draws" else normal(15, 3, seed=1)
    widths = median_widths(samples)
    pairs = kept_pairs(samples, widths, 0.9)
    estimate = spectral_score(samples, None if where == "at the draws" else at, 0.9, widths)
    assert estimate.numpy() == pytest.approx(by_definition(samples, at, pairs, widths).numpy(), abs=1e-9)


def test_the_score_of_a_standard_normal_is_found_from_a_hundred_draws() -> None:
    x = torch.linspace(-2.0, 2.0, 41, dtype=torch.float64)[:, None]

    def errors(num_pairs: int) -> Tensor:
        estimates = []
        for seed in range(20):
            samples = normal(100, 1, seed=seed)
            estimates.append(spectral_score(samples, x, widths=median_width(samples), num_pairs=num_pairs) + x)
        return torch.stack(estimates)  # [20, 41, 1]

    # Over twenty sets of draws six pairs have a bias of 0.16, and one set is off by 0.53 on average; four pairs, by 0.37.
    # The score itself is 1.02 on average.
    assert errors(6).mean(0).abs().mean().item() < 0.3
    assert errors(4).abs().mean().item() < 0.4
    assert errors(4).abs().mean().item() < errors(6).abs().mean().item()


def test_uncorrelated_coordinates_are_estimated_well() -> None:
    samples = normal(100, 5)
    assert cosine(spectral_score(samples), -samples) > 0.75


@pytest.mark.parametrize("d", [15, 25, 55, 105])
def test_whitening_recovers_the_scores_of_smooth_functions(d: int) -> None:
    cosines = []
    for seed in range(5):
        draws, exact = smooth_gaussian(d, 100, seed)
        cosines.append(cosine(whitened_score(draws), exact))
    assert sum(cosines) / len(cosines) > 0.8


def test_without_whitening_most_of_the_score_of_smooth_functions_is_missed() -> None:
    draws, exact = smooth_gaussian(25, 100)
    faithful = spectral_score(draws)
    assert cosine(faithful, exact) < 0.6
    assert float(faithful.norm() / exact.norm()) < 0.4


def test_whitened_scores_follow_affine_maps() -> None:
    # x ↦ A x + b turns scores into A⁻ᵀ s; exact without shrinkage.
    draws = normal(80, 4)
    A, b = normal(4, 4, seed=1), normal(4, seed=2)
    mapped = whitened_score(draws @ A.mT + b, shrinkage=0.0)
    expected = whitened_score(draws, shrinkage=0.0) @ torch.linalg.inv(A)
    assert cosine(mapped, expected) == pytest.approx(1.0, abs=1e-6)


def test_at_least_one_pair_is_kept_when_draws_coincide() -> None:
    samples = torch.ones(20, 3, dtype=torch.float64)
    assert bool(torch.isfinite(spectral_score(samples)).all())
    assert bool(torch.isfinite(whitened_score(samples)).all())
