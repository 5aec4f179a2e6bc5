"""The predictive distribution p(y|x) and its scores: one place for all methods.

A predictive is a mixture of Gaussians at each point, of equal weights unless others are given; a plain Gaussian is a
mixture of one. That covers weight-space samplers (one component per draw), SIP (one per sample of u), Gaussian processes.
With `df` the components are Student-t (`student_t`). `values` is for methods that only give values.

CRPS of a mixture, with A(m, v) = E|N(m, v)| = 2 s φ(m/s) + m (2 Φ(m/s) − 1) and s² = v:

    CRPS = 1/S Σₛ A(y − μₛ, σₛ²) − 1/(2 S²) Σₛₜ A(μₛ − μₜ, σₛ² + σₜ²)

or with wₛ for 1/S and wₛwₜ for 1/S². The pair sum costs S² per point. It equals ∫ F(1 − F) dt, which the trapezoid rule gives to about 1e-10 when its step is
a little below the smallest σₛ: fewer than S nodes often suffice, and the pair sum remains for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
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
        return self.made(self.loc * scale + shift, self.scale * abs(scale), self.weights, self._df)

    def made(self, loc: Tensor, scale: Tensor, weights: Tensor | None, df: Tensor | None) -> Predictive:
        """Another one of the same kind."""
        return Predictive(loc, scale, weights, df)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Predictive:
        parts = (self.loc, self.scale, self.weights, self._df)
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
        if not bool(torch.isfinite(self.loc).all()) or not bool(torch.isfinite(self.scale).all()):
            return "is not finite"
        if not bool((self.scale > 0).all()):
            return f"has a {'negative' if bool((self.scale < 0).any()) else 'zero'} scale; it must be positive"
        return None

    def averaged(self, values: Tensor) -> Tensor:
        """Σₛ wₛ vₛ of values [S, N]."""
        return values.mean(0) if self.weights is None else (self.weights * values).sum(0)

    @property
    def mean(self) -> Tensor:
        return self.averaged(self.loc)  # [N]

    @property
    def variance(self) -> Tensor:
        # Var = E[σ²] + Var[μ], where a Student-t component has σ² = s² ν/(ν − 2)
        within = self.scale.square() if self._df is None else self.scale.square() * self._df / (self._df - 2.0)
        return self.averaged(within) + self.averaged((self.loc - self.mean).square())  # [N]

    def log_prob(self, y: Tensor) -> Tensor:
        """log Σₛ wₛ p(y | μₛ, σₛ), of shape [N]."""
        z = (y - self.loc) / self.scale
        of_z = -0.5 * z.square() - 0.5 * math.log(2.0 * math.pi) if self._df is None else student().log_density(z, self._df)
        log_density = of_z - self.scale.log()  # [S, N]
        log_weights = -math.log(self.num_components) if self.weights is None else self.weights.log()
        return (log_density + log_weights).logsumexp(0)

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y), of shape [N]."""
        return self.averaged(self._below((y - self.loc) / self.scale))

    def _below(self, z: Tensor) -> Tensor:
        """Distribution functions of the components in standard units, [S, N]."""
        below: Tensor = torch.special.ndtr(z) if self._df is None else student().cdf(z, self._df)
        return below

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
        found = torch.cat([
            wide.rows(chunk)._quantiles(levels.reshape(-1))
            for chunk in _chunks(wide.num_points, wide.num_components)
        ], 1)  # [Q, N]
        return (found[0] if levels.dim() == 0 else found).to(self.loc)

    def _quantiles(self, levels: Tensor) -> Tensor:
        """[Q, N]: brackets from the distribution function on a shared grid, then Newton steps that stay inside them."""
        # A quantile of the mixture lies between the smallest and the largest quantile of its components.
        ends = torch.stack([levels.min(), levels.max()])
        low, high = (self._standard_quantile(end) for end in ends)
        start, end = (self.loc + self.scale * low).amin(0), (self.loc + self.scale * high).amax(0)  # [N]
        nodes = start + torch.linspace(0.0, 1.0, QUANTILE_NODES, dtype=torch.float64)[:, None] * (end - start)  # [K, N]
        below = torch.stack([self.cdf(node) for node in nodes])  # [K, N]
        right = torch.searchsorted(below.mT.contiguous(), levels.expand(self.num_points, -1).contiguous()).mT  # [Q, N]
        right = right.clamp(1, QUANTILE_NODES - 1)
        low, high = nodes.gather(0, right - 1), nodes.gather(0, right)  # [Q, N]
        return torch.stack([self._newton(*bracket) for bracket in zip(levels, low, high, strict=True)])

    def _standard_quantile(self, level: Tensor) -> Tensor:
        found: Tensor = torch.special.ndtri(level)
        return found if self._df is None else student().inverse_cdf(level.expand_as(self._df), self._df)

    def _newton(self, level: Tensor, low: Tensor, high: Tensor) -> Tensor:
        t = 0.5 * (low + high)
        inverse = 1.0 / self.scale
        for _ in range(QUANTILE_STEPS):
            z = (t - self.loc) * inverse  # [S, N]
            gap = self.averaged(self._below(z)) - level
            found = gap.abs() < QUANTILE_TOLERANCE
            if bool(found.all()):
                break
            low, high = torch.where(gap < 0, t, low), torch.where(gap < 0, high, t)
            if self._df is None:
                density = self.averaged(z.square().mul_(-0.5).exp_().mul_(inverse)) / SQRT_2PI
            else:
                density = self.averaged(student().log_density(z, self._df).exp() * inverse)
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
            wide.rows(chunk)._mean_distance(y[chunk]) for chunk in _chunks(wide.num_points, wide.num_components)
        ])
        return to_observation - wide._half_spread(method)

    def _mean_distance(self, y: Tensor) -> Tensor:
        """E|Y − y|, [N]."""
        if self._df is None:
            return self.averaged(_mean_absolute(y - self.loc, self.scale))
        distance: Tensor = student().mean_absolute((y - self.loc) / self.scale, self._df)
        return self.averaged(self.scale * distance)

    def _half_spread(self, method: Literal["auto", "pairs", "integral"]) -> Tensor:
        """½ E|Y − Y'| = ∫ F(1 − F) dt at each point, [N]; of Student-t mixtures always by their own integral."""
        if self.num_components == 1:
            unit: float | Tensor = math.pi**-0.5 if self._df is None else student().half_spread(self._df[0])
            return self.scale[0] * unit
        if self._df is not None:
            weights = torch.full_like(self.loc, 1.0 / len(self.loc)) if self.weights is None else self.weights
            spread: Tensor = student().half_spread_of_mixture(self.loc, self.scale, self._df, weights)
            return spread
        low = (self.loc - TAIL * self.scale).amin(0)
        high = (self.loc + TAIL * self.scale).amax(0)
        intervals = ((high - low) / (STEP * self.scale.amin(0))).ceil()  # [N]
        by_integral = {"auto": intervals < self.num_components / 2, "integral": intervals >= 0, "pairs": intervals < 0}
        integral = by_integral[method]
        result = torch.empty(self.num_points, dtype=torch.float64)
        for rows in (integral.nonzero()[:, 0], (~integral).nonzero()[:, 0]):
            part = self.rows(rows)
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
            # 2F − 1 = Σ wₛ erf((t − μₛ) / (√2 σₛ)), and F(1 − F) = (1 − (2F − 1)²) / 4
            signed = (t[:, None, :] - loc).mul_(inverse).erf_()  # [G, S, n]
            centred = signed.mean(1) if self.weights is None else signed.mul_(self.weights[:, points]).sum(1)  # [G, n]
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
                distances = _mean_absolute(loc[s] - loc[t], torch.hypot(scale[s], scale[t]))
                if self.weights is not None:
                    distances *= self.weights[s][:, points] * self.weights[t][:, points]
                off_diagonal[points] += distances.sum(0)
        # A(0, 2σ²) = 2σ/√π on the diagonal
        if self.weights is None:
            return off_diagonal / S**2 + self.scale.sum(0) / (math.sqrt(math.pi) * S**2)
        return off_diagonal + (self.weights.square() * self.scale).sum(0) / math.sqrt(math.pi)


def concatenate(parts: Sequence[Predictive]) -> Predictive:
    """Predictives of several pieces of x as one, in order."""
    joined = [
        None if columns[0] is None else torch.cat([column for column in columns if column is not None], 1)
        for columns in zip(*((part.loc, part.scale, part.weights, part._df) for part in parts), strict=True)
    ]
    loc, scale, weights, df = joined
    assert loc is not None
    assert scale is not None
    return parts[0].made(loc, scale, weights, df)


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
