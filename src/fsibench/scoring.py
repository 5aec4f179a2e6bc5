"""Formulas behind the metric list: interval, quantile and joint scores, and the parts of the CRPS.

All take float64 tensors in the target's own units: `y` [N], quantiles [N] by level, draws [S, N]. Torch is imported in
the functions, so that the metric list loads without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from fsibench.predictive import Predictive

# Twenty equal bins: the histogram, and the coverage of every central interval of 10 %, 20 %, ... 90 %.
PIT_BINS = 20
# Midpoints of twenty equal bins of (0, 1) for integrals over levels, and the ends of the 50 % and 90 % intervals.
MIDPOINTS = tuple((k + 0.5) / 20 for k in range(20))
LEVELS = tuple(sorted({*MIDPOINTS, 0.05, 0.25, 0.75, 0.95}))
# Test rows that costly metrics use at most.
MOST_ROWS = 1000
# Thresholds at which forecasts are recalibrated for the parts of the CRPS.
NUM_THRESHOLDS = 200
# Joint scores: rows in one group, and draws.
GROUP_ROWS = 10
NUM_JOINT_DRAWS = 200
# The smallest share of a predictive variance that counts as noise.
LEAST_NOISE_SHARE = 1e-6


def levels() -> Tensor:
    import torch

    return torch.tensor(LEVELS, dtype=torch.float64)


# Calibration ---------------------------------------------------------------------------------------------------------


def pit_counts(predictive: Predictive, y: Tensor) -> tuple[int, ...]:
    """How many probability integral transforms fall into each of `PIT_BINS` equal bins."""
    import torch

    bins = (predictive.cdf(y) * PIT_BINS).long().clamp(0, PIT_BINS - 1)
    return tuple(torch.bincount(bins, minlength=PIT_BINS).tolist())


def calibration_error(predictive: Predictive, y: Tensor) -> float:
    """Mean over c = 0.1, ..., 0.9 of |share of targets inside the central c interval − c|."""
    import torch

    nominal = torch.arange(1, 10, dtype=torch.float64) / 10  # [9]
    centrality = 2.0 * (predictive.cdf(y) - 0.5).abs()  # the smallest central interval that holds y, [N]
    observed = (centrality <= nominal[:, None]).double().mean(1)  # [9]
    return float((observed - nominal).abs().mean())


# Quantile scores -----------------------------------------------------------------------------------------------------


def interval_score(quantiles: Mapping[float, Tensor], y: Tensor, coverage: float) -> float:
    """(u − l) + 2/α (l − y)₊ + 2/α (y − u)₊ with α = 1 − coverage (Gneiting, Raftery 2007, eq. 43)."""
    alpha = 1.0 - coverage
    low, high = (_at(quantiles, level) for level in (alpha / 2, 1.0 - alpha / 2))
    misses = (low - y).clamp(min=0.0) + (y - high).clamp(min=0.0)
    return float((high - low + 2.0 / alpha * misses).mean())


def pinball(quantiles: Mapping[float, Tensor], y: Tensor) -> float:
    """Mean over levels and rows of (1{y < q} − τ)(q − y)."""
    return float(_pinball_by_level(quantiles, y).mean())


def tail_weighted_crps(quantiles: Mapping[float, Tensor], y: Tensor) -> float:
    """∫ 2 QS_τ (2τ − 1)² dτ by the midpoint rule (Gneiting, Ranjan 2011, quantile-weighted form)."""
    import torch

    weights = (2.0 * torch.tensor(MIDPOINTS, dtype=torch.float64) - 1.0).square()
    return float((2.0 * weights * _pinball_by_level(quantiles, y)).mean())


def _pinball_by_level(quantiles: Mapping[float, Tensor], y: Tensor) -> Tensor:
    import torch

    q = torch.stack([quantiles[level] for level in MIDPOINTS])  # [Q, N]
    tau = torch.tensor(MIDPOINTS, dtype=q.dtype)[:, None]
    return (((y < q).double() - tau) * (q - y)).mean(1)  # [Q]


def _at(quantiles: Mapping[float, Tensor], level: float) -> Tensor:
    return quantiles[min(quantiles, key=lambda known: abs(known - level))]


def share_of_worst(log_density: Tensor, share: float = 0.01) -> float:
    """Σ over the worst points of (median − ℓ) as a share of Σ |ℓ − median| over all points; nan without densities."""
    if not bool(log_density.isfinite().all()):
        return math.nan
    deviation = log_density.median() - log_density  # [N], positive where worse than typical
    total = float(deviation.abs().sum())
    worst = deviation.topk(max(1, round(share * len(log_density)))).values
    return float(worst.clamp(min=0.0).sum()) / total if total > 0.0 else 0.0


# Parts of the CRPS ---------------------------------------------------------------------------------------------------


class CrpsParts(NamedTuple):
    """CRPS = miscalibration − discrimination + uncertainty."""

    miscalibration: float
    discrimination: float
    uncertainty: float


def crps_parts(predictive: Predictive, y: Tensor) -> CrpsParts:
    """Brier-score based decomposition of the mean CRPS (Arnold, Walz, Ziegel, Gneiting 2024).

    CRPS = ∫ BS_z dz with BS_z the Brier score of F(z) as a forecast of 1{y ≤ z}. At every threshold z, isotonic
    regression of the outcomes on F(z) gives the recalibrated forecast; miscalibration is what it gains, discrimination
    what it gains over the constant forecast, and uncertainty is the score of that constant.
    """
    import torch

    thresholds, weights = _thresholds(predictive, y)
    forecasts = _cdf_at(predictive, thresholds)
    parts = torch.zeros(3, dtype=torch.float64)
    for z, weight, forecast in zip(thresholds, weights, forecasts, strict=True):
        outcome = (y <= z).double()
        recalibrated = _isotonic(forecast, outcome)
        original, best = ((p - outcome).square().mean() for p in (forecast, recalibrated))
        rate = outcome.mean()
        constant = rate * (1.0 - rate)
        parts += weight * torch.stack([original - best, constant - best, constant])
    return CrpsParts(*parts.tolist())


def _thresholds(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the trapezoid rule over the range where forecasts or outcomes vary."""
    import torch

    spread = 4.0 * predictive.variance.sqrt()
    low = torch.minimum(y, predictive.mean - spread).min()
    high = torch.maximum(y, predictive.mean + spread).max()
    # Half of the nodes follow the targets, where most happens; half are equally spaced over the whole range.
    ranks = torch.linspace(0.0, 1.0, NUM_THRESHOLDS // 2, dtype=torch.float64)
    even = low + (high - low) * ranks
    nodes = torch.cat([torch.quantile(y, ranks), even]).unique()
    gaps = nodes.diff()
    weights = torch.zeros_like(nodes)
    weights[:-1] += 0.5 * gaps
    weights[1:] += 0.5 * gaps
    return nodes, weights


def _cdf_at(predictive: Predictive, thresholds: Tensor) -> Tensor:
    """F_n(z) for every threshold and row, [Z, N]; few rows at a time stay in the processor's cache."""
    import torch

    pieces = (predictive.rows(slice(start, start + 50)) for start in range(0, predictive.num_points, 50))
    return torch.cat([
        torch.stack([piece.cdf(z.expand(piece.num_points)) for z in thresholds]) for piece in pieces
    ], 1)


def _isotonic(forecast: Tensor, outcome: Tensor) -> Tensor:
    """Non-decreasing function of the forecast that is closest to the outcomes; equal forecasts share one value."""
    import torch
    from scipy.optimize import isotonic_regression

    values, group = torch.unique(forecast, return_inverse=True)
    counts = torch.bincount(group, minlength=len(values)).double()
    means = torch.zeros(len(values), dtype=torch.float64).index_add_(0, group, outcome) / counts
    fitted = isotonic_regression(means.numpy(), weights=counts.numpy()).x
    return torch.from_numpy(fitted)[group]


# Joint scores --------------------------------------------------------------------------------------------------------


class Groups(NamedTuple):
    """Test rows in groups of K: draws [G, S, K] without noise, noise variances and answers [G, K]."""

    draws: Tensor
    noise_variance: Tensor
    y: Tensor


def groups(draws: Tensor, variance: Tensor, y: Tensor) -> Groups:
    """Consecutive test rows as groups; a last group that is not full is left out, and fewer rows are one group.

    The noise at a row is what the predictive variance has beyond the variance of the draws.
    """
    size = min(GROUP_ROWS, len(y))
    count = len(y) // size
    rows = slice(0, count * size)
    noise = (variance - draws.var(0, correction=0)).clamp(min=0.0) + LEAST_NOISE_SHARE * variance  # [N]
    return Groups(
        draws[:, rows].T.reshape(count, size, -1).mT,
        noise[rows].reshape(count, size),
        y[rows].reshape(count, size),
    )


def joint_log_likelihood(groups: Groups) -> float:
    """log 1/S Σₛ Πₖ N(yₖ | fₛₖ, σₖ²) of each group, per row, averaged."""
    draws, variance, y = groups
    variance = variance[:, None]
    log_density = -0.5 * ((y[:, None] - draws).square() / variance + variance.log() + math.log(2.0 * math.pi))  # [G, S, K]
    joint = log_density.sum(-1).logsumexp(-1) - math.log(draws.shape[1])  # [G]
    return float(joint.mean()) / y.shape[1]


def energy_score(groups: Groups) -> float:
    """E‖Y − y‖ − ½ E‖Y − Y'‖ of each group with Y = draw + noise, averaged; all pairs of draws, s ≠ s'."""
    import torch

    draws, variance, y = groups
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(draws.shape, generator=generator, dtype=draws.dtype)
    samples = draws + variance.sqrt()[:, None] * noise  # [G, S, K]
    S = samples.shape[1]
    total = 0.0
    for sample, answer in zip(samples, y, strict=True):
        spread = float(torch.cdist(sample, sample).sum()) / (S * (S - 1))
        total += float((sample - answer).norm(dim=-1).mean()) - 0.5 * spread
    return total / len(y)
