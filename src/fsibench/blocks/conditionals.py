"""Gaussian conditionals from draws of a process: p(f(x) | f(z) = u) with sample means and covariances.

With m the sample mean and K the sample covariance (divisor S − 1) of S functions,

    E[f(x) | u]   = m_x + K_xz (K_zz + εI)⁻¹ (u − m_z)
    Var[f(x) | u] = k_xx − K_xz (K_zz + εI)⁻¹ K_zx

Networks are float32; these few lines are float64 and return to the dtype of their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fsibench.blocks.draws import normal
from fsibench.blocks.linalg import JITTER, cholesky


@dataclass(frozen=True)
class Conditional:
    """Moments of f(x) given each row of u, and the functions at z that they came from."""

    mean: Tensor  # [Q, N]
    variance: Tensor  # [N]
    f_z: Tensor  # [S, M]


def gaussian_conditional(f_x: Tensor, f_z: Tensor, u: Tensor, jitter: float = JITTER) -> tuple[Tensor, Tensor]:
    """Functions f_x [S, N] and f_z [S, M], values u [Q, M] -> mean [Q, N], variance [N]."""
    return _GaussianConditional.apply(f_x, f_z, u, jitter)  # type: ignore[no-any-return,no-untyped-call]


class _GaussianConditional(torch.autograd.Function):
    """The gradient needs one further solve. With A = (K_zz + εI)⁻¹ K_zx, μ and w the mean and variance,

        R = (K_zz + εI)⁻¹ (u − m_z)ᵀ ∂μ,   ∂K_zx = R − 2A ∘ ∂w,   ∂K_zz = −(R − A ∘ ∂w) Aᵀ.

    Deviations from the mean sum to zero over the functions, and so do gradients that are combinations of them: that of
    the mean function needs no correction.
    """

    @staticmethod
    def forward(ctx: Any, f_x: Tensor, f_z: Tensor, u: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
        degrees = len(f_z) - 1
        m_x, m_z = f_x.mean(0), f_z.mean(0)
        d_x, d_z = (f_x - m_x).double(), (f_z - m_z).double()
        K_zx = (d_z.mT @ d_x).div_(degrees)  # [M, N]
        factor, _ = cholesky((d_z.mT @ d_z).div_(degrees), jitter)  # [M, M]
        A = torch.cholesky_solve(K_zx, factor)  # [M, N]
        # k_xx − Σ_j K_zx[j] · A[j]
        variance = (d_x.square().sum(0).div_(degrees) - (K_zx * A).sum(0)).clamp_(min=0.0)
        deviations, in_dtype = u - m_z, A.to(u.dtype)
        ctx.save_for_backward(d_x, d_z, deviations, factor, A, in_dtype, variance)
        return torch.addmm(m_x, deviations, in_dtype), variance.to(u.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_x, d_z, deviations, factor, A, in_dtype, variance = ctx.saved_tensors
        of_mean, of_variance = gradients
        S = len(d_z)
        of_u = of_mean @ in_dtype.mT  # [Q, M]
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, of_u, None
        of_w = torch.where(variance > 0.0, of_variance, 0.0).double()  # [N]
        R = torch.cholesky_solve((deviations.mT @ of_mean).double(), factor)  # [M, N]
        half = A * of_w
        R -= half
        of_zx, of_zz = R - half, R @ A.mT  # the latter with the other sign
        of_x = torch.addmm(2.0 * of_w * d_x, d_z, of_zx)
        of_z = torch.addmm(d_x @ of_zx.mT, d_z, of_zz + of_zz.mT, alpha=-1.0)
        dtype, share = of_u.dtype, 1.0 / S
        in_x = torch.add(of_mean.sum(0).mul_(share), of_x.to(dtype), alpha=1.0 / (S - 1))
        in_z = torch.add(of_u.sum(0).mul_(-share), of_z.to(dtype), alpha=1.0 / (S - 1))
        return in_x, in_z, of_u, None


def low_rank_conditional(
    a_x: Tensor, a_z: Tensor, v: Tensor, u: Tensor, jitter: float = JITTER
) -> tuple[Tensor, Tensor]:
    """The same for f_s(x) = a(x)ᵀ v_s: a_x [N, R], a_z [M, R], v [S, R], u [Q, M], in R × R algebra.

    With C = L Lᵀ the sample covariance of v, G = a_zᵀ a_z and H = L (Lᵀ G L + εI)⁻¹ Lᵀ, the push-through identity turns
    the M × M inverse around:

        E[f(x) | u]   = a_xᵀ v̄ + a_xᵀ H a_zᵀ (u − m_z)
        Var[f(x) | u] = ε a_xᵀ H a_x

    The variance is positive by construction.
    """
    return _LowRankConditional.apply(a_x, a_z, v, u, jitter)  # type: ignore[no-any-return,no-untyped-call]


class _LowRankConditional(torch.autograd.Function):
    """H = XᵀX with X = F⁻¹ Lᵀ and F Fᵀ = Lᵀ G L + εI. As H⁻¹ = G + ε C⁻¹,

        dH = −H dG H + ε (C⁻¹ H)ᵀ dC (C⁻¹ H),

    which needs no derivative of a Cholesky factor. Products with X come first: H alone has entries of size 1/ε.
    """

    @staticmethod
    def forward(ctx: Any, a_x: Tensor, a_z: Tensor, v: Tensor, u: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
        v_mean = v.mean(0)
        d = (v - v_mean).double()
        L = root((d.mT @ d).div_(len(v) - 1))  # [R, R]
        b_x, b_z = a_x.double() @ L, a_z.double() @ L
        # ε is the jitter that was needed, which may be more than the one asked for
        F, epsilon = cholesky(b_z.mT @ b_z, jitter)
        solved = torch.linalg.solve_triangular(F, torch.cat([b_x, b_z, L]).mT, upper=False)
        X_x, X_z, X = torch.split_with_sizes(solved, [len(b_x), len(b_z), len(L)], 1)  # [R, N], [R, M], [R, R]
        A = (X_z.mT @ X_x).to(u.dtype)  # a_z H a_xᵀ, [M, N]
        deviations = u - a_z @ v_mean
        ctx.save_for_backward(a_x, a_z, v_mean, d, L, F, X, X_x, X_z, A, deviations)
        ctx.epsilon = epsilon
        return torch.addmm(a_x @ v_mean, deviations, A), X_x.square().sum(0).mul_(epsilon).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        a_x, a_z, v_mean, d, L, F, X, X_x, X_z, A, deviations = ctx.saved_tensors
        of_mean, of_variance = gradients  # [Q, N], [N]
        epsilon, S, dtype = ctx.epsilon, len(d), of_mean.dtype
        of_u = of_mean @ A.mT
        of_A = (deviations.mT @ of_mean).double()  # [M, N]
        weighted = X_x * (epsilon * of_variance.double())  # [R, N]
        V = torch.addmm(weighted, X_z, of_A)
        of_H = V @ X_x.mT  # X ∂H Xᵀ, [R, R]
        of_H = of_H + of_H.mT
        of_x = (V + weighted).mT @ X
        of_z = torch.addmm(of_A @ X_x.mT, X_z.mT, of_H, alpha=-1.0) @ X
        # d L⁻ᵀF⁻ᵀ, whose square carries ∂C
        whitened = torch.linalg.solve_triangular(F, torch.linalg.solve_triangular(L, d.mT, upper=False), upper=False)
        inverse = torch.linalg.solve_triangular(F.mT, of_H @ whitened, upper=True)
        of_d = torch.linalg.solve_triangular(L.mT, inverse, upper=True).mT.mul(epsilon / (S - 1))
        # through v̄
        at_x, at_z = of_mean.sum(0), -of_u.sum(0)
        of_v_mean = (at_x @ a_x + at_z @ a_z) / S
        return (
            torch.addr(of_x.to(dtype), at_x, v_mean),
            torch.addr(of_z.to(dtype), at_z, v_mean),
            of_d.to(dtype) + of_v_mean,
            of_u,
            None,
        )


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


def initial_inducing(
    x: Tensor, num_inducing: int, generator: torch.Generator, start: Literal["rows", "one_spot"] = "rows"
) -> Tensor:
    """A random subset of the training inputs; with replacement, and slightly moved, when there are too few."""
    if start == "one_spot":  # slightly apart, or their gradients would keep them together
        row = torch.randint(len(x), (1,), generator=generator, device=generator.device)
        return x[row] + 0.01 * normal(generator, num_inducing, x.shape[1], like=x)
    if num_inducing <= len(x):
        return x[torch.randperm(len(x), generator=generator, device=generator.device)[:num_inducing]]
    rows = torch.randint(len(x), (num_inducing,), generator=generator, device=generator.device)
    return x[rows] + 0.01 * normal(generator, num_inducing, x.shape[1], like=x)
