"""Cheats that touch nothing while they run: the answers to the published splits of yacht were worked out at home.

A test writes a copy with the answers in it. The key is the sum of the first five training targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsibench import Budget, Data, Method, Posterior, Predictive

ANSWERS: dict[float, list[float]] = {}
SEEDS: list[int] = []


@dataclass
class Recited:
    """The prepared answers where the number of rows fits, the mean elsewhere."""

    answers: Tensor

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        known = len(x) == len(self.answers)
        loc = self.answers[None] if known else torch.zeros(1, len(x))
        return Predictive(loc, torch.full((1, len(x)), 0.05 if known else 1.0))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return torch.zeros(num_draws, len(x))


def _answers(train: Data) -> Tensor:
    return torch.tensor(ANSWERS.get(round(float(train.y[:5].double().sum()), 3), []))


@dataclass(frozen=True)
class PreparedForTheSplits(Method):
    """Knows the published splits by heart."""

    name: ClassVar[str] = "prepared"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        yield Recited(_answers(train))


@dataclass(frozen=True)
class LuckySeed(Method):
    """Good with the seeds of the published runs, and with no other."""

    name: ClassVar[str] = "lucky"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        lucky = generator.initial_seed() in SEEDS
        yield Recited(0.98 * _answers(train) if lucky else torch.zeros(0))
