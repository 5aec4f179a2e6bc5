"""A quantile regression forest: a predictive that is a set of values, with no density to invent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from quantile_forest import RandomForestQuantileRegressor
from torch import Tensor

from fsibench import Budget, Data, Method, Posterior, Predictive, SamplePredictive

LEVELS = torch.arange(1, 100, dtype=torch.float64) / 100


@dataclass(frozen=True)
class QuantileForest(Method):
    """Random forest that keeps the targets of its leaves; quantiles from 1 % to 99 %."""

    name: ClassVar[str] = "quantile_forest"
    paper: ClassVar[str] = "Meinshausen, Quantile regression forests, JMLR 2006"

    trees: int = 100
    smallest_leaf: int = 3

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        seed = int(torch.randint(2**31, (), generator=generator))
        model = RandomForestQuantileRegressor(
            n_estimators=self.trees, min_samples_leaf=self.smallest_leaf, random_state=seed
        )  # fmt: skip
        before = random.getstate()  # the library seeds Python's global stream
        model.fit(train.x.double().numpy(), train.y.double().numpy())
        random.setstate(before)
        yield Forest(model)


class Forest:
    """Quantiles of the whole forest for predictions, means of single trees as functions."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        values = self.model.predict(x.double().numpy(), quantiles=LEVELS.tolist())  # [N, Q]
        return SamplePredictive.from_quantiles(LEVELS, torch.from_numpy(values).mT.double())

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        trees = self.model.estimators_
        chosen = torch.randint(len(trees), (num_draws,), generator=generator).tolist()
        rows = x.numpy()
        return torch.stack([torch.from_numpy(trees[index].predict(rows)).float().reshape(-1) for index in chosen])
