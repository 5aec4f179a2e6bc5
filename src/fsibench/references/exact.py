"""The posterior of a Gaussian process with a fixed kernel and an unknown noise: closed forms, and one integral by a rule.

    f ~ GP(0, k),   y = f(x) + N(0, σ²),   σ² = exp(l) + 10⁻⁶,   l ~ N(−3.2, 2²)

Given l everything is Gaussian. With K = U diag(λ) Uᵀ the evidence of each l costs N operations, so that l is summed out on a fine
grid:

    p(l_k | y) ∝ N(l_k | −3.2, 2²) Π_i N((Uᵀy)_i | 0, λ_i + σ_k²),   p(y* | y) = Σ_k p(l_k | y) N(y* | m_k, v_k + σ_k²)

The error of the sum is far below that of any method: with half as many points all digits that are compared stay (a test).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.draws import normal
from fsibench.blocks.kernels import GaussianProcess
from fsibench.blocks.likelihoods import LOG_2PI
from fsibench.predictive import Predictive
from fsibench.references.files import LEVELS, Reference
from fsibench.references.making import KEPT_DRAWS
from fsibench.references.sampling import NOISE_CENTRE, NOISE_FLOOR, NOISE_SPREAD

PRIOR = (
    "f ~ GP(0, k), k(x, x') = exp(-|x - x'|^2 / (2 D)), on standardised rows; "
    "y = f(x) + noise of variance exp(l) + 1e-6, l ~ N(-3.2, 2^2)"
)
GRID, REACH = 800, 5.0  # points of l, over so many standard deviations of its prior on each side
NEGLIGIBLE = 1e-10  # weights below this share of the largest are left out


@dataclass(frozen=True)
class ExactPosterior:
    """f at M inputs for each noise variance of the grid: weights [K], means [K, M], whitened cross-covariances, and the evidence."""

    weights: Tensor
    noise: Tensor  # σ_k², [K]
    mean: Tensor
    variance: Tensor  # of f, [K, M]
    log_evidence: float


def exact_posterior(process: GaussianProcess, x: Tensor, y: Tensor, at: Tensor, points: int = GRID) -> ExactPosterior:
    l = torch.linspace(NOISE_CENTRE - REACH * NOISE_SPREAD, NOISE_CENTRE + REACH * NOISE_SPREAD, points, dtype=torch.float64)
    noise = l.exp() + NOISE_FLOOR
    eigenvalues, U = torch.linalg.eigh(process.covariance(x, x))
    totals = eigenvalues.clamp_min(0.0) + noise[:, None]  # [K, N]
    projected = U.mT @ y.double()  # [N]
    log_likelihood = -0.5 * (projected.square() / totals + totals.log() + LOG_2PI).sum(1)
    log_prior = -0.5 * ((l - NOISE_CENTRE) / NOISE_SPREAD).square() - math.log(NOISE_SPREAD) - 0.5 * LOG_2PI
    log_weights = log_likelihood + log_prior + math.log(float(l[1] - l[0]))
    kept = log_weights > log_weights.max() + math.log(NEGLIGIBLE)
    cross = process.covariance(at, x) @ U  # [M, N]
    mean = (projected / totals[kept]) @ cross.mT
    explained = (1.0 / totals[kept]) @ cross.square().mT
    variance = (process.signal - explained).clamp_min(0.0)
    return ExactPosterior(log_weights[kept].softmax(0), noise[kept], mean, variance, float(log_weights.logsumexp(0)))


def joint_draws(process: GaussianProcess, x: Tensor, y: Tensor, at: Tensor, noise: Tensor, generator: torch.Generator) -> Tensor:
    """One coherent draw of f at the M inputs for each of the noise variances [S]: [S, M].

    By Matheron's rule: with g a draw of the prior, f = g(at) + K(at, x) (K + σ²I)⁻¹ (y − g(x) − σ ε).
    """
    g_x, g_at = process.draw(torch.cat([x, at]), len(noise), generator).split_with_sizes([len(x), len(at)], 1)
    residual = y.double() - g_x - noise.sqrt()[:, None] * normal(generator, *g_x.shape, like=g_x)  # [S, N]
    eigenvalues, U = torch.linalg.eigh(process.covariance(x, x))
    weights = (residual @ U) / (eigenvalues.clamp_min(0.0) + noise[:, None])
    draws: Tensor = g_at + weights @ (process.covariance(at, x) @ U).mT
    return draws


def exact_reference(
    process: GaussianProcess, x: Tensor, y: Tensor, at: Tensor, scale: float, shift: float, about: dict[str, object]
) -> Reference:
    """The columns of a reference in the target's own units; the first half of the inputs `at` is inside the data."""
    found = exact_posterior(process, x, y, at)
    predictive = Predictive(
        found.mean * scale + shift, (found.variance + found.noise[:, None]).sqrt() * scale, found.weights
    )
    quantiles = predictive.quantile(torch.tensor(LEVELS, dtype=torch.float64))  # [L, M]
    density = torch.stack([predictive.log_prob(values) for values in quantiles])
    generator = torch.Generator().manual_seed(1)
    chosen = torch.multinomial(found.weights, KEPT_DRAWS, replacement=True, generator=generator)
    draws = joint_draws(process, x, y, at, found.noise[chosen], generator) * scale + shift
    functions = Predictive(found.mean, found.variance.clamp_min(1e-12).sqrt(), found.weights)
    rows = torch.zeros(len(at), dtype=torch.float64)
    return Reference(
        inside=(torch.arange(len(at)) < len(at) // 2).numpy(),
        draws=draws.float().numpy(),
        mean=predictive.mean.numpy(),
        sd=functions.variance.sqrt().numpy() * scale,
        quantiles=quantiles.mT.contiguous().numpy(),
        log_density=density.mT.contiguous().numpy(),
        rhat=(rows + 1.0).numpy(),
        ess=(rows + KEPT_DRAWS).numpy(),
        z=rows.numpy(),
        about={
            **about, "prior": PRIOR, "target_mean": shift, "target_scale": scale, "train_rows": len(y),
            "log_evidence": found.log_evidence - len(y) * math.log(scale),
            "noise": (found.noise[chosen].sqrt() * scale).tolist(),
        },
    )  # fmt: skip
