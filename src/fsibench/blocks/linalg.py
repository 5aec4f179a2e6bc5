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
    amount = jitter
    for _ in range(ESCALATIONS + 1):
        shifted = matrix if amount == 0.0 else matrix.clone()
        if amount != 0.0:
            shifted.diagonal(dim1=-2, dim2=-1).add_(amount)
        factor, failures = torch.linalg.cholesky_ex(shifted)
        if not failures.any():
            return factor, amount
        amount = 10.0 * amount if amount > 0.0 else 1e-12 * float(matrix.diagonal(dim1=-2, dim2=-1).mean().abs())
    if not torch.isfinite(matrix).all():
        raise Diverged("a covariance matrix is not finite")
    raise Diverged(f"a covariance matrix is not positive definite, even with {amount / 10.0:g} added to its diagonal")


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


def lower_gram(features: Tensor, num_blocks: int = 3) -> Tensor:
    """The lower triangle of ΦΦᵀ [n, n] in float64, and whatever the blocks on the diagonal hold above it.

    A Cholesky factor reads no more. Of the rest half is not computed: two thirds of the products with three blocks.
    """
    exact = features.double()
    n = len(exact)
    product = exact.new_zeros(n, n)
    size = -(-n // num_blocks)
    for start in range(0, n, size):
        end = min(start + size, n)
        torch.mm(exact[start:end], exact[:end].mT, out=product[start:end, :end])
    return product


def add_to_diagonal(matrix: Tensor, amount: float) -> Tensor:
    """`matrix` + amount · I, in place."""
    matrix.diagonal().add_(amount)
    return matrix
