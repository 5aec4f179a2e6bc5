"""Gaussian conditionals from draws of a process: p(f(x) | f(z) = u) with sample means and covariances.

With m the sample mean and K the sample covariance (divisor S − 1) of S functions,

    E[f(x) | u]   = m_x + K_xz (K_zz + εI)⁻¹ (u − m_z)
    Var[f(x) | u] = k_xx − K_xz (K_zz + εI)⁻¹ K_zx

Networks are float32; these few lines are float64 and return to the dtype of their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.linalg import JITTER, cholesky, solve_positive_definite


@dataclass(frozen=True)
class Conditional:
    """Moments of f(x) given each row of u, and the functions at z that they came from."""

    mean: Tensor  # [Q, N]
    variance: Tensor  # [N]
    f_z: Tensor  # [S, M]


def gaussian_conditional(f_x: Tensor, f_z: Tensor, u: Tensor, jitter: float = JITTER) -> tuple[Tensor, Tensor]:
    """Functions f_x [S, N] and f_z [S, M], values u [Q, M] -> mean [Q, N], variance [N]."""
    degrees = f_z.shape[0] - 1
    m_x, m_z = f_x.mean(0), f_z.mean(0)
    d_x, d_z = (f_x - m_x).double(), (f_z - m_z).double()
    K_zx = d_z.mT @ d_x / degrees  # [M, N]
    K_zz = d_z.mT @ d_z / degrees  # [M, M]
    weights, _ = solve_positive_definite(K_zz, K_zx, jitter)  # (K_zz + εI)⁻¹ K_zx, [M, N]
    # k_xx − Σ_j K_zx[j] · weights[j]
    variance = d_x.square().sum(0) / degrees - (K_zx * weights).sum(0)
    mean = m_x + (u - m_z) @ weights.to(u.dtype)
    return mean, variance.clamp(min=0.0).to(u.dtype)


def low_rank_conditional(
    a_x: Tensor, a_z: Tensor, v: Tensor, u: Tensor, jitter: float = JITTER
) -> tuple[Tensor, Tensor]:
    """The same for f_s(x) = a(x)ᵀ v_s: a_x [N, R], a_z [M, R], v [S, R], u [Q, M], in R × R algebra.

    With C = L Lᵀ the sample covariance of v and B = a_z L, the push-through identity turns the M × M inverse around:

        E[f(x) | u]   = a_xᵀ v̄ + a_xᵀ L (BᵀB + εI)⁻¹ Bᵀ (u − m_z)
        Var[f(x) | u] = ε a_xᵀ L (BᵀB + εI)⁻¹ Lᵀ a_x

    The variance is positive by construction.
    """
    v_mean = v.mean(0)
    d = (v - v_mean).double()
    L = root(d.mT @ d / (v.shape[0] - 1))  # [R, R]
    b_x, b_z = a_x.double() @ L, a_z.double() @ L  # [N, R], [M, R]
    # ε is the jitter that was needed, which may be more than the one asked for
    weights, epsilon = solve_positive_definite(b_z.mT @ b_z, b_x.mT, jitter)  # [R, N]
    variance = epsilon * (b_x.mT * weights).sum(0)
    mean = a_x @ v_mean + (u - a_z @ v_mean) @ (b_z @ weights).to(u.dtype)
    return mean, variance.to(u.dtype)


def root(covariance: Tensor) -> Tensor:
    """L with L Lᵀ = C, for a covariance that may be singular (fewer draws than dimensions, a dead unit)."""
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    tiny = 1e-12 * float(covariance.detach().diagonal().mean()) + 1e-30
    factor, failure = torch.linalg.cholesky_ex(covariance + tiny * identity)
    if failure.item() != 0:
        _, amount = cholesky(covariance.detach(), 10.0 * tiny)
        factor, _ = torch.linalg.cholesky_ex(covariance + amount * identity)
    lower: Tensor = factor
    return lower
