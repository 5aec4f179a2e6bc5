"""Kernels, evidence and its maximisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import rosen, rosen_der
from sklearn.gaussian_process.kernels import RBF

from fsibench.blocks.bfgs import minimise
from fsibench.blocks.kernels import (
    Bounds,
    GaussianProcess,
    Start,
    median_distances,
    negative_log_evidence,
    rbf,
    squared_distances,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def process(num_inputs: int = 2) -> GaussianProcess:
    return GaussianProcess(
        torch.linspace(0.7, 1.5, num_inputs, dtype=torch.float64),
        torch.tensor(1.3, dtype=torch.float64),
        torch.tensor(0.1, dtype=torch.float64),
    )


def test_rbf_equals_scikit_learn() -> None:
    x1, x2, lengthscales = normal(8, 3), normal(5, 3, seed=1), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    expected = 1.7 * RBF(lengthscales.numpy())(x1.numpy(), x2.numpy())
    assert rbf(x1, x2, lengthscales, 1.7).numpy() == pytest.approx(expected, abs=1e-12)


def test_distances_far_from_the_origin_lose_no_digits() -> None:
    x = normal(6, 2)
    assert squared_distances(x + 1e5, x + 1e5).numpy() == pytest.approx(squared_distances(x, x).numpy(), abs=1e-9)


def test_median_distance_of_a_constant_column_is_one_and_of_a_binary_one_is_not_zero() -> None:
    binary = (torch.arange(40) % 10 == 0).double()
    x = torch.stack([torch.zeros(40, dtype=torch.float64), binary, normal(40)], dim=1)
    first, second, third = median_distances(x).tolist()
    assert first == 1.0
    assert second > 0.1
    assert third == pytest.approx(np.median(np.abs(np.subtract.outer(x[:, 2], x[:, 2])[np.triu_indices(40, 1)])), 0.02)


def test_score_is_the_gradient_of_the_log_density() -> None:
    x, f = normal(6, 2), normal(3, 6, seed=2).requires_grad_()
    (gradient,) = torch.autograd.grad(process().log_prob(f, x, 0.01).sum(), f)
    assert process().score(f.detach(), x, 0.01).numpy() == pytest.approx(gradient.numpy(), abs=1e-8)


def test_the_surrogate_has_the_gradient_of_the_evidence() -> None:
    x, y = normal(15, 2), normal(15, seed=3)
    bounds = Bounds.standard(2, x.device)
    point = bounds.unconstrained(Start(torch.tensor([0.7, 1.5]), 1.3, 0.1)).requires_grad_()
    value, surrogate = negative_log_evidence(bounds.process(point), x, y)
    (cheap,) = torch.autograd.grad(surrogate, point)
    evidence = -bounds.process(point).log_evidence(x, y)
    (exact,) = torch.autograd.grad(evidence, point)
    assert value == pytest.approx(evidence.item(), abs=1e-10)
    assert cheap.numpy() == pytest.approx(exact.numpy(), rel=1e-7, abs=1e-9)


def test_draws_have_the_kernel_as_covariance() -> None:
    x = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)[:, None].expand(5, 2)
    draws = process().draw(x, 100_000, torch.Generator().manual_seed(0))
    assert torch.cov(draws.T).numpy() == pytest.approx(process().covariance(x, x).numpy(), abs=0.03)


def test_bfgs_finds_the_minimum_of_rosenbrocks_valley() -> None:
    def objective(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(rosen(x.numpy())), torch.from_numpy(rosen_der(x.numpy()))

    *_, (x, value) = minimise(objective, torch.full((6,), -1.0, dtype=torch.float64), 300)
    assert value < 1e-12
    assert x.numpy() == pytest.approx(1.0, abs=1e-5)


def test_bfgs_steps_around_values_that_are_not_finite() -> None:
    def objective(x: torch.Tensor) -> tuple[float, torch.Tensor]:  # x − log x, undefined below zero
        return (float((x - x.log()).sum()), 1.0 - 1.0 / x) if float(x.min()) > 0 else (float("nan"), x * float("nan"))

    *_, (x, _) = minimise(objective, torch.tensor([30.0, 0.01], dtype=torch.float64), 100)
    assert x.numpy() == pytest.approx(1.0, abs=1e-6)
