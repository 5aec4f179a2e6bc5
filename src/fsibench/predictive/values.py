"""A predictive distribution that is a set of values: quantile forests, bootstraps, simulators.

It has a distribution function, quantiles, moments and an exact CRPS, and no density: `log_prob` is nan, so no
log-likelihood is stored for it. Nothing has to invent a bandwidth.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fsibench.predictive.mixture import Predictive


class SamplePredictive(Predictive):
    """Values [S, N] at N points, with weights [S] or [S, N]; equal ones where none are given."""

    def __init__(self, values: Tensor, weights: Tensor | None = None) -> None:
        super().__init__(values, torch.zeros_like(values), weights)

    @classmethod
    def from_quantiles(cls, levels: Tensor, values: Tensor) -> SamplePredictive:
        """Values [Q, N] at increasing probabilities `levels` [Q]: each carries the levels nearer to it than to others."""
        levels = torch.as_tensor(levels, dtype=values.dtype, device=values.device)
        inside = bool(((levels > 0.0) & (levels < 1.0)).all()) and bool((levels.diff() > 0.0).all())
        if levels.shape != values.shape[:1] or not inside:
            raise ValueError(f"expected one increasing level between 0 and 1 for each row of values, got {levels.tolist()}")
        ends = torch.cat([levels.new_zeros(1), 0.5 * (levels[1:] + levels[:-1]), levels.new_ones(1)])
        return cls(values, ends.diff())

    def made(self, loc: Tensor, scale: Tensor, weights: Tensor | None, df: Tensor | None) -> SamplePredictive:
        return SamplePredictive(loc, weights)

    def fault(self) -> str | None:
        return None if bool(torch.isfinite(self.loc).all()) else "is not finite"

    def log_prob(self, y: Tensor) -> Tensor:
        """nan: a set of values has no density."""
        return torch.full_like(self.loc[0], torch.nan)

    def cdf(self, y: Tensor) -> Tensor:
        return self.averaged((self.loc <= y).to(self.loc.dtype))

    def cdf_at(self, thresholds: Tensor) -> Tensor:
        values, weights = self._sorted()
        wanted = thresholds.to(values).expand(self.num_points, -1).contiguous()  # [N, Z]
        count = torch.searchsorted(values.mT.contiguous(), wanted, right=True)  # values at or below a threshold
        cumulated = torch.nn.functional.pad(weights.cumsum(0), (0, 0, 1, 0)).clamp_max_(1.0)  # [S + 1, N]
        return cumulated.gather(0, count.mT)

    def sample(self, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.loc.gather(0, self.drawn_components(num_draws, generator))

    def _sorted(self) -> tuple[Tensor, Tensor]:
        """Values in increasing order and their weights, [S, N] each."""
        rows = np.ascontiguousarray(self.loc.mT.numpy())  # numpy sorts rows several times faster than torch sorts columns
        if self.weights is None:
            return torch.from_numpy(np.sort(rows, 1)).mT, torch.full_like(self.loc, 1.0 / len(self.loc))
        order = torch.from_numpy(rows.argsort(1)).mT
        return self.loc.gather(0, order), self.weights.gather(0, order)

    def _quantiles(self, levels: Tensor) -> Tensor:
        """The smallest value with at least that probability at or below it, [Q, N]."""
        values, weights = self._sorted()
        cumulated = weights.cumsum(0).mT.contiguous()  # [N, S]
        # a level such as 0.3 of ten equal weights is reached by the third value, whatever rounding says
        wanted = (levels - 1e-12).expand(self.num_points, -1).contiguous()
        index = torch.searchsorted(cumulated, wanted).clamp_max(self.num_components - 1).mT  # [Q, N]
        return values.gather(0, index)

    def _mean_distance(self, y: Tensor) -> Tensor:
        return self.averaged((self.loc - y).abs())

    def _half_spread(self, method: str) -> Tensor:
        """½ Σ_st w_s w_t |v_s − v_t| = Σ_k C_k (1 − C_k) (v_(k+1) − v_(k)) with C the cumulated weights."""
        values, weights = self._sorted()
        below = weights.cumsum(0)[:-1]
        return (below * (1.0 - below) * values.diff(dim=0)).sum(0)
