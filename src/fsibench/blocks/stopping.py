"""How far a fit may go before it learns its rows by heart, found on rows that it does not see.

The length of a fit is the sum of its learning rates, its travel: a longer budget with the same travel takes smaller steps.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from fsibench.predictive import Predictive

FIRST_LOOK, GROWTH = 0.25, 1.2
# Rather too long than so short that nothing is learned.
SHORTEST = 1.0
LOWEST = -1e9  # of a look without a finite score


class Predicting(Protocol):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive: ...


class BestTravel:
    """Mean log-likelihoods of held-out rows along a fit, each 1.2 times as far as the one before."""

    def __init__(self, x: Tensor, y: Tensor, seed: int) -> None:
        self._x, self._y, self._seed = x, y, seed
        self.looks: list[tuple[float, float]] = []  # (travel, score)

    def look(self, travelled: float, posterior: Predicting) -> bool:
        """Look if one is due; true if this is the best one yet."""
        last = self.looks[-1][0] if self.looks else FIRST_LOOK / GROWTH
        if travelled < GROWTH * last:
            return False
        # the same random numbers every time: looks differ by what the fit has learned
        stream = torch.Generator(self._x.device).manual_seed(self._seed)
        found = posterior.predict(self._x, stream).log_prob(self._y).mean().item()
        score = found if math.isfinite(found) else LOWEST
        best = max((score for _, score in self.looks), default=-math.inf)
        self.looks.append((travelled, score))
        return score > best

    def choice(self) -> float | None:
        """Where the mean of three looks in a row is highest; None, no limit, where that is at the end."""
        if len(self.looks) < 3:
            return None
        smooth = [sum(score for _, score in self.looks[i - 1 : i + 2]) for i in range(1, len(self.looks) - 1)]
        best = max(range(len(smooth)), key=smooth.__getitem__)
        return None if best == len(smooth) - 1 else max(SHORTEST, self.looks[best + 1][0])
