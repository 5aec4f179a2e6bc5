"""NGBoost: natural gradient boosting of the mean and the scale of a Gaussian."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from ngboost import NGBRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from fsibench import Budget, Data, Method, Posterior, Predictive, UsageError


@dataclass(frozen=True)
class NGBoost(Method):
    """Natural gradient boosting with a Gaussian output."""

    name: ClassVar[str] = "ngboost"
    paper: ClassVar[str] = "Duan et al., NGBoost: Natural gradient boosting for probabilistic prediction, ICML 2020"
    waivers: ClassVar[Mapping[str, str]] = {
        "budget_is_respected": "all rounds are trained in one call that cannot be interrupted",
        "comes_near_the_exact_posterior": "trees approximate a plane by steps",
        "different_seeds_differ": "trees on all rows and columns leave nothing to chance",
        "draws_agree_with_predict": "boosting has one mean function: all its spread counts as noise",
    }

    rounds: int = 200
    learning_rate: float = 0.02
    depth: int = 2
    smallest_leaf: int = 10  # a leaf with few rows has a scale near zero

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        seed = int(torch.randint(2**31, (), generator=generator))
        if float(train.y.std(correction=0)) == 0.0:
            raise UsageError("NGBoost cannot learn the scale of a constant target.")
        tree = DecisionTreeRegressor(max_depth=self.depth, min_samples_leaf=self.smallest_leaf, random_state=seed)
        model = NGBRegressor(
            Base=tree, n_estimators=self.rounds, learning_rate=self.learning_rate, verbose=False, random_state=seed
        )
        with global_random_states(seed):  # its trees read numpy's global stream
            model.fit(train.x.double().numpy(), train.y.double().numpy())
        yield Boosted(model)


@contextlib.contextmanager
def global_random_states(seed: int) -> Iterator[None]:
    """Global streams, seeded for a while and put back afterwards."""
    before = np.random.get_state(), random.getstate()
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before[0])
        random.setstate(before[1])


class Boosted:
    """One Gaussian per row. Its functions differ by nothing: boosting has one mean function."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        parameters = self.model.pred_dist(x.double().numpy()).params
        loc, scale = (torch.from_numpy(np.asarray(parameters[key])).float()[None] for key in ("loc", "scale"))
        return Predictive(loc, scale.clamp(min=1e-6))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.predict(x, generator).mean.expand(num_draws, -1).clone()
