"""Linear algebra with positive definite matrices: float64 inside, jitter that grows on failure, cheap gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsibench.errors import Diverged

JITTER = 1e-5
# Jitter is multiplied by ten this often before a matrix counts as hopeless: 1e-5 grows to 10.
ESCALATIONS = 6


def cholesky(matrix: Tensor, jitter: float = JITTER) -> tuple[Tensor, float]:
    """Lower factor L of `matrix` + jitter · I, and the jitter used; raises `Diverged` when none suffices."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    amount = jitter
    for _ in range(ESCALATIONS + 1):
        factor, failures = torch.linalg.cholesky_ex(matrix + amount * identity)
        if not failures.any():
            return factor, amount
        amount = 10.0 * amount if amount > 0.0 else 1e-12 * float(matrix.diagonal(dim1=-2, dim2=-1).mean().abs())
    if not torch.isfinite(matrix).all():
        raise Diverged("a covariance matrix is not finite")
    raise Diverged(f"a covariance matrix is not positive definite, even with {amount / 10.0:g} added to its diagonal")


def solve_positive_definite(matrix: Tensor, right: Tensor, jitter: float = JITTER) -> tuple[Tensor, float]:
    """(K + ε I)⁻¹ R for symmetric K [M, M] and R [M, C], in the dtype given (use float64), and the jitter ε it took.

    Its gradient needs one further solve and no derivative of a Cholesky factor:
    with G = K⁻¹ R, ∂R = K⁻¹ ∂G and ∂K = −∂R Gᵀ.
    """
    factor, amount = cholesky(matrix.detach(), jitter)
    return _SolvePositiveDefinite.apply(matrix, right, factor), amount  # type: ignore[no-untyped-call]


class _SolvePositiveDefinite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, right: Tensor, factor: Tensor) -> Tensor:
        solution = torch.cholesky_solve(right, factor)
        ctx.save_for_backward(factor, solution)
        return solution

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        factor, solution = ctx.saved_tensors
        right_gradient = torch.cholesky_solve(gradients[0], factor)
        return -right_gradient @ solution.mT, right_gradient, None


def gram(features: Tensor) -> Tensor:
    """ΦΦᵀ [n, n] in float64, for Φ [n, S] of any precision.

    A small noise variance needs the digits of the product, its gradient (G + Gᵀ)Φ does not: that is one product in the
    precision of Φ, where autograd would take two in float64.
    """
    return _Gram.apply(features)  # type: ignore[no-any-return,no-untyped-call]


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        ctx.save_for_backward(features)
        exact = features.double()
        return exact @ exact.mT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (features,) = ctx.saved_tensors
        gradient: Tensor = (gradients[0] + gradients[0].mT).to(features.dtype) @ features
        return gradient
