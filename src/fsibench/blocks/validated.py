"""Fits whose length and least noise are chosen on rows that they do not see.

First a fifth of the rows is held out, for at most four fifths of the budget, with a constant rate and looks at these rows
(`blocks.stopping`), and for at least two fifths, since scores can fall for a while and rise again. If they are predicted best at the end, training goes on from there with all rows and a falling rate, for a
quarter of the steps so far. If they were predicted best before, a fresh fit on all rows goes as far as that; or, where the budget
has no time left for one, training goes on from there. Then the fit ends. Predictions have at least the noise of the best look.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from fsibench.blocks.stopping import HeldOutLooks, Plan
from fsibench.blocks.training import Schedule
from fsibench.errors import Diverged
from fsibench.predictive import Predictive

# So few rows tell nothing, so many cannot be interpolated, and so short a fit does not: no limit is looked for.
FEWEST_ROWS, MANY_ROWS, SHORT_TRAVEL = 20, 2_000, 2.0
LEAST_SEARCH, SEARCH_SHARE = 0.4, 0.8  # of the budget at least and at most, without the held-out rows
LAST_SHARE = 0.25  # of the steps so far, for letting all rows in
ENOUGH_TO_JUDGE = 0.02  # share of the budget after which its number of steps is known well enough


class Rows(Protocol):
    """Training rows, as `contract.Data`."""

    def __len__(self) -> int: ...
    def held_out(self, generator: torch.Generator) -> tuple[Any, Any]: ...


class Spending(Protocol):
    """How much of a budget is spent, as `contract.Budget`."""

    @property
    def fraction(self) -> float: ...
    @property
    def in_last_pull(self) -> bool: ...


class Options(Protocol):
    """Of a method."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def stop(self) -> str: ...


class NoisyModel(Protocol):
    noise_floor: float  # least noise variance of predictions

    @property
    def learned_noise(self) -> float: ...
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive: ...


Model = TypeVar("Model", bound=NoisyModel)


class Training(Generic[Model]):
    """A model and what trains it; `steps` says how."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.share, self.num_steps = 0.0, 0  # of the plan that is followed, and steps made in all

    def steps(self, data: Any, shares: Iterable[float], plan: Plan, generator: torch.Generator) -> Iterator[Model]:
        """The model after each step; `share` and `num_steps` are kept up to date."""
        raise NotImplementedError

    def widened(self, extra: float) -> Self:
        """A copy as it is now, whose predictions have at least so much more noise than now."""
        found = copy.deepcopy(self)
        found.model.noise_floor = self.model.learned_noise + extra
        return found


def fitted(
    start: Callable[[], Training[Model]], options: Options, train: Rows, budget: Spending, generator: torch.Generator, warm_up: float = 0.0
) -> Iterator[Model]:
    """The models of a fit: by `stop=validated` as described above, by `stop=budget` on all rows until the budget is spent."""
    yield from Fit(start, options.learning_rate, options.schedule, warm_up).models(train, budget, generator, options.stop == "validated")


@dataclass(frozen=True)
class Fit(Generic[Model]):
    """How to start a training, and its rate and schedule."""

    start: Callable[[], Training[Model]]
    learning_rate: float
    schedule: Schedule
    warm_up: float

    def models(self, train: Rows, budget: Spending, generator: torch.Generator, validated: bool) -> Iterator[Model]:
        training, plan, shown = self.start(), Plan(self.schedule, self.warm_up), None
        if validated and FEWEST_ROWS <= len(train) < MANY_ROWS:
            training, plan, shown = yield from self._search(training, train, budget, generator)
        for model in training.steps(train, plan.shares(lambda: budget.fraction), plan, generator):
            # a fresh fit needs about half of its time to be as good as the best of the search
            early = training.share < 0.5 and not budget.in_last_pull
            yield shown if shown is not None and early else model

    def _search(
        self, training: Training[Model], train: Rows, budget: Spending, generator: torch.Generator
    ) -> Generator[Model, None, tuple[Training[Model], Plan, Model | None]]:
        """Train without some rows and look at them, showing the best. Returns what to train on, how, and what to show meanwhile."""
        held, rest = train.held_out(generator)
        looks, kept, step = HeldOutLooks(held.x, held.y, seed=0), list[Training[Model]](), 0
        start = budget.fraction  # of what comes before the first step
        plan, shown, diverged = Plan("constant", self.warm_up, start, SEARCH_SHARE), training.model, True
        with suppress(Diverged):  # the looks before it tell how far is too far
            for step, model in enumerate(training.steps(rest, plan.shares(lambda: budget.fraction), plan, generator), 1):
                travel = step * self.learning_rate
                if looks.due(travel):
                    kept.append(training.widened(looks.look(travel, model).extra))
                    shown = kept[looks.best].model
                yield shown
                spent = (budget.fraction - start) / (1.0 - start)
                if budget.fraction >= SEARCH_SHARE or (spent >= LEAST_SEARCH and looks.is_past_the_best):
                    break
                if spent >= ENOUGH_TO_JUDGE and travel < 2 * SHORT_TRAVEL * spent:
                    return training, Plan(self.schedule, self.warm_up, start), None  # too short to interpolate: goes on
            diverged = False
        begin, chosen = budget.fraction, looks.choice()
        if chosen is None and not diverged:
            training.model.noise_floor = kept[-1].model.noise_floor if kept else 0.0
            return training, Plan(self.schedule, begin=begin, num_steps=math.ceil(LAST_SHARE * step)), None
        if not kept:
            raise Diverged("the loss was no longer finite before the first look at held-out rows")
        best = kept[looks.best if chosen is None else chosen]
        fresh_steps = best.num_steps * (2 if self.schedule == "cosine" else 1)  # a falling rate goes half as far
        if fresh_steps > step * (1.0 - begin) / (begin - start):  # no time for it
            return best, Plan(self.schedule, begin=begin, num_steps=math.ceil(LAST_SHARE * best.num_steps)), None
        fresh = self.start()
        fresh.model.noise_floor = best.model.noise_floor
        return fresh, Plan(self.schedule, self.warm_up, begin, num_steps=fresh_steps), best.model
