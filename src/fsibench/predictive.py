"""The predictive distribution p(y|x) and its scores: one place for all methods.

A predictive is an equal-weight mixture of Gaussians at each point; a plain Gaussian is a mixture of one. That covers
every method here: weight-space samplers (one component per draw), SIP (one per sample of u), Gaussian processes.

CRPS of a mixture, with A(m, v) = E|N(m, v)| = 2 s φ(m/s) + m (2 Φ(m/s) − 1) and s² = v:

    CRPS = 1/S Σₛ A(y − μₛ, σₛ²) − 1/(2 S²) Σₛₜ A(μₛ − μₜ, σₛ² + σₜ²)

The pair sum costs S² per point. It equals ∫ F(1 − F) dt, which the trapezoid rule gives to about 1e-10 when its step is
a little below the smallest σₛ: fewer than S nodes often suffice, and the pair sum remains for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

# Elements of the largest temporary of a chunked score: 1.6 MB of doubles stay in the cache.
CHUNK_ELEMENTS = 200_000
SQRT_2PI = math.sqrt(2.0 * math.pi)
# The integrand F(1 − F) is below 1e-12 beyond this many standard deviations outside the components.
TAIL = 7.0
# Quantiles: nodes of the grid that brackets them, steps inside the bracket at most, and the error of F that ends them.
QUANTILE_NODES = 65
QUANTILE_STEPS = 60
QUANTILE_TOLERANCE = 1e-10
# Trapezoid step in units of the smallest scale. The error falls as exp(−π² / step²).
STEP = 0.7


@dataclass(frozen=True)
class Predictive:
    """Equal-weight Gaussian mixture at N points: `loc` and `scale` broadcast to one shape [S, N]."""

    loc: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        loc, scale = torch.broadcast_tensors(self.loc, self.scale)
        if loc.dim() != 2:
            raise ValueError(f"a predictive needs loc and scale of shape [S, N], got {tuple(loc.shape)}")
        object.__setattr__(self, "loc", loc)
        object.__setattr__(self, "scale", scale)

    @property
    def num_components(self) -> int:
        return self.loc.shape[0]

    @property
    def num_points(self) -> int:
        return self.loc.shape[1]

    def double(self) -> Predictive:
        """The same distribution in float64 on the CPU, where scores are computed."""
        return Predictive(self.loc.detach().cpu().double(), self.scale.detach().cpu().double())

    def rows(self, rows: slice) -> Predictive:
        """The distribution at some of the points."""
        return Predictive(self.loc[:, rows], self.scale[:, rows])

    def rescale(self, scale: float, shift: float) -> Predictive:
        """Distribution of `scale * y + shift`: back from standardised to original units."""
        return Predictive(self.loc * scale + shift, self.scale * abs(scale))

    @property
    def mean(self) -> Tensor:
        return self.loc.mean(0)  # [N]

    @property
    def variance(self) -> Tensor:
        # Var = E[σ²] + Var[μ]
        return self.scale.square().mean(0) + self.loc.var(0, correction=0)  # [N]

    def log_prob(self, y: Tensor) -> Tensor:
        """log 1/S Σₛ N(y | μₛ, σₛ²), of shape [N]."""
        z = (y - self.loc) / self.scale
        log_density = -0.5 * z.square() - self.scale.log() - 0.5 * math.log(2.0 * math.pi)  # [S, N]
        average: Tensor = log_density.logsumexp(0) - math.log(self.num_components)
        return average

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y), of shape [N]."""
        below: Tensor = torch.special.ndtr((y - self.loc) / self.scale)  # [S, N]
        return below.mean(0)

    def sample(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """Independent draws of y at each point, of shape [num_draws, N]."""
        shape = (num_draws, self.num_points)
        component = torch.randint(self.num_components, shape, generator=generator, device=self.loc.device)
        noise = torch.randn(shape, generator=generator, device=self.loc.device, dtype=self.loc.dtype)
        return self.loc.gather(0, component) + self.scale.gather(0, component) * noise

    def quantile(self, probability: float | Tensor) -> Tensor:
        """The y with P(Y ≤ y) = probability, for 0 < probability < 1: [N] or [Q, N] for Q probabilities."""
        levels = torch.as_tensor(probability, dtype=torch.float64)
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"quantiles exist for probabilities strictly between 0 and 1, got {probability}")
        wide = self.double()
        found = torch.cat([
            wide.rows(chunk)._quantiles(levels.reshape(-1))
            for chunk in _chunks(wide.num_points, wide.num_components)
        ], 1)  # [Q, N]
        return (found[0] if levels.dim() == 0 else found).to(self.loc)

    def _quantiles(self, levels: Tensor) -> Tensor:
        """[Q, N]: brackets from the distribution function on a shared grid, then Newton steps that stay inside them."""
        # A quantile of the mixture lies between the smallest and the largest quantile of its components.
        ends = torch.stack([levels.min(), levels.max()])
        normal: Tensor = torch.special.ndtri(ends)
        start, end = (self.loc + self.scale * normal[0]).amin(0), (self.loc + self.scale * normal[1]).amax(0)  # [N]
        nodes = start + torch.linspace(0.0, 1.0, QUANTILE_NODES, dtype=torch.float64)[:, None] * (end - start)  # [K, N]
        below = torch.stack([self.cdf(node) for node in nodes])  # [K, N]
        right = torch.searchsorted(below.mT.contiguous(), levels.expand(self.num_points, -1).contiguous()).mT  # [Q, N]
        right = right.clamp(1, QUANTILE_NODES - 1)
        low, high = nodes.gather(0, right - 1), nodes.gather(0, right)  # [Q, N]
        return torch.stack([self._newton(*bracket) for bracket in zip(levels, low, high, strict=True)])

    def _newton(self, level: Tensor, low: Tensor, high: Tensor) -> Tensor:
        t = 0.5 * (low + high)
        inverse = 1.0 / self.scale
        for _ in range(QUANTILE_STEPS):
            z = (t - self.loc) * inverse  # [S, N]
            gap = torch.special.ndtr(z).mean(0) - level
            found = gap.abs() < QUANTILE_TOLERANCE
            if bool(found.all()):
                break
            low, high = torch.where(gap < 0, t, low), torch.where(gap < 0, high, t)
            density = (z.square().mul_(-0.5).exp_().mul_(inverse)).mean(0) / SQRT_2PI
            step = t - gap / density
            # Outside the bracket, or where the density vanishes, halve the bracket instead.
            better = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
            t = torch.where(found, t, better)
        return t

    def crps(self, y: Tensor, method: Literal["auto", "pairs", "integral"] = "auto") -> Tensor:
        """Continuous ranked probability score at each point, [N]; lower is better.

        `pairs` is the closed form, `integral` the trapezoid rule with steps below the smallest scale, and `auto`
        whichever is cheaper. Both work in chunks: memory does not grow with N or S.
        """
        wide = self.double()
        y = y.detach().cpu().double()
        to_observation = torch.cat([
            _mean_absolute(y[chunk] - wide.loc[:, chunk], wide.scale[:, chunk]).mean(0)
            for chunk in _chunks(wide.num_points, wide.num_components)
        ])  # E|Y − y|, [N]
        return to_observation - wide._half_spread(method)

    def _half_spread(self, method: Literal["auto", "pairs", "integral"]) -> Tensor:
        """½ E|Y − Y'| = ∫ F(1 − F) dt at each point, [N]."""
        if self.num_components == 1:
            return self.scale[0] / math.sqrt(math.pi)
        low = (self.loc - TAIL * self.scale).amin(0)
        high = (self.loc + TAIL * self.scale).amax(0)
        intervals = ((high - low) / (STEP * self.scale.amin(0))).ceil()  # [N]
        by_integral = {"auto": intervals < self.num_components / 2, "integral": intervals >= 0, "pairs": intervals < 0}
        integral = by_integral[method]
        result = torch.empty(self.num_points, dtype=torch.float64)
        for rows in (integral.nonzero()[:, 0], (~integral).nonzero()[:, 0]):
            part = Predictive(self.loc[:, rows], self.scale[:, rows])
            if rows.numel() and bool(integral[rows[0]]):
                result[rows] = part._spread_by_integral(low[rows], high[rows], intervals[rows])
            elif rows.numel():
                result[rows] = part._spread_by_pairs()
        return result

    def _spread_by_integral(self, low: Tensor, high: Tensor, intervals: Tensor) -> Tensor:
        result = torch.empty(self.num_points, dtype=torch.float64)
        order = intervals.argsort()  # points of like resolution share a chunk
        nodes_at_most = int(intervals.max()) + 1
        for chunk in _chunks(self.num_points, self.num_components * nodes_at_most):
            points = order[chunk]
            steps = int(intervals[points[-1]])
            unit = torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float64)[:, None]  # [G, 1]
            t = low[points] + unit * (high - low)[points]  # [G, n]
            loc, inverse = self.loc[:, points], 1.0 / (math.sqrt(2.0) * self.scale[:, points])  # [S, n]
            # 2F − 1 = mean erf((t − μ) / (√2 σ)), and F(1 − F) = (1 − (2F − 1)²) / 4
            centred = (t[:, None, :] - loc).mul_(inverse).erf_().mean(1)  # [G, n]
            result[points] = (1.0 - centred.square()).sum(0) * (high - low)[points] / (4.0 * steps)
        return result

    def _spread_by_pairs(self) -> Tensor:
        S = self.num_components
        first, second = torch.triu_indices(S, S, offset=1)
        off_diagonal = torch.zeros(self.num_points, dtype=torch.float64)
        for points in _chunks(self.num_points, S):
            loc, scale = self.loc[:, points], self.scale[:, points]
            for pairs in _chunks(first.numel(), loc.shape[1]):
                s, t = first[pairs], second[pairs]
                off_diagonal[points] += _mean_absolute(loc[s] - loc[t], torch.hypot(scale[s], scale[t])).sum(0)
        # A(0, 2σ²) = 2σ/√π on the diagonal
        diagonal = self.scale.sum(0) * 2.0 / math.sqrt(math.pi)
        return (2.0 * off_diagonal + diagonal) / (2.0 * S * S)


def concatenate(parts: Sequence[Predictive]) -> Predictive:
    """Predictives of several pieces of x as one, in order."""
    return Predictive(torch.cat([part.loc for part in parts], 1), torch.cat([part.scale for part in parts], 1))


def crps_ensemble(draws: Tensor, y: Tensor, fair: bool = False) -> Tensor:
    """CRPS from draws [S, N] in O(S log S): 1/S Σ|dₛ − y| − 1/S² Σₖ (2k − S − 1) d₍ₖ₎.

    With `fair` the second divisor is S(S − 1), which removes the bias of about E|d − d'| / (2S).
    """
    draws, y = draws.detach().cpu().double(), y.detach().cpu().double()
    S = draws.shape[0]
    if fair and S < 2:
        raise ValueError("the fair ensemble CRPS needs at least two draws")
    weights = 2.0 * torch.arange(1, S + 1, dtype=torch.float64) - S - 1.0  # [S]
    spread = weights @ draws.sort(0).values  # [N]
    return (draws - y).abs().mean(0) - spread / (S * (S - 1) if fair else S * S)


def _mean_absolute(mean: Tensor, scale: Tensor) -> Tensor:
    """A(m, s²) = E|N(m, s²)| = 2 s φ(m/s) + m (2 Φ(m/s) − 1)."""
    z = mean / scale
    density = torch.exp(-0.5 * z.square()) / SQRT_2PI
    return 2.0 * scale * density + mean * torch.erf(z / math.sqrt(2.0))


def _chunks(total: int, elements_each: int) -> Iterator[slice]:
    size = max(1, CHUNK_ELEMENTS // max(1, elements_each))
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
