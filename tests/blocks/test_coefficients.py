"""Coefficients of a linear model: terms and hand-written gradients against autograd on the plain formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsibench.blocks.coefficients import cholesky_factor, coefficient_energy, coefficient_kl
from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.gaussian import standard_kl

F64 = torch.float64


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def close(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    gradients = torch.autograd.grad(-3.0 * found, inputs), torch.autograd.grad(-3.0 * expected, inputs)
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours - theirs).norm().item() < 1e-12 * theirs.norm().item()


def test_the_kl_is_that_of_the_factor() -> None:
    inputs = [normal(4, seed=0).requires_grad_(), (0.5 * normal(4, 4, seed=1)).requires_grad_()]
    close(coefficient_kl(*inputs), standard_kl(inputs[0], cholesky_factor(inputs[1])), inputs)


def test_the_kl_vanishes_at_the_prior() -> None:
    assert coefficient_kl(torch.zeros(5), torch.zeros(5, 5)).item() == 0.0


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("with_residual", [False, True])
def test_the_energy_is_that_of_the_marginals(alpha: float, with_residual: bool) -> None:
    y, w = normal(9, seed=0), normal(9, seed=1).square()
    m, features, mean = normal(9, seed=2), normal(9, 4, seed=3), normal(4, seed=4)
    stored, noise = 0.5 * normal(4, 4, seed=5), torch.tensor(0.2, dtype=F64)
    inputs = [tensor.requires_grad_() for tensor in (m, features, mean, stored, noise)]
    variance = (features @ cholesky_factor(stored)).square().sum(1) + (w if with_residual else 0.0)
    expected = alpha_energy(y, (m + features @ mean)[None], variance, noise, alpha).sum()
    found = coefficient_energy(y, m, features, mean, stored, noise, alpha, w if with_residual else None)
    close(found, expected, inputs)


def test_what_is_stored_above_the_diagonal_has_no_meaning() -> None:
    stored = normal(4, 4, seed=0)
    assert torch.equal(cholesky_factor(stored), cholesky_factor(stored.tril()))
    assert torch.equal(coefficient_kl(normal(4, seed=1), stored), coefficient_kl(normal(4, seed=1), stored.tril()))
