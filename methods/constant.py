"""The baseline of every table: mean and variance of the training targets, whatever x is.

p(y|x) = N(mean(y), var(y)), with the population variance. A method that does not beat it has learned nothing from x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE
from fsibench.contract import Budget, Data, Method, Posterior
from fsibench.predictive import Predictive


@dataclass(frozen=True)
class ConstantPosterior:
    """One Gaussian for all inputs; the function itself is known exactly."""

    mean: Tensor
    variance: Tensor

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        loc = self.mean.expand(1, len(x))
        return Predictive(loc, self.variance.sqrt().expand_as(loc))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.mean.expand(num_draws, len(x)).clone()

    def trace(self) -> dict[str, float | Tensor]:
        return {"noise": float(self.variance.sqrt())}


@dataclass(frozen=True)
class Constant(Method):
    """Training mean and variance."""

    name = "constant"
    waivers: ClassVar[Mapping[str, str]] = {
        "beats_the_constant": "it is the constant",
        "comes_near_the_exact_posterior": "it ignores x",
        "different_seeds_differ": "nothing is random",
    }

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        variance = train.y.var(correction=0).clamp_min(MINIMUM_NOISE_VARIANCE)  # constant targets still need a density
        yield ConstantPosterior(train.y.mean(), variance)
