"""How far a fit may go before it learns its rows by heart, and how much noise its predictions lack, found on rows that it does not see.

A fit that follows its rows more and more closely has two faults that look alike in a log-likelihood: its mean becomes worse, or only
its noise too small. So each look asks for the variance that, added to the predictions, gives held-out rows the highest
log-likelihood; what is compared between looks is that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fsibench.predictive import Predictive

FIRST_LOOK, GROWTH = 0.25, 1.2
# Rather too long than so short that nothing is learned.
SHORTEST = 1.0
# This many times as far as the best look, nothing better is expected.
PATIENCE = 3.0
LOWEST = -1e9  # of a look without a finite score
# In units of the target's variance; the last one explains everything.
EXTRA_VARIANCES = (0.0, *(10.0 ** (-6.0 + 0.25 * k) for k in range(25)))


class Predicting(Protocol):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive: ...


@dataclass(frozen=True)
class Look:
    """At one place of a fit: the highest mean log-likelihood of held-out rows, and the added variance that gives it."""

    travel: float
    score: float
    extra: float


class HeldOutLooks:
    """Looks along a fit, each 1.2 times as far as the one before. The length of a fit is the sum of its learning rates, its travel."""

    def __init__(self, x: Tensor, y: Tensor, seed: int) -> None:
        self._x, self._y, self._seed = x, y, seed
        self.looks: list[Look] = []

    def due(self, travel: float) -> bool:
        return travel >= (GROWTH * self.looks[-1].travel if self.looks else FIRST_LOOK)

    @torch.no_grad()
    def look(self, travel: float, posterior: Predicting) -> Look:
        # the same random numbers every time: looks differ by what the fit has learned
        predictive = posterior.predict(self._x, torch.Generator(self._x.device).manual_seed(self._seed))
        score, extra = max((self._score(predictive, extra), extra) for extra in EXTRA_VARIANCES)
        self.looks.append(Look(travel, score, extra))
        return self.looks[-1]

    def _score(self, predictive: Predictive, extra: float) -> float:
        widened = Predictive(predictive.loc, (predictive.scale.square() + extra).sqrt())
        found = widened.log_prob(self._y).mean().item()
        return found if math.isfinite(found) else LOWEST

    @property
    def best(self) -> int:
        """Number of the look with the highest score."""
        return max(range(len(self.looks)), key=lambda i: self.looks[i].score)

    @property
    def is_past_the_best(self) -> bool:
        return bool(self.looks) and self.looks[-1].travel >= PATIENCE * max(SHORTEST, self.looks[self.best].travel)

    def choice(self) -> int | None:
        """Number of the look at which the mean of three in a row is highest; None, go on, where that is at the end."""
        if len(self.looks) < 3:
            return None
        smooth = [sum(look.score for look in self.looks[i - 1 : i + 2]) for i in range(1, len(self.looks) - 1)]
        chosen = 1 + max(range(len(smooth)), key=smooth.__getitem__)
        if chosen == len(smooth):
            return None
        return next((i for i in range(chosen, len(self.looks)) if self.looks[i].travel >= SHORTEST), None)
