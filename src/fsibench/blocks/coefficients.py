"""q(a) = N(μ, L Lᵀ), the variational coefficients of a Bayesian linear model, with gradients written out.

L is stored below its diagonal, with the log of the diagonal on it: `stored` [S, S]; what is above the diagonal has no meaning.
The process f = m + φᵀa + ν, with ν ~ N(0, w) independent from row to row, has the mean m + φᵀμ and the variance
|φᵀL|² + w under q.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fsibench.blocks.divergences import SMALLEST_ALPHA
from fsibench.blocks.likelihoods import LOG_2PI


def cholesky_factor(stored: Tensor) -> Tensor:
    """L [..., S, S]."""
    return stored.tril(-1) + stored.diagonal(dim1=-2, dim2=-1).exp().diag_embed()


def coefficient_kl(mean: Tensor, stored: Tensor) -> Tensor:
    """KL[N(μ, L Lᵀ) ‖ N(0, I)] = ½ (‖L‖² + ‖μ‖² − S) − Σ log L_ii."""
    return _CoefficientKL.apply(mean, stored)  # type: ignore[no-any-return,no-untyped-call]


def coefficient_energy(
    y: Tensor,
    prior_mean: Tensor,
    features: Tensor,
    mean: Tensor,
    stored: Tensor,
    noise: Tensor,
    alpha: float,
    residual: Tensor | None = None,
) -> Tensor:
    """Σ_n e_α(n), `divergences.alpha_energy` of rows y [B] with m [B], Φ [B, S] and w [B] (`residual`; None: 0).

    With r = y − m − φᵀμ, v = |φᵀL|² + w and t = σ² + αv,

        e_α = −(log t − log σ²)/2α − r²/2t − ½ log 2πσ²,   at α = 0   −½ [log 2πσ² + (r² + v)/σ²]
    """
    return _CoefficientEnergy.apply(y, prior_mean, features, mean, stored, noise, alpha, residual)  # type: ignore[no-any-return,no-untyped-call]


class _CoefficientKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, stored: Tensor) -> Tensor:
        L = cholesky_factor(stored)
        ctx.save_for_backward(mean, L)
        return 0.5 * (L.square().sum() + mean.square().sum() - len(mean)) - stored.diagonal().sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mean, L = ctx.saved_tensors
        return gradients[0] * mean, _through_storage(gradients[0] * L, L, -float(gradients[0]))


class _CoefficientEnergy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        prior_mean: Tensor,
        features: Tensor,
        mean: Tensor,
        stored: Tensor,
        noise: Tensor,
        alpha: float,
        residual: Tensor | None,
    ) -> Tensor:
        L, variance = cholesky_factor(stored), float(noise)
        r = y - torch.addmv(prior_mean, features, mean)  # [B]
        root = features @ L  # [B, S]
        v = root.square().sum(1)
        if residual is not None:
            v += residual
        ctx.save_for_backward(features, mean, L, root, r, v)
        ctx.noise, ctx.alpha, ctx.like = variance, alpha, noise
        constant = 0.5 * len(y) * (LOG_2PI + math.log(variance))
        if alpha < SMALLEST_ALPHA:
            return -(0.5 / variance) * (r @ r + v.sum()) - constant
        # log t − log σ² as log1p: a small v keeps its digits
        return -0.5 * (torch.log1p(v * (alpha / variance)) / alpha + r.square() / (variance + alpha * v)).sum() - constant

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, mean, L, root, r, v = ctx.saved_tensors
        variance, alpha, g = ctx.noise, ctx.alpha, float(gradients[0])
        t = variance + alpha * v if alpha >= SMALLEST_ALPHA else torch.full_like(v, variance)
        slope = r / t  # ∂e/∂(φᵀμ)
        scaled = slope.square()
        of_variance = 0.5 * (alpha * scaled - 1.0 / t)  # ∂e/∂v
        # ∂e/∂σ² = ½ r²/t² − (1/t − 1/σ²)/2α − 1/2σ², and (1/t − 1/σ²)/α = −v/tσ²
        of_noise = 0.5 * (scaled.sum() + (v / t).sum() / variance - len(v) / variance)
        slope = slope * g
        of_root = root * (2.0 * g * of_variance)[:, None]  # [B, S]
        of_features = torch.addmm(torch.outer(slope, mean), of_root, L.mT) if ctx.needs_input_grad[2] else None
        of_stored = _through_storage(features.mT @ of_root, L, 0.0)
        noise_gradient = ctx.like.new_full(ctx.like.shape, float(of_noise) * g)
        return None, slope, of_features, features.mT @ slope, of_stored, noise_gradient, None, None


def _through_storage(of_factor: Tensor, L: Tensor, added: float) -> Tensor:
    """The gradient in `stored`, of that in L: its lower triangle, times L_ii on the diagonal, where `added` is added."""
    of_stored = of_factor.tril()
    of_stored.diagonal().mul_(L.diagonal()).add_(added)
    return of_stored
