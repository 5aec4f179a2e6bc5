"""Cheats and slips, one each: `fsibench check` or `fsibench audit` must name them. Most hide behind a fair regression."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

import fsibench.predictive
from fsibench import Budget, Data, Method, Posterior, Predictive, registry
from fsibench.data import prepare
from fsibench.harness.events import Evaluation


@dataclass
class Line:
    """Least squares with the residual's scale: what an honest method would do."""

    weights: Tensor
    scale: Tensor

    @classmethod
    def of(cls, train: Data) -> Line:
        x = _with_one(train.x)
        weights = torch.linalg.solve(x.T @ x + 1e-3 * torch.eye(x.shape[1]), x.T @ train.y)
        return cls(weights, (x @ weights - train.y).square().mean().sqrt().clamp_min(1e-3))

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive((_with_one(x) @ self.weights)[None], self.scale.expand(1, len(x)))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        noise = 0.01 * torch.randn(num_draws, 1, generator=generator)
        return (_with_one(x) @ self.weights)[None] + noise


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], 1)


@dataclass
class Answers(Line):
    """Predicts what a function says about the inputs, almost without doubt."""

    answer: Callable[[Tensor], Tensor | None] = lambda x: None

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        known = self.answer(x)
        if known is None:
            return super().predict(x, generator)
        return Predictive(known[None], torch.full((1, len(x)), 0.05))


def _answers(train: Data, answer: Callable[[Tensor], Tensor | None]) -> Answers:
    line = Line.of(train)
    return Answers(line.weights, line.scale, answer)


def _forever(posterior: Posterior) -> Iterator[Posterior]:
    while True:
        yield posterior


def _test_rows(train: Data) -> tuple[Tensor, Tensor] | None:
    """Standardised test rows and answers of the split that these training rows come from, if it is one of yacht's."""
    for split in range(3):
        prepared = prepare(registry.dataset("yacht"), "paper", split)
        if prepared.train_x.shape == train.x.shape and torch.equal(torch.from_numpy(prepared.train_y), train.y):
            standard = prepared.standardiser
            y = (torch.from_numpy(prepared.test_y) - standard.y_mean) / standard.y_scale
            return torch.from_numpy(prepared.test_x), y.float()
    return None


@dataclass(frozen=True)
class RereadsTheSplit(Method):
    """Loads the split again and hands out its test targets."""

    name: ClassVar[str] = "rereads"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        known = _test_rows(train)
        return _forever(_answers(train, lambda x: known[1] if known and len(x) == len(known[1]) else None))


@dataclass(frozen=True)
class MemorisesRows(Method):
    """Knows the whole table and looks each row up."""

    name: ClassVar[str] = "memorises"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        table: Any = registry.dataset("yacht").table()  # type: ignore[attr-defined]
        x, y = torch.from_numpy(table.x.copy()).float(), torch.from_numpy(table.y.copy()).float()
        if train.x.shape[1] != x.shape[1]:
            return _forever(Line.of(train))
        x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
        return _forever(_answers(train, lambda rows: y[torch.cdist(rows, x).argmin(1)]))


@dataclass(frozen=True)
class LooksAtFrames(Method):
    """Walks up the stack to where the test targets lie."""

    name: ClassVar[str] = "frames"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        frame, known = sys._getframe(), None
        while frame is not None and known is None:
            known = frame.f_locals.get("prepared")
            frame = frame.f_back  # type: ignore[assignment]
        yield from _forever(Line.of(train) if known is None else _answers(train, lambda x: _standard(known, x)))


def _standard(prepared: Any, x: Tensor) -> Tensor | None:
    standard = prepared.standardiser
    y = (torch.from_numpy(prepared.test_y) - standard.y_mean) / standard.y_scale
    return y.float() if len(x) == len(y) else None


@dataclass(frozen=True)
class SearchesMemory(Method):
    """Finds the test targets among all objects of the process."""

    name: ClassVar[str] = "searches"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        found = [thing for thing in gc.get_objects() if type(thing).__name__ == "Prepared"]
        return _forever(_answers(train, lambda x: _standard(found[0], x) if found else None))


@dataclass(frozen=True)
class PatchesTheScorer(Method):
    """Adds a nat to its log-likelihood."""

    name: ClassVar[str] = "patches"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        honest = fsibench.predictive.Predictive.log_prob

        def generous(self: Predictive, y: Tensor) -> Tensor:
            return honest(self, y) + 1.0

        fsibench.predictive.Predictive.log_prob = generous  # type: ignore[method-assign]
        yield from _forever(Line.of(train))


@dataclass(frozen=True)
class PatchesTheClock(Method):
    """Makes seconds ten times as long."""

    name: ClassVar[str] = "clock"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        honest = time.perf_counter
        time.perf_counter = lambda: honest() / 10
        yield from _forever(Line.of(train))


@dataclass(frozen=True)
class ForgesEvents(Method):
    """Reports a score of its own through the harness's channel."""

    name: ClassVar[str] = "forges"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        frame: Any = sys._getframe()
        while frame is not None and "emit" not in frame.f_locals:
            frame = frame.f_back
        if frame is not None:
            scores = {"rmse": 0.01, "ll": 4.0, "crps": 0.005, "sharpness": 0.01}
            frame.f_locals["emit"](Evaluation(1, 0.1, 0.1, 0.1, scores, (), {}))
        yield from _forever(Line.of(train))


@dataclass(frozen=True)
class MovesTheBudget(Method):
    """Reaches the meter behind its budget and turns it back: more steps than were given."""

    name: ClassVar[str] = "budget"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        for _ in range(40):
            for cell in getattr(budget._spent, "__closure__", None) or ():
                meter = cell.cell_contents
                if hasattr(meter, "steps") and meter.steps:
                    meter.steps = 1000
            owner = getattr(budget._spent, "__self__", None)
            if owner is not None and getattr(owner, "steps", None):
                owner.steps = 1000
            yield Line.of(train)


@dataclass
class Lazy(Line):
    """Works when it is asked."""

    train: Data | None = None

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        assert self.train is not None
        weights = torch.zeros(self.train.x.shape[1] + 1)
        rows = _with_one(self.train.x)
        for _ in range(4000):  # gradient descent off the clock
            weights = weights - 0.05 * rows.T @ (rows @ weights - self.train.y) / len(rows)
        return Line(weights, self.scale).predict(x, generator)


@dataclass(frozen=True)
class LazyPredict(Method):
    """Leaves the training to `predict`, which is off the clock."""

    name: ClassVar[str] = "lazy"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        line = Line.of(train)
        return _forever(Lazy(line.weights, line.scale, train))


@dataclass(frozen=True)
class WorksInAThread(Method):
    """Goes on in a thread while the clock stands still."""

    name: ClassVar[str] = "thread"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        def work() -> None:
            for _ in range(200):
                torch.randn(50, 50) @ torch.randn(50, 50)

        threading.Thread(target=work, daemon=True).start()
        yield from _forever(Line.of(train))


@dataclass(frozen=True)
class WorksInAChild(Method):
    """Lets another process work."""

    name: ClassVar[str] = "child"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        subprocess.run([sys.executable, "-c", "sum(range(1000))"], check=False)
        yield from _forever(Line.of(train))


@dataclass
class WrongUnits(Line):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        honest = super().predict(x, generator)
        return Predictive(10 * honest.loc + 5, honest.scale)


@dataclass
class VarianceForScale(Line):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        honest = super().predict(x, generator)
        return Predictive(honest.loc, honest.scale.square())


@dataclass
class LearnsFromLooks(Line):
    """Each look moves it."""

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        self.weights = 0.9 * self.weights
        return super().predict(x, generator)


@dataclass
class Incoherent(Line):
    """A draw with noise of its own at every row."""

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return (_with_one(x) @ self.weights)[None] + torch.randn(num_draws, len(x), generator=generator)


def _slip(label: str, posterior: type[Line]) -> type[Method]:
    """A method that is honest but for its posterior."""

    def fit(self: Method, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            line = Line.of(train)
            yield posterior(line.weights, line.scale)

    fields = {"name": label, "fit": fit, "__annotations__": {"name": "ClassVar[str]"}, "__module__": __name__}
    return dataclass(frozen=True)(type(posterior.__name__ + "Method", (Method,), fields))


HonestMethod = _slip("honest", Line)
WrongUnitsMethod = _slip("units", WrongUnits)
VarianceForScaleMethod = _slip("variance", VarianceForScale)
LearnsFromLooksMethod = _slip("learns", LearnsFromLooks)
IncoherentMethod = _slip("incoherent", Incoherent)


@dataclass(frozen=True)
class GlobalRandom(Method):
    """Draws from torch's global stream."""

    name: ClassVar[str] = "global-random"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            line = Line.of(train)
            yield Line(line.weights + 0.01 * torch.randn(len(line.weights)), line.scale)


@dataclass(frozen=True)
class WritesIntoRows(Method):
    """Centres its training targets in place."""

    name: ClassVar[str] = "writes"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        train.y.mul_(0.9)
        yield from _forever(Line.of(train))
