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
GROUPS_AT_ONCE = 4
# The smallest share of a predictive variance that counts as noise.
LEAST_NOISE_SHARE = 1e-6


def levels() -> Tensor:
    import torch

    return torch.tensor(LEVELS, dtype=torch.float64)


# Calibration ---------------------------------------------------------------------------------------------------------


def pit_counts(pit: Tensor) -> tuple[int, ...]:
    """How many probability integral transforms F(y) fall into each of `PIT_BINS` equal bins."""
    import torch

    bins = (pit * PIT_BINS).long().clamp(0, PIT_BINS - 1)
    return tuple(torch.bincount(bins, minlength=PIT_BINS).tolist())


def calibration_error(pit: Tensor) -> float:
    """From F(y) at each row: mean over c = 0.1, ..., 0.9 of |share of targets inside the central c interval − c|."""
    import torch

    nominal = torch.arange(1, 10, dtype=torch.float64) / 10  # [9]
    centrality = 2.0 * (pit - 0.5).abs()  # the smallest central interval that holds y, [N]
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

    Only discrimination is integrated numerically. Uncertainty is ½ mean|yᵢ − yⱼ|, whatever the forecast, and
    miscalibration is what makes the parts sum to the CRPS.
    """
    thresholds, weights = _thresholds(predictive, y)
    forecast = predictive.cdf_at(thresholds).double()  # [Z, N]
    outcome = (y <= thresholds[:, None]).double()
    rate = outcome.mean(1)
    discrimination = float(weights @ (rate * (1.0 - rate) - _recalibrated_score(forecast, outcome)))
    uncertainty = _half_mean_difference(y)
    crps = float(predictive.crps(y).double().mean())
    return CrpsParts(crps - uncertainty + discrimination, discrimination, uncertainty)


def _half_mean_difference(y: Tensor) -> float:
    """½ mean|yᵢ − yⱼ| over all pairs, by sorting: the CRPS of the targets' own distribution."""
    import torch

    N = len(y)
    ranks = torch.arange(1, N + 1, dtype=torch.float64)
    return float(((2.0 * ranks - N - 1.0) @ y.double().sort().values) / N**2)


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


def _recalibrated_score(forecast: Tensor, outcome: Tensor) -> Tensor:
    """Brier score at each threshold [Z] of the non-decreasing function of the forecast that is closest to the outcomes.

    The score needs outcomes in the order of the forecasts, and among equal forecasts ones before zeros. The last bit of
    a forecast makes room for the outcome, so that one sort of numbers does both. Isotonic regression gives one value to
    every run of ones and the zeros behind it, so that it starts from these runs. All thresholds are one regression:
    two apart, they cannot be pooled.
    """
    import numpy as np
    import torch
    from scipy.optimize import isotonic_regression

    Z, N = forecast.shape
    keys = forecast.contiguous().numpy().view(np.int64) & ~1  # floats at or above zero are ordered like their bits
    one = (np.sort(keys | (outcome.numpy() == 0.0), axis=1) & 1) == 0  # [Z, N]
    begins = np.ones((Z, N), dtype=bool)
    begins[:, 1:] = one[:, 1:] & ~one[:, :-1]
    first = np.flatnonzero(begins)
    threshold = first // N
    count = np.diff(first, append=Z * N).astype(np.float64)
    ones = np.add.reduceat(one.reshape(-1), first, dtype=np.float64)
    fitted = isotonic_regression(ones / count + 2.0 * threshold, weights=count).x - 2.0 * threshold
    squares = ones * np.square(1.0 - fitted) + (count - ones) * np.square(fitted)
    return torch.from_numpy(np.bincount(threshold, squares, Z) / N)


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
    to_answer = (samples - y[:, None]).norm(dim=-1).mean(1)  # [G]
    # Single precision is 1e-6 of the spread here, and 200 draws give 1e-2 of it. A few groups at a time stay in the cache.
    centred = (samples - samples.mean(1, keepdim=True)).float()
    parts = centred.split(GROUPS_AT_ONCE)
    between = torch.cat([torch.cdist(part, part).sum((1, 2), dtype=torch.float64) for part in parts])  # [G]
    return float((to_answer - 0.5 * between / (S * (S - 1))).mean())
