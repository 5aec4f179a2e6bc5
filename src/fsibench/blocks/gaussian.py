"""Gaussian algebra that several methods need: log densities, divergences, Bayesian linear regression on features.

Everything here is exact linear algebra on the tensors it is given; callers choose float64 where it matters.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fsibench.blocks.likelihoods import LOG_2PI
from fsibench.blocks.linalg import add_to_diagonal, cholesky, lower_gram


def factor(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of the matrix itself; only when that fails, with the smallest jitter that works."""
    return cholesky(matrix, 0.0)[0]


def multivariate_log_density(residual: Tensor, L: Tensor) -> Tensor:
    """log N(r | 0, L Lᵀ) for residuals r of shape [..., d] and one Cholesky factor L [d, d]."""
    flat = residual.reshape(-1, residual.shape[-1])  # [R, d]
    whitened: Tensor = torch.linalg.solve_triangular(L, flat.T, upper=False)  # [d, R]
    log_density = -0.5 * whitened.square().sum(0) - L.diagonal().log().sum() - 0.5 * L.shape[-1] * LOG_2PI
    return log_density.reshape(residual.shape[:-1])


def low_rank_log_evidence(residual: Tensor, features: Tensor, noise: Tensor) -> Tensor:
    """log N(r | 0, Σ), Σ = Φ Φᵀ + σ² I, in O(n S min(n, S)) for r [n], Φ [n, S] and the noise variance σ²; in float64.

    With fewer features than rows, and C Cᵀ = A = I + ΦᵀΦ/σ² and c = C⁻¹ Φᵀr/σ² (matrix inversion and determinant lemmas):

        −½ [ n log 2πσ² + 2 Σ log C_ii + rᵀr/σ² − cᵀc ]

    Its gradient needs one inverse and no derivative of a Cholesky factor: with b = Σ⁻¹r,

        ∂r = −b,   ∂Φ = b bᵀΦ − Σ⁻¹Φ,   ∂σ² = ½ (bᵀb − tr Σ⁻¹),   and where S < n   Σ⁻¹Φ = ΦA⁻¹/σ².
    """
    return _LowRankLogEvidence.apply(residual, features, noise)  # type: ignore[no-any-return,no-untyped-call]


class _LowRankLogEvidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, features: Tensor, noise: Tensor) -> Tensor:
        (n, S), r, exact, variance = features.shape, residual.double(), features.double(), float(noise)
        ctx.by_rows = n <= S
        if ctx.by_rows:
            C = factor(add_to_diagonal(lower_gram(exact), variance))  # C Cᵀ = Σ
            b = torch.cholesky_solve(r[:, None], C)[:, 0]
            projection = exact.mT @ b
            log_determinant = 2.0 * C.diagonal().log().sum()
        else:
            C = factor(add_to_diagonal(lower_gram(exact.mT) / variance, 1.0))  # [S, S]
            projection = torch.cholesky_solve((exact.mT @ r)[:, None] / variance, C)[:, 0]  # A⁻¹Φᵀr/σ² = Φᵀb
            b = (r - exact @ projection) / variance
            log_determinant = 2.0 * C.diagonal().log().sum() + n * math.log(variance)
        # Φᵀb cancels where Φ explains r: float64
        ctx.save_for_backward(features, C, b, projection)
        ctx.noise, ctx.dtypes = variance, (residual.dtype, noise.dtype)
        return -0.5 * (n * LOG_2PI + log_determinant + r @ b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, C, b, projection = ctx.saved_tensors
        inverse, g = torch.cholesky_inverse(C), float(gradients[0])
        if ctx.by_rows:
            trace = inverse.diagonal().sum()
            # the products need no more digits than Φ has
            applied = inverse.to(features.dtype) @ features  # Σ⁻¹Φ
        else:
            trace = (len(b) - len(C) + inverse.diagonal().sum()) / ctx.noise
            applied = features @ (inverse / ctx.noise).to(features.dtype)
        of_features = torch.outer(b.to(features.dtype), projection.to(features.dtype)).sub_(applied).mul_(g)
        of_noise = (0.5 * g) * (b @ b - trace)
        return (-g * b).to(ctx.dtypes[0]), of_features, of_noise.to(ctx.dtypes[1])


def linear_posterior(residual: Tensor, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior of a ~ N(0, I) given r = Φ a + N(0, σ²): its mean [S] and the factor C of its precision C Cᵀ [S, S]."""
    return linear_posterior_from_moments(features.T @ features, features.T @ residual, noise)


def linear_posterior_from_moments(gram: Tensor, projection: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """`linear_posterior` from ΦᵀΦ [S, S] and Φᵀr [S], which can be summed over chunks of rows."""
    identity = torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)
    C = factor(identity + gram / noise)
    mean = torch.cholesky_solve((projection / noise)[:, None], C)[:, 0]
    return mean, C


def gaussian_kl(mean_q: Tensor, L_q: Tensor, mean_p: Tensor, L_p: Tensor) -> Tensor:
    """KL[N(m_q, L_q L_qᵀ) ‖ N(m_p, L_p L_pᵀ)] for vectors [d] and Cholesky factors [d, d]."""
    whitened_mean: Tensor = torch.linalg.solve_triangular(L_p, (mean_q - mean_p)[:, None], upper=False)
    whitened_factor: Tensor = torch.linalg.solve_triangular(L_p, L_q, upper=False)
    log_determinants = L_p.diagonal().log().sum() - L_q.diagonal().log().sum()
    quadratic = whitened_mean.square().sum() + whitened_factor.square().sum() - mean_q.shape[0]
    return 0.5 * quadratic + log_determinants


def moment_kl(mean_q: Tensor, features_q: Tensor, mean_p: Tensor, L_p: Tensor, nugget: float) -> Tensor:
    """KL[N(m_q, K_q) ‖ N(m_p, K_p)] with K_q = ΦΦᵀ + εI and K_p = L_p L_pᵀ, in float64, for m [d] and Φ [d, S].

    Differentiable in m_q and Φ, again without a derivative of a Cholesky factor:

        ∂m_q = K_p⁻¹(m_q − m_p),   ∂Φ = (K_p⁻¹ − K_q⁻¹)Φ
    """
    return _MomentKL.apply(mean_q, features_q, mean_p, L_p, nugget)  # type: ignore[no-any-return,no-untyped-call]


class _MomentKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean_q: Tensor, features_q: Tensor, mean_p: Tensor, L_p: Tensor, nugget: float
    ) -> Tensor:
        L_q = factor(add_to_diagonal(lower_gram(features_q), nugget))
        difference = mean_q.double() - mean_p.double()
        weighted = torch.cholesky_solve(difference[:, None], L_p)[:, 0]  # K_p⁻¹(m_q − m_p)
        ctx.save_for_backward(features_q, L_q, L_p, weighted)
        ctx.dtype = mean_q.dtype
        whitened: Tensor = torch.linalg.solve_triangular(L_p, L_q, upper=False)
        log_determinants = L_p.diagonal().log().sum() - L_q.diagonal().log().sum()
        return 0.5 * (whitened.square().sum() + difference @ weighted - len(L_p)) + log_determinants

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, L_q, L_p, weighted = ctx.saved_tensors
        g = float(gradients[0])
        weights = (torch.cholesky_inverse(L_p) - torch.cholesky_inverse(L_q)).mul_(g)
        return (g * weighted).to(ctx.dtype), weights.to(features.dtype) @ features, None, None, None


def standard_kl(mean: Tensor, L: Tensor) -> Tensor:
    """KL[N(μ, L Lᵀ) ‖ N(0, I)] = ½ (‖L‖² + ‖μ‖² − S) − Σ log L_ii, for a lower-triangular L with positive diagonal."""
    return 0.5 * (L.square().sum() + mean.square().sum() - len(mean)) - L.diagonal().log().sum()
