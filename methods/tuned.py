"""Regimes: a method with its options chosen on the training rows of each data set, and mixtures of its best fits.

    bbb                          regime `default`: the defaults of the method's file
    tuned[of=bbb]                regime `tuned`: options searched for on this data set, the search on the clock
    tuned[of=bbb,members=5]      regime `ensemble`: an equal mixture of the five best of that search

The search is the plain form of what `fsibench tune` does: the defaults and random points of the method's `search` space,
successive halving in rounds. A round fits each survivor afresh on four fifths of the training rows, scores it on the last
fifth by LL − CRPS, keeps the better third and gives the next round's fits three times as long. What is left of the budget
fits the best on all training rows. Until then predictions come from the best fit so far.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fsibench import registry
from fsibench.blocks.training import require_at_least
from fsibench.contract import Budget, Data, Meter, Method, Posterior
from fsibench.errors import Diverged
from fsibench.predictive import Predictive
from fsibench.tuning.space import drawn, space_of

KEPT_SHARE = 3  # one of three goes on
MOST_HELD_OUT = 1000
# The last fit ends a little before the budget does, so that the budget's end finds it finished.
MARGIN = 0.97


@dataclass(frozen=True)
class Tuned(Method):
    """Another method, its options searched for on the training rows; or a mixture of its best fits."""

    name: ClassVar[str] = "tuned"
    note: ClassVar[str] = "a method (`of`, else bbb) with options searched for on each data set, on the clock"

    of: str = "bbb"
    trials: int = 9
    members: int = 1
    search_share: float = 0.5  # of the budget

    def __post_init__(self) -> None:
        require_at_least(1, trials=self.trials, members=self.members)
        if self.members > self.trials:
            raise ValueError(f"members must be at most trials ({self.trials}), got {self.members}")
        if not 0.0 < self.search_share < 1.0:
            raise ValueError(f"search_share lies strictly between 0 and 1, got {self.search_share}")

    @property
    def base(self) -> Method:
        return registry.entry(self.of).method

    @property
    def max_rows(self) -> int | None:  # type: ignore[override]
        """What the method it runs is meant for."""
        return self.base.max_rows

    @property
    def waivers(self) -> Mapping[str, str]:  # type: ignore[override]
        """Those of the method it runs, and its own."""
        return {**self.base.waivers, "beats_the_constant": "a search in few seconds can end with fits that are still constant"}

    def parts(self) -> tuple[type[Method], ...]:
        return (type(self), *self.base.parts())

    def published_column(self) -> str:
        return self.base.published_column()

    def departure(self) -> str:
        mixture = f"a mixture of {self.members} fits" if self.members > 1 else ""
        return "; ".join(filter(None, [self.base.departure(), mixture]))

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        search = Search(self, train, budget, generator)
        yield from search.rounds()
        yield from search.last_fits()


@dataclass
class Trial:
    """One point of the search space, with the score and the posterior of its longest fit so far."""

    options: Mapping[str, Any]
    score: float = -math.inf
    posterior: Posterior | None = None


class Search:
    """The state of one search. Every pull yields the best posterior so far."""

    def __init__(self, options: Tuned, train: Data, budget: Budget, generator: torch.Generator) -> None:
        self.options, self.budget, self.generator = options, budget, generator
        self.base, self.train = options.base, train
        space = space_of(type(self.base))
        points = [drawn(space, generator) for _ in range(options.trials - 1)]
        self.trials = [Trial({}), *(Trial(point) for point in points)]  # the defaults come first
        self.held_out, self.learning = train.held_out(generator, at_most=MOST_HELD_OUT)
        self.best: Posterior | None = None

    def rounds(self) -> Iterator[Posterior]:
        """Successive halving; afterwards `trials` are in order, the best first."""
        sizes = round_sizes(self.options.trials, self.options.members)
        for size in sizes:
            survivors = self.trials[:size]
            for trial in survivors:
                yield from self._try(trial, self.options.search_share / (len(sizes) * size))
            survivors.sort(key=lambda trial: -trial.score)
            self.trials[:size] = survivors
            self.best = survivors[0].posterior or self.best

    def _try(self, trial: Trial, share: float) -> Iterator[Posterior]:
        posterior = None
        try:
            for posterior in self._fit(trial, self.learning, share):
                yield self.best or posterior
            assert posterior is not None, "a fit yields at least once"
            trial.score, trial.posterior = score(posterior, self.held_out, self.generator), posterior
        except (Diverged, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            trial.score, trial.posterior = -math.inf, None
        self.best = self.best or trial.posterior

    def last_fits(self) -> Iterator[Posterior]:
        """The best trials on all training rows, with what is left of the budget."""
        done: list[Posterior] = []
        for index, trial in enumerate(self.trials[: self.options.members]):
            share = MARGIN * (1.0 - self.budget.fraction) / (self.options.members - index)
            last = None
            for last, finished in self._fit_to_the_end(trial, share):
                yield Mixture([*done, last]) if finished or self.best is None else self.best
            assert last is not None, "a fit yields at least once"
            done.append(last)
            self.best = Mixture(list(done))
            yield self.best

    def _fit_to_the_end(self, trial: Trial, share: float) -> Iterator[tuple[Posterior, bool]]:
        meter = self._meter(share)
        for posterior in meter.pulls(dataclasses.replace(self.base, **trial.options), self.train, self.generator):
            yield posterior, meter.exhausted

    def _fit(self, trial: Trial, rows: Data, share: float) -> Iterator[Posterior]:
        return self._meter(share).pulls(dataclasses.replace(self.base, **trial.options), rows, self.generator)

    def _meter(self, share: float) -> Meter:
        """A part of the budget, measured by its clock."""
        if self.budget.seconds is not None:
            return Meter(seconds=max(share * self.budget.seconds, 1e-3), clock=lambda: self.budget.elapsed)
        assert self.budget.steps is not None
        return Meter(steps=max(int(share * self.budget.steps), 1))


class Mixture:
    """An equal mixture of posteriors."""

    def __init__(self, members: Sequence[Posterior]) -> None:
        self.members = members

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        parts = [member.predict(x, generator) for member in self.members]
        if len(parts) == 1:
            return parts[0]
        loc, scale = torch.cat([part.loc for part in parts]), torch.cat([part.scale for part in parts])
        df = None if parts[0].df is None else torch.cat([torch.as_tensor(part.df).expand_as(part.loc) for part in parts])
        return parts[0].made(loc, scale, torch.cat([shares(part) for part in parts]), df)  # members of one method are of one kind

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        each = math.ceil(num_draws / len(self.members))
        draws = torch.stack([member.draw(x, each, generator) for member in self.members], 1)  # [each, members, N]
        return draws.flatten(0, 1)[:num_draws]

    def trace(self) -> dict[str, float | Tensor]:
        """The trace of the best member."""
        told = getattr(self.members[0], "trace", dict)
        return dict(told())


def round_sizes(trials: int, members: int) -> list[int]:
    """How many fits each round has: 9, 3, 1 for nine trials and one member."""
    sizes = [trials]
    while sizes[-1] > max(members, 1) and len(sizes) < 3:
        sizes.append(max(math.ceil(sizes[-1] / KEPT_SHARE), members))
    return sizes


def shares(predictive: Predictive) -> Tensor:
    """Weights of the components [S, N], which sum to one at each point."""
    if predictive.weights is None:
        return torch.full_like(predictive.loc, 1.0 / predictive.num_components)
    return predictive.weights.expand_as(predictive.loc)


@torch.no_grad()
def score(posterior: Posterior, rows: Data, generator: torch.Generator) -> float:
    """LL − CRPS, both of standardised targets: higher is better; −CRPS without a density, −∞ where it is no number."""
    predictive = posterior.predict(rows.x, generator)
    density = predictive.log_prob(rows.y).cpu()
    gain = density if not bool(density.isnan().all()) else torch.zeros_like(density)
    value = float((gain - predictive.crps(rows.y)).mean())
    return value if math.isfinite(value) else -math.inf
