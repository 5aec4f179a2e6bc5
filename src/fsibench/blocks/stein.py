"""Spectral Stein gradient estimator: the score ∇ log q of a distribution that is known by its draws only.

Shi, Sun, Zhu: A spectral approach to gradient estimation for implicit distributions, ICML 2018. With an RBF kernel on
M draws X [M, d], its Gram matrix K = U Λ Uᵀ, eigenfunctions ψ_j(x) = √M/λ_j Σ_m u_jm k(x, x_m) and coefficients
β_j = −1/M Σ_m ∇ψ_j(x_m), the estimate Σ_j β_j ψ_j(x) needs no [M, M, d] array:

    G = (K X − diag(K 1) X) / w²,   score(X) = U_J Λ_J⁻¹ U_Jᵀ G,   score(x') = k(x', X) U_J Λ_J⁻² U_Jᵀ G

On function values, whose coordinates are strongly correlated, it misses most of the score (a fifth of its length
remains at 25 points). `whitened_score` therefore estimates in coordinates Z = L⁻¹(X − mean) with L Lᵀ the sample
covariance and maps back: scores transform with L⁻ᵀ under affine maps.

No gradient flows through an estimate. Everything in float64.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fsibench.blocks.gaussian import factor
from fsibench.blocks.kernels import squared_distances

# Rows that the medians are taken over; the median of 60 rows' 1,770 distances is good to a few per cent.
MEDIAN_ROWS = 60


def median_widths(samples: Tensor) -> Tensor:
    """√d · median |x_il − x_jl| for each coordinate [d]; a coordinate that hardly varies gets 1 added."""
    rows = _spread(samples).mT.cpu().numpy()  # [d, R]
    first, second = np.triu_indices(rows.shape[1], 1)
    distances = np.abs(rows[:, first] - rows[:, second])  # [d, pairs]
    middle = (distances.shape[1] - 1) // 2
    # numpy's selection takes a third of the time of `torch.median`
    medians = np.partition(distances, middle, axis=1)[:, middle]
    widths = torch.as_tensor(medians, device=samples.device) * math.sqrt(samples.shape[1])
    return torch.where(widths < 1e-6, widths + 1.0, widths)


def median_width(samples: Tensor) -> Tensor:
    """Median distance between draws, one number."""
    rows = _spread(samples)
    first, second = torch.triu_indices(len(rows), len(rows), offset=1)
    width = squared_distances(rows, rows)[first, second].sqrt().median()
    return width if float(width) >= 1e-6 else width + 1.0


@torch.no_grad()
def spectral_score(
    samples: Tensor,
    at: Tensor | None = None,
    explained: float = 0.99,
    widths: Tensor | None = None,
    num_pairs: int | None = None,
) -> Tensor:
    """Estimate of ∇ log q at the draws themselves [M, d], or at other points [M', d].

    Kept are `num_pairs` leading eigenpairs, or those whose eigenvalues sum to less than the share `explained`, at
    least one. Widths, one or one per coordinate, default to the medians over the draws and the points together.
    """
    samples = samples.double()
    if widths is None:
        widths = median_widths(samples if at is None else torch.cat([samples, at.double()]))
    scaled = samples / widths
    K = torch.exp(-0.5 * squared_distances(scaled, scaled))  # [M, M]
    G = (K @ samples - K.sum(1, keepdim=True) * samples) / widths.square()  # [M, d]
    eigenvalues: Tensor
    U: Tensor
    eigenvalues, U = torch.linalg.eigh(K)  # ascending
    eigenvalues, U = eigenvalues.flip(0), U.flip(1)
    J = num_pairs or max(1, int((eigenvalues.cumsum(0) / eigenvalues.sum() < explained).sum()))
    lam, U = eigenvalues[:J], U[:, :J]
    projected: Tensor = U.mT @ G  # [J, d]
    if at is None:
        return U @ (projected / lam[:, None])
    Kx = torch.exp(-0.5 * squared_distances(at.double() / widths, scaled))  # [M', M]
    return Kx @ (U @ (projected / lam.square()[:, None]))


@torch.no_grad()
def whitened_score(
    samples: Tensor, at: Tensor | None = None, explained: float = 0.95, shrinkage: float = 0.1
) -> Tensor:
    """`spectral_score` in coordinates where the draws are uncorrelated, mapped back.

    The sample covariance is shrunk to its diagonal by the share `shrinkage`: with fewer draws than points it would be
    singular.
    """
    samples = samples.double()
    mean = samples.mean(0)
    centred = samples - mean
    covariance = centred.mT @ centred / (len(samples) - 1)
    diagonal = covariance.diagonal()
    covariance = (1.0 - shrinkage) * covariance + torch.diag(shrinkage * diagonal + 1e-10)
    L = factor(covariance)

    def whiten(x: Tensor) -> Tensor:
        z: Tensor = torch.linalg.solve_triangular(L, (x.double() - mean).mT, upper=False).mT
        return z

    Z = whiten(samples)
    score = spectral_score(Z, None if at is None else whiten(at), explained, median_width(Z))  # with respect to z
    mapped: Tensor = torch.linalg.solve_triangular(L.mT, score.mT, upper=True).mT  # L⁻ᵀ s
    return mapped


def _spread(samples: Tensor) -> Tensor:
    """At most `MEDIAN_ROWS` rows, evenly spread: widths need no more."""
    count = min(len(samples), MEDIAN_ROWS)
    return samples[torch.linspace(0, len(samples) - 1, count, device=samples.device).long()]
