"""NGBoost: natural gradient boosting of the mean and the scale of a Gaussian."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from ngboost import NGBRegressor
from torch import Tensor

from fsibench import Budget, Data, Method, Posterior, Predictive


@dataclass(frozen=True)
class NGBoost(Method):
    """Natural gradient boosting with a Gaussian output."""

    name: ClassVar[str] = "ngboost"
    paper: ClassVar[str] = "Duan et al., NGBoost: Natural gradient boosting for probabilistic prediction, ICML 2020"
    waivers: ClassVar[Mapping[str, str]] = {
        "budget_is_respected": "all rounds are trained in one call that cannot be interrupted",
    }

    rounds: int = 200
    learning_rate: float = 0.05

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        seed = int(torch.randint(2**31, (), generator=generator))
        model = NGBRegressor(
            n_estimators=self.rounds, learning_rate=self.learning_rate, verbose=False, random_state=seed
        )  # fmt: skip
        with numpy_random_state(seed):  # its trees read numpy's global stream
            model.fit(train.x.double().numpy(), train.y.double().numpy())
        yield Boosted(model)


class numpy_random_state:
    """Numpy's global stream, seeded for a while and put back afterwards."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        self.before = np.random.get_state()
        np.random.seed(self.seed)

    def __exit__(self, *_: object) -> None:
        np.random.set_state(self.before)


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
