"""The predictive distribution p(y|x) and its scores: one place for all methods.

A predictive is a mixture of Gaussians at each point, of equal weights unless others are given; a plain Gaussian is a
mixture of one. That covers weight-space samplers (one component per draw), SIP (one per sample of u), Gaussian processes.
With `df` the components are Student-t (`student_t`). `values` is for methods that only give values.

CRPS of a mixture, with A(m, v) = E|N(m, v)| = 2 s φ(m/s) + m (2 Φ(m/s) − 1) and s² = v:

    CRPS = 1/S Σₛ A(y − μₛ, σₛ²) − 1/(2 S²) Σₛₜ A(μₛ − μₜ, σₛ² + σₜ²)

or with wₛ for 1/S and wₛwₜ for 1/S². The second sum equals ∫ F(1 − F) dt; `spread` computes it without visiting all
pairs. Where all components of a point have one scale, F at many values and quantiles come from a grid (`grid`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from fsibench.predictive import grid, spread
from fsibench.predictive.spread import SQRT_2PI, chunks

# Quantiles: nodes of the grid that brackets them, steps inside the bracket at most, and the error of F that ends them.
QUANTILE_NODES = 65
QUANTILE_STEPS = 60
QUANTILE_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Predictive:
    """Mixture at N points: `loc` and `scale` broadcast to one shape [S, N].

    `weights` [S] or [S, N] are positive and are divided by their sum; None means equal ones. `df`, a number or a tensor
    that broadcasts to [S, N], are degrees of freedom of Student-t components, above 2; None means Gaussians.
    """

    loc: Tensor
    scale: Tensor
    weights: Tensor | None = None
    df: Tensor | float | None = None

    def __post_init__(self) -> None:
        loc, scale = torch.broadcast_tensors(self.loc, self.scale)
        if loc.dim() != 2:
            raise ValueError(f"a predictive needs loc and scale of shape [S, N], got {tuple(loc.shape)}")
        object.__setattr__(self, "loc", loc)
        object.__setattr__(self, "scale", scale)
        if self.weights is not None:
            object.__setattr__(self, "weights", _shares(self.weights, loc))
        if self.df is not None:
            df = torch.as_tensor(self.df, dtype=loc.dtype, device=loc.device).expand(loc.shape)
            if not bool((df > 2.0).all()):
                raise ValueError("Student-t components need more than 2 degrees of freedom: below, no variance exists")
            object.__setattr__(self, "df", df)

    @property
    def num_components(self) -> int:
        return self.loc.shape[0]

    @property
    def num_points(self) -> int:
        return self.loc.shape[1]

    def double(self) -> Predictive:
        """The same distribution in float64 on the CPU, where scores are computed."""
        return self._each(lambda part: part.detach().cpu().double())

    def rows(self, rows: slice | Tensor) -> Predictive:
        """The distribution at some of the points."""
        return self._each(lambda part: part[:, rows])

    def rescale(self, scale: float, shift: float) -> Predictive:
        """Distribution of `scale * y + shift`: back from standardised to original units."""
        return self.made(self.loc * scale + shift, once(self.scale) * abs(scale), self.weights, self._df)

    def made(self, loc: Tensor, scale: Tensor, weights: Tensor | None, df: Tensor | None) -> Predictive:
        """Another one of the same kind."""
        return Predictive(loc, scale, weights, df)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Predictive:
        parts = (self.loc, once(self.scale), self.weights, self._df)
        loc, scale, weights, df = (None if part is None else change(part) for part in parts)
        assert loc is not None
        assert scale is not None
        return self.made(loc, scale, weights, df)

    @property
    def _df(self) -> Tensor | None:
        assert not isinstance(self.df, float)  # a tensor since it was made
        return self.df

    def fault(self) -> str | None:
        """What keeps these numbers from being a distribution, or None."""
        scale = once(self.scale)
        if not bool(torch.isfinite(self.loc).all()) or not bool(torch.isfinite(scale).all()):
            return "is not finite"
        if not bool((scale > 0).all()):
            return f"has a {'negative' if bool((scale < 0).any()) else 'zero'} scale; it must be positive"
        return None

    def averaged(self, values: Tensor) -> Tensor:
        """Σₛ wₛ vₛ of values [..., S, N]."""
        return values.mean(-2) if self.weights is None else (self.weights * values).sum(-2)

    @functools.cached_property
    def mean(self) -> Tensor:
        return self.averaged(self.loc)  # [N]

    @functools.cached_property
    def variance(self) -> Tensor:
        # Var = E[σ²] + Var[μ], where a Student-t component has σ² = s² ν/(ν − 2)
        within = self.scale.square() if self._df is None else self.scale.square() * self._df / (self._df - 2.0)
        return self.averaged(within) + self.averaged((self.loc - self.mean).square())  # [N]

    def log_prob(self, y: Tensor) -> Tensor:
        """log Σₛ wₛ p(y | μₛ, σₛ), of shape [N]."""
        return self._by_chunks(Predictive._log_prob, y)

    def _log_prob(self, y: Tensor) -> Tensor:
        scale = once(self.scale)
        z = (y - self.loc) / scale
        log_density: Tensor
        if self._df is not None:
            log_density = student().log_density(z, self._df) - scale.log()  # [S, N]
        else:
            log_density = -0.5 * z.square() - (scale.log() + 0.5 * math.log(2.0 * math.pi))
        if self.weights is None:
            return log_density.logsumexp(0) - math.log(self.num_components)
        return (log_density + self.weights.log()).logsumexp(0)

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y), of shape [N]."""
        return self._by_chunks(lambda part, y: part.averaged(part._below((y - part.loc) / once(part.scale))), y)

    def _by_chunks(self, function: Callable[[Predictive, Tensor], Tensor], y: Tensor) -> Tensor:
        """A function of the distributions and y [N], some points at a time: temporaries stay in the processor's cache."""
        pieces = list(chunks(self.num_points, self.num_components))
        if len(pieces) == 1 or y.shape != self.loc.shape[1:]:
            return function(self, y)
        return torch.cat([function(self.rows(piece), y[piece]) for piece in pieces])

    def _below(self, z: Tensor) -> Tensor:
        """Distribution functions of the components in standard units, [S, N]."""
        if self._df is not None:
            below: Tensor = student().cdf(z, self._df)
            return below
        # Φ(z) = ½ erfc(−z/√2), to the last digit in both tails and in a third of the time of `ndtr`
        return torch.erfc(z * -math.sqrt(0.5)).mul_(0.5)

    def cdf_at(self, thresholds: Tensor) -> Tensor:
        """P(Y ≤ z) at every point for thresholds [Z] that all points share: [Z, N], absolute error below 1e-8."""
        wide, thresholds = self.double(), thresholds.detach().cpu().double()
        result = torch.empty(len(thresholds), wide.num_points, dtype=torch.float64)
        on_grid, rest = wide._grid_and_rest()
        for points, found in on_grid:
            result[:, points] = found.cdf(thresholds[:, None])
        for chunk in chunks(len(rest), wide.num_components * len(thresholds)):
            result[:, rest[chunk]] = wide.rows(rest[chunk])._cdf_at(thresholds)
        return result

    def _cdf_at(self, thresholds: Tensor) -> Tensor:
        z = (thresholds[:, None, None] - self.loc) / self.scale  # [Z, S, N]
        if self._df is not None:
            return self.averaged(self._below(z))
        return self.averaged(z.mul_(math.sqrt(0.5)).erf_()).mul_(0.5).add_(0.5)

    def _grid_and_rest(self) -> tuple[Iterator[tuple[Tensor, grid.GridDistribution]], Tensor]:
        """Points whose distribution function is cheaper from a grid, in pieces; and the numbers of the others."""
        num_nodes = grid.nodes_needed(self.loc, self.scale[0])
        scale = once(self.scale)
        one_scale = (scale.amin(0) == scale.amax(0)) & (self.num_components >= spread.FEWEST_FOR_GRID)
        suited = one_scale & (num_nodes <= spread.NODES_PER_COMPONENT * self.num_components)
        if self._df is not None or not bool(suited.any()):
            return iter(()), torch.arange(self.num_points)
        points = suited.nonzero()[:, 0]
        part = self.rows(points)
        pieces = grid.distributions(part.loc, part.scale[0], part.weights, num_nodes[points], derivatives=True)
        return ((points[numbers], found) for numbers, found in pieces), (~suited).nonzero()[:, 0]

    def drawn_components(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """Numbers of components, by their weights, [num_draws, N]."""
        shape = (num_draws, self.num_points)
        if self.weights is None:
            return torch.randint(self.num_components, shape, generator=generator, device=self.loc.device)
        return torch.multinomial(self.weights.mT, num_draws, replacement=True, generator=generator).mT

    def sample(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """Independent draws of y at each point, of shape [num_draws, N]."""
        component = self.drawn_components(num_draws, generator)
        if self._df is None:
            noise = torch.randn(component.shape, generator=generator, device=self.loc.device, dtype=self.loc.dtype)
        else:
            uniform = torch.rand(component.shape, generator=generator, device=self.loc.device, dtype=torch.float64)
            noise = student().inverse_cdf(uniform, self._df.gather(0, component)).to(self.loc.dtype)
        return self.loc.gather(0, component) + self.scale.gather(0, component) * noise

    def quantile(self, probability: float | Tensor) -> Tensor:
        """The y with P(Y ≤ y) = probability, for 0 < probability < 1: [N] or [Q, N] for Q probabilities."""
        levels = torch.as_tensor(probability, dtype=torch.float64)
        if not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"quantiles exist for probabilities strictly between 0 and 1, got {probability}")
        wide = self.double()
        found = wide._quantiles(levels.reshape(-1))  # [Q, N]
        return (found[0] if levels.dim() == 0 else found).to(self.loc)

    def _quantiles(self, levels: Tensor) -> Tensor:
        if self.num_components == 1:
            return self.loc + self.scale * torch.stack([self._standard_quantile(level).expand_as(self.loc)[0] for level in levels])
        result = torch.empty(len(levels), self.num_points, dtype=torch.float64)
        on_grid, rest = self._grid_and_rest()
        for points, found in on_grid:
            result[:, points] = found.quantile(levels)
        for chunk in chunks(len(rest), self.num_components * len(levels)):
            result[:, rest[chunk]] = self.rows(rest[chunk])._quantiles_by_newton(levels)
        return result

    def _quantiles_by_newton(self, levels: Tensor) -> Tensor:
        """[Q, N]: brackets from the distribution function on a shared grid, then Newton steps that stay inside them."""
        # A quantile of the mixture lies between the smallest and the largest quantile of its components.
        ends = torch.stack([levels.min(), levels.max()])
        low, high = (self._standard_quantile(end) for end in ends)
        start, end = (self.loc + self.scale * low).amin(0), (self.loc + self.scale * high).amax(0)  # [N]
        nodes = start + torch.linspace(0.0, 1.0, QUANTILE_NODES, dtype=torch.float64)[:, None] * (end - start)  # [K, N]
        below = self._cdf_and_density(nodes, density=False)[0]  # [K, N]
        right = torch.searchsorted(below.mT.contiguous(), levels.expand(self.num_points, -1).contiguous()).mT  # [Q, N]
        right = right.clamp(1, QUANTILE_NODES - 1)
        low, high = nodes.gather(0, right - 1), nodes.gather(0, right)  # [Q, N]
        at_low, at_high = below.gather(0, right - 1), below.gather(0, right)
        share = ((levels[:, None] - at_low) / (at_high - at_low).clamp_min(1e-300)).clamp(0.0, 1.0)
        return self._newton(levels, low, high, low + share * (high - low))

    def _standard_quantile(self, level: Tensor) -> Tensor:
        found: Tensor = torch.special.ndtri(level)
        return found if self._df is None else student().inverse_cdf(level.expand_as(self._df), self._df)

    def _cdf_and_density(self, t: Tensor, density: bool = True) -> tuple[Tensor, Tensor]:
        """F and its derivative at t [Q, N], both [Q, N]; without `density` the second is empty."""
        z = (t[:, None] - self.loc) / self.scale  # [Q, S, N]
        slope = torch.empty(0)
        if self._df is not None:
            if density:
                slope = self.averaged(student().log_density(z, self._df).exp() / self.scale)
            return self.averaged(self._below(z)), slope
        if density:
            slope = self.averaged(z.square().mul_(-0.5).exp_().div_(self.scale)) / SQRT_2PI
        return self.averaged(z.mul_(math.sqrt(0.5)).erf_()).mul_(0.5).add_(0.5), slope

    def _newton(self, levels: Tensor, low: Tensor, high: Tensor, t: Tensor) -> Tensor:
        for _ in range(QUANTILE_STEPS):
            below, density = self._cdf_and_density(t)
            gap = below - levels[:, None]
            found = gap.abs() < QUANTILE_TOLERANCE
            if bool(found.all()):
                break
            low, high = torch.where(gap < 0, t, low), torch.where(gap < 0, high, t)
            step = t - gap / density
            # Outside the bracket, or where the density vanishes, halve the bracket instead.
            better = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
            t = torch.where(found, t, better)
        return t

    def crps(self, y: Tensor, algorithm: spread.Algorithm = "auto") -> Tensor:
        """Continuous ranked probability score at each point, [N]; lower is better. `spread` explains the algorithms."""
        wide = self.double()
        y = y.detach().cpu().double()
        to_observation = wide._by_chunks(lambda part, y: part._mean_distance(y), y)
        return to_observation - wide._half_spread(algorithm)

    def _mean_distance(self, y: Tensor) -> Tensor:
        """E|Y − y|, [N]."""
        if self._df is None:
            return self.averaged(spread.mean_absolute(y - self.loc, once(self.scale)))
        distance: Tensor = student().mean_absolute((y - self.loc) / self.scale, self._df)
        return self.averaged(self.scale * distance)

    def _half_spread(self, algorithm: spread.Algorithm) -> Tensor:
        """½ E|Y − Y'| at each point, [N]; of Student-t mixtures always by their own integral."""
        if self.num_components == 1:
            unit: float | Tensor = math.pi**-0.5 if self._df is None else student().half_spread(self._df[0])
            return self.scale[0] * unit
        if self._df is None:
            return spread.half_spread(self.loc, once(self.scale), self.weights, algorithm)
        weights = torch.full_like(self.loc, 1.0 / len(self.loc)) if self.weights is None else self.weights
        found: Tensor = student().half_spread_of_mixture(self.loc, self.scale, self._df, weights)
        return found


def concatenate(parts: Sequence[Predictive]) -> Predictive:
    """Predictives of several pieces of x as one, in order."""
    compact = all(is_shared(part.scale) for part in parts)
    scales = [once(part.scale) if compact else part.scale for part in parts]
    loc, weights, df = (
        None if columns[0] is None else torch.cat([column for column in columns if column is not None], 1)
        for columns in zip(*((part.loc, part.weights, part._df) for part in parts), strict=True)
    )
    assert loc is not None
    return parts[0].made(loc, torch.cat(scales, 1), weights, df)


def is_shared(part: Tensor) -> bool:
    """Whether all components share one row of numbers, as with a scale that was given once."""
    return len(part) > 1 and part.stride(0) == 0


def once(part: Tensor) -> Tensor:
    """[1, N] where all components share one row of numbers, else [S, N] as it is."""
    return part[:1] if is_shared(part) else part


def student() -> ModuleType:
    """The module of Student-t formulas: scipy is loaded only where such components occur."""
    import fsibench.predictive.student_t as module

    return module


def _shares(weights: Tensor, like: Tensor) -> Tensor:
    """Weights [S] or [S, N] as shares [S, N] of their sum over components."""
    weights = weights.to(like)
    weights = (weights[:, None] if weights.dim() == 1 else weights).expand(like.shape)
    if not (bool(torch.isfinite(weights).all()) and bool((weights >= 0.0).all()) and bool((weights.sum(0) > 0.0).all())):
        raise ValueError("weights of a predictive must be finite, not negative, and positive for one component at least")
    return weights / weights.sum(0)


def crps_ensemble(draws: Tensor, y: Tensor, fair: bool = False) -> Tensor:
    """CRPS from draws [S, N] in O(S log S): 1/S Σ|dₛ − y| − 1/S² Σₖ (2k − S − 1) d₍ₖ₎.

    With `fair` the second divisor is S(S − 1), which removes the bias of about E|d − d'| / (2S).
    """
    draws, y = draws.detach().cpu().double(), y.detach().cpu().double()
    S = draws.shape[0]
    if fair and S < 2:
        raise ValueError("the fair ensemble CRPS needs at least two draws")
    # [N, S]: numpy sorts rows several times faster than torch sorts columns
    rows = np.sort(np.ascontiguousarray(draws.mT.numpy()), 1)
    weights = 2.0 * np.arange(1, S + 1) - S - 1.0  # [S]
    between = torch.from_numpy(rows @ weights)  # Σₖ (2k − S − 1) d₍ₖ₎, [N]
    to_observation = torch.from_numpy(np.abs(rows - y.numpy()[:, None]).mean(1))
    return to_observation - between / (S * (S - 1) if fair else S * S)

