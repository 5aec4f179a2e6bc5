"""How far a fit may go before it learns its rows by heart, and how much noise its predictions lack, found on rows that it does not see.

A fit that follows its rows more and more closely has two faults that look alike in a log-likelihood: its mean becomes worse, or only
its noise too small. So each look asks for the variance that, added to the predictions, gives held-out rows the highest
log-likelihood; what is compared between looks is that. One row in a hundred may be anything, or a single odd one would set the
noise of all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fsibench.blocks.likelihoods import gaussian_log_density
from fsibench.blocks.training import Schedule
from fsibench.predictive import Predictive

FIRST_LOOK, GROWTH = 0.25, 1.2
# Rather too long than so short that nothing is learned.
SHORTEST = 1.0
# This many times as far as the best look, nothing better is expected.
PATIENCE = 3.0
LOWEST = -1e9  # of a look without a finite score
# Of standardised targets: the share of odd rows, and the standard deviation of their normal distribution.
ODD_SHARE, ODD_SCALE = 0.01, 3.0
# In units of the target's variance; the last one explains everything.
EXTRA_VARIANCES = (0.0, *(10.0 ** (-6.0 + 0.25 * k) for k in range(25)))


class Predicting(Protocol):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive: ...


@dataclass(frozen=True)
class Look:
    """At one place of a fit: the highest mean log-likelihood of held-out rows, odd ones allowed, and the added variance that gives it."""

    travel: float
    score: float
    extra: float


class HeldOutLooks:
    """Looks along a fit, each 1.2 times as far as the one before. The length of a fit is the sum of its learning rates, its travel."""

    def __init__(self, x: Tensor, y: Tensor, seed: int) -> None:
        self._x, self._y, self._seed = x, y, seed
        self._odd = math.log(ODD_SHARE) + gaussian_log_density(y, torch.zeros_like(y), y.new_tensor(ODD_SCALE**2))  # [N]
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
        usual = math.log1p(-ODD_SHARE) + widened.log_prob(self._y)  # log (1 − ε) p(y)
        found = torch.logaddexp(usual, self._odd.to(usual)).mean().item()
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


@dataclass(frozen=True)
class Plan:
    """How to train: with which rate, in which part of the budget, and for how many steps at most."""

    schedule: Schedule
    warm_up: float = 0.0
    begin: float = 0.0
    end: float = 1.0
    num_steps: int = 0  # 0: until the budget is spent

    def shares(self, fraction: Callable[[], float]) -> Iterator[float]:
        """Before each step, the share of the plan that is done: of its part of the budget or of its steps, whichever is more.

        `fraction` is that of the whole budget which is spent.
        """
        for done in range(self.num_steps) if self.num_steps else itertools.count():
            by_budget = (fraction() - self.begin) / max(self.end - self.begin, 1e-9)
            yield min(max(by_budget, done / self.num_steps if self.num_steps else 0.0), 1.0)
