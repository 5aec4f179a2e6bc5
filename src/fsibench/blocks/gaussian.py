"""Gaussian algebra that several methods need: log densities, divergences, Bayesian linear regression on features.

Everything here is exact linear algebra on the tensors it is given; callers choose float64 where it matters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.blocks.likelihoods import LOG_2PI
from fsibench.blocks.linalg import cholesky, gram


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
    """log N(r | 0, Φ Φᵀ + σ² I) in O(n S min(n, S)) for r [n], Φ [n, S] and the noise variance σ²; in float64.

    With fewer features than rows, and C Cᵀ = I + ΦᵀΦ/σ² and c = C⁻¹ Φᵀr/σ² (matrix inversion and determinant lemmas):

        −½ [ n log 2πσ² + 2 Σ log C_ii + rᵀr/σ² − cᵀc ]
    """
    n, residual, noise = residual.shape[0], residual.double(), noise.double()
    if n <= features.shape[1]:
        identity = torch.eye(n, dtype=torch.float64, device=features.device)
        return multivariate_log_density(residual, factor(gram(features) + noise * identity))
    identity = torch.eye(features.shape[1], dtype=torch.float64, device=features.device)
    C = factor(identity + gram(features.mT) / noise)  # [S, S]
    projection = features.mT.double() @ residual / noise  # [S]
    c: Tensor = torch.linalg.solve_triangular(C, projection[:, None], upper=False)[:, 0]  # [S]
    fit = residual.square().sum() / noise - c.square().sum()
    return -0.5 * (n * (LOG_2PI + noise.log()) + 2.0 * C.diagonal().log().sum() + fit)


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


def standard_kl(mean: Tensor, L: Tensor) -> Tensor:
    """KL[N(μ, L Lᵀ) ‖ N(0, I)] = ½ (‖L‖² + ‖μ‖² − S) − Σ log L_ii, for a lower-triangular L with positive diagonal."""
    return 0.5 * (L.square().sum() + mean.square().sum() - len(mean)) - L.diagonal().log().sum()
