"""Divergences between distributions, and the data term of the alpha-energy.

Black-box alpha-energy of one observation under draws f₁..f_S of a random function with conditional variance w:

    ℓ = 1/α log 1/S Σₛ E_{N(f; μₛ, w)}[ N(y | f, v)^α ]

with the inner expectation in closed form,

    log E[N(y | f, v)^α] = −α/2 log 2πv − ½ log(1 + α w/v) − α (y − μₛ)² / (2 (v + α w)).

α → 0 gives the expected log-likelihood of variational inference, α = 1 the log predictive density.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fsibench.blocks.likelihoods import LOG_2PI, MINIMUM_NOISE_VARIANCE

# Below this alpha, float32 loses the difference between the log-mean-exp and its limit; the limit is used.
SMALLEST_ALPHA = 1e-6


def alpha_energy(y: Tensor, mean: Tensor, conditional_variance: Tensor | float, noise: Tensor, alpha: float) -> Tensor:
    """Data term ℓ of each point: y [N], draws `mean` [S, N], `conditional_variance` w broadcastable to [S, N] -> [N].

    `alpha` from 0 to 1; 0 is the limit 1/S Σₛ ( log N(y | μₛ, v) − w / 2v ). Gradients, written out, reach the draws, w
    and the noise v, not y.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is a number from 0 to 1, got {alpha}")
    if not isinstance(conditional_variance, Tensor):
        conditional_variance = mean.new_tensor(conditional_variance)
    energy = _ExpectedLogDensity if alpha < SMALLEST_ALPHA else _AlphaEnergy
    return energy.apply(y, mean, conditional_variance, noise, alpha)  # type: ignore[no-any-return,no-untyped-call]


def mean_alpha_energy(
    y: Tensor, mean: Tensor, conditional_variance: Tensor | None, log_noise: Tensor, alpha: float
) -> Tensor:
    """Mean over the points of `alpha_energy` with v = `noise_variance(log_noise)`, as a single step of autograd.

    `conditional_variance` w is [N], or None for none at all. In a fit of small batches the number of steps of autograd is
    what costs, so value and gradient are found together, and scalars are Python's.
    """
    return _MeanAlphaEnergy.apply(y, mean, conditional_variance, log_noise, alpha)  # type: ignore[no-any-return,no-untyped-call]


class _MeanAlphaEnergy(torch.autograd.Function):
    """Derivatives as in `_AlphaEnergy` and `_ExpectedLogDensity`, those in v times dv/dλ = e^λ."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, mean: Tensor, w: Tensor | None, log_noise: Tensor, alpha: float) -> Tensor:
        S, N = mean.shape
        slope = log_noise.exp().item()  # dv/dλ
        v = slope + MINIMUM_NOISE_VARIANCE
        residuals = y - mean  # [S, N]
        of_w: Tensor | None
        if alpha < SMALLEST_ALPHA:
            total = residuals.square().sum() / S
            if w is not None:
                total = total + w.sum()
            value = -0.5 * (LOG_2PI + math.log(v) + total / (N * v))
            of_mean = residuals.mul_(1.0 / (S * N * v))
            of_w = None if w is None else torch.full_like(w, -0.5 / (N * v))
            of_noise = (total / (N * v) - 1.0).mul_(0.5 * slope / v)
        else:
            c = residuals.new_tensor(v) if w is None else alpha * w + v
            squares = residuals.square()
            exponents = squares * (-0.5 * alpha / c)
            log_sum = exponents.logsumexp(0)  # [N]
            energies = log_sum if w is None else log_sum - 0.5 * torch.log(c / v)
            value = (energies.mean() - math.log(S)) / alpha - 0.5 * (LOG_2PI + math.log(v))
            share = exponents.sub_(log_sum).exp_().mul_(1.0 / (N * c))  # p_s / N c
            of_mean = residuals.mul_(share)
            slopes = (squares.mul_(share).sum(0).mul_(alpha / c) - 1.0 / (N * c)).mul_(0.5)  # [N], Σₛ p_s = 1
            of_w = None if w is None else slopes
            of_noise = (slopes.sum() + 0.5 * (1.0 - alpha) / v).mul_(slope / alpha)
        ctx.save_for_backward(of_mean, of_w, of_noise)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        of_mean, of_w, of_noise = ctx.saved_tensors
        return None, of_mean * g, None if of_w is None else of_w * g, of_noise * g, None


class _AlphaEnergy(torch.autograd.Function):
    """With c = v + αw and p_s the softmax over s of −½ log(c/v) − α (y − μₛ)² / 2c:

    ∂ℓ/∂μₛ = p_s (y − μₛ)/c,   ∂ℓ/∂w = Σₛ p_s [α (y − μₛ)²/c − 1] / 2c,   ∂ℓ/∂v = 1/α [∂ℓ/∂w + ½ (1 − α)/v].
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, mean: Tensor, w: Tensor, noise: Tensor, alpha: float) -> Tensor:
        residuals = y - mean  # [S, N]
        c = torch.add(noise, w, alpha=alpha)
        squares = residuals.square()
        exponents = squares * (-0.5 * alpha / c)
        if w.dim() > 1:  # otherwise the same for all draws
            exponents -= 0.5 * torch.log(c / noise)
        log_sum = exponents.logsumexp(0)
        ctx.save_for_backward(residuals, squares, exponents, log_sum, c, w, noise)
        ctx.alpha = alpha
        log_mean = log_sum - math.log(len(mean))
        if w.dim() <= 1:
            log_mean = log_mean - 0.5 * torch.log(c / noise)
        return log_mean / alpha - 0.5 * (LOG_2PI + noise.log())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        residuals, squares, exponents, log_sum, c, w, noise = ctx.saved_tensors
        alpha = ctx.alpha
        share = (exponents - log_sum).exp_().mul_(gradients[0] / c)  # p_s g / c, [S, N]
        of_mean = share * residuals
        of_w = of_noise = None
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            # [α (y − μₛ)²/c − 1] / 2, summed over the draws unless each has a w of its own
            slopes = share.mul_(0.5 * alpha * squares / c - 0.5)
            of_w = slopes.sum_to_size(w.shape)
            of_noise = ((slopes.sum(0) + 0.5 * (1.0 - alpha) * gradients[0] / noise) / alpha).sum_to_size(noise.shape)
        return None, of_mean, of_w, of_noise, None


class _ExpectedLogDensity(torch.autograd.Function):
    """The limit α = 0: −½ [log 2πv + 1/S Σₛ ((y − μₛ)² + w) / v]."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, mean: Tensor, w: Tensor, noise: Tensor, alpha: float) -> Tensor:
        residuals = y - mean  # [S, N]
        squares = residuals.square().mean(0) + (w.mean(0) if w.dim() > 1 else w)
        ctx.save_for_backward(residuals, squares, w, noise)
        return -0.5 * (LOG_2PI + noise.log() + squares / noise)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        residuals, squares, w, noise = ctx.saved_tensors
        scaled = gradients[0] / noise
        of_mean = residuals * (scaled / len(residuals))
        of_w = of_noise = None
        if ctx.needs_input_grad[2]:
            of_w = (-0.5 / len(residuals) * scaled).expand_as(residuals).sum_to_size(w.shape)
        if ctx.needs_input_grad[3]:
            of_noise = (0.5 * scaled * (squares / noise - 1.0)).sum_to_size(noise.shape)
        return None, of_mean, of_w, of_noise, None


def diagonal_gaussian_kl(
    mean: Tensor, log_variance: Tensor, prior_mean: Tensor | float, prior_log_variance: Tensor
) -> Tensor:
    """KL( N(m, e^s) ‖ N(μ, e^τ) ) summed over coordinates; τ and μ may be scalars.

    ½ Σ_j [ (e^{s_j} + (m_j − μ_j)²) e^{−τ_j} − 1 + τ_j − s_j ]
    """
    return _DiagonalGaussianKL.apply(mean, log_variance, prior_mean, prior_log_variance)  # type: ignore[no-any-return,no-untyped-call]


class _DiagonalGaussianKL(torch.autograd.Function):
    """∂m = (m − μ) e^{−τ} = −∂μ,   ∂s = ½ (e^{s − τ} − 1),   ∂τ = ½ (1 − (e^s + (m − μ)²) e^{−τ})."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, s: Tensor, prior_mean: Tensor | float, tau: Tensor) -> Tensor:
        precision = (-tau).exp()
        shift = mean - prior_mean
        within = s.exp().mul_(precision)  # e^{s − τ}
        spread = torch.addcmul(within, shift.square(), precision)
        ctx.save_for_backward(shift, precision, within, spread, tau)
        ctx.prior_mean = prior_mean
        return 0.5 * (spread + (tau - s)).sum() - 0.5 * mean.numel()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        shift, precision, within, spread, tau = ctx.saved_tensors
        (g,) = gradients
        of_mean = shift * (precision * g)
        of_s = (within - 1.0).mul_(0.5 * g)
        of_prior_mean = of_tau = None
        if ctx.needs_input_grad[2]:
            of_prior_mean = -of_mean.sum_to_size(ctx.prior_mean.shape)
        if ctx.needs_input_grad[3]:
            of_tau = (0.5 * g * (1.0 - spread)).sum_to_size(tau.shape)
        return of_mean, of_s, of_prior_mean, of_tau


def diagonal_gaussian_entropy(log_variance: Tensor) -> Tensor:
    """½ Σ_j (1 + log 2π + s_j)."""
    return 0.5 * (log_variance.sum() + log_variance.numel() * (1.0 + LOG_2PI))
