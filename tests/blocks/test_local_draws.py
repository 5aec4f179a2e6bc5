"""Local reparameterisation: against exact moments, and its written-out gradient against finite differences."""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.blocks.local_draws import local_draws
from fsibench.blocks.networks import num_weights

F64 = torch.float64
WIDTHS = (3, 5, 4, 1)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=stream(seed), dtype=F64)


def test_a_single_layer_has_the_exact_moments() -> None:
    x, means, log_variances, bias = normal(3, 4), normal(4, seed=1), normal(4, seed=2) - 2.0, normal(1, seed=3)
    drawn = local_draws(x, means, log_variances, bias, (4, 1), 200_000, stream(4))  # [S, 3]
    exact_mean, exact_variance = x @ means + bias, x.square() @ log_variances.exp()
    error = float(exact_variance.max().sqrt()) / 200_000**0.5
    torch.testing.assert_close(drawn.mean(0), exact_mean, rtol=0.0, atol=5.0 * error)
    torch.testing.assert_close(drawn.var(0), exact_variance, rtol=0.02, atol=0.0)
    correlations = torch.corrcoef(drawn.mT) - torch.eye(3, dtype=F64)
    assert float(correlations.abs().max()) < 0.02  # weights of their own for each row


def test_gradients_are_those_of_finite_differences() -> None:
    P = num_weights(WIDTHS)
    leaves = [tensor.requires_grad_() for tensor in (normal(P), normal(P, seed=1) - 2.0, normal(10, seed=2))]

    def outputs(means: Tensor, log_variances: Tensor, biases: Tensor) -> Tensor:
        return local_draws(normal(4, 3, seed=3), means, log_variances, biases, WIDTHS, 3, stream(4))

    assert torch.autograd.gradcheck(outputs, leaves)


def test_rows_of_zeros_are_finite_in_value_and_gradient() -> None:
    P = num_weights(WIDTHS)
    log_variances = torch.zeros(P, requires_grad=True)
    local_draws(torch.zeros(3, 3), torch.ones(P), log_variances, torch.zeros(10), WIDTHS, 5, stream()).sum().backward()
    assert log_variances.grad is not None
    assert bool(torch.isfinite(log_variances.grad).all())
