"""Divergences between distributions, and the data term of the alpha-energy.

Black-box alpha-energy of one observation under draws f₁..f_S of a random function with conditional variance w:

    ℓ = 1/α log 1/S Σₛ E_{N(f; μₛ, w)}[ N(y | f, v)^α ]

with the inner expectation in closed form,

    log E[N(y | f, v)^α] = −α/2 log 2πv − ½ log(1 + α w/v) − α (y − μₛ)² / (2 (v + α w)).

α → 0 gives the expected log-likelihood of variational inference, α = 1 the log predictive density.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsibench.blocks.likelihoods import LOG_2PI

# Below this alpha, float32 loses the difference between the log-mean-exp and its limit; the limit is used.
SMALLEST_ALPHA = 1e-6


def alpha_energy(y: Tensor, mean: Tensor, conditional_variance: Tensor | float, noise: Tensor, alpha: float) -> Tensor:
    """Data term ℓ of each point: y [N], draws `mean` [S, N], `conditional_variance` w broadcastable to [S, N] -> [N].

    `alpha` from 0 to 1; 0 is the limit 1/S Σₛ ( log N(y | μₛ, v) − w / 2v ).
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is a number from 0 to 1, got {alpha}")
    w = torch.as_tensor(conditional_variance, dtype=mean.dtype, device=mean.device)
    squares = (y - mean).square()  # [S, N]
    if alpha < SMALLEST_ALPHA:
        # E log N(y | f, v) = −½ [log 2πv + ((y − μₛ)² + w) / v]
        return -0.5 * (LOG_2PI + noise.log() + (squares.mean(0) + w.expand_as(squares).mean(0)) / noise)
    # log E[N(y | f, v)^α] / α, without the part that does not depend on s
    exponents = -0.5 * torch.log1p(alpha * w / noise) - squares * (0.5 * alpha / (noise + alpha * w))  # [S, N]
    log_mean = exponents.logsumexp(0) - math.log(mean.shape[0])  # [N]
    return log_mean / alpha - 0.5 * (LOG_2PI + noise.log())


def diagonal_gaussian_kl(
    mean: Tensor, log_variance: Tensor, prior_mean: Tensor | float, prior_log_variance: Tensor
) -> Tensor:
    """KL( N(m, e^s) ‖ N(μ, e^τ) ) summed over coordinates; τ and μ may be scalars.

    ½ Σ_j [ (e^{s_j} + (m_j − μ_j)²) e^{−τ_j} − 1 + τ_j − s_j ]
    """
    spread = (log_variance.exp() + (mean - prior_mean).square()) * torch.exp(-prior_log_variance)
    return 0.5 * (spread + (prior_log_variance - log_variance)).sum() - 0.5 * mean.numel()


def diagonal_gaussian_entropy(log_variance: Tensor) -> Tensor:
    """½ Σ_j (1 + log 2π + s_j)."""
    return 0.5 * (log_variance.sum() + log_variance.numel() * (1.0 + LOG_2PI))
