"""Methods that break the contract in one way each, around an honest Bayesian linear regression.

`CAUGHT_BY` says which check must name each of them, and which words its reason must hold.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fsibench import Budget, Data, Method, Posterior, Predictive
from fsibench import registry as tables
from fsibench.data import prepare

NUM_COMPONENTS = 200


@dataclass(frozen=True)
class Linear:
    """w ~ N(mean, root rootᵀ) on [x, 1], noise N(0, noise²); predictions are mixtures over draws of w."""

    mean: Tensor
    root: Tensor
    noise: float

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        eps = torch.randn(num_draws, len(self.mean), generator=generator)
        return (self.mean + eps @ self.root.T) @ with_intercept(x).T

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, NUM_COMPONENTS, generator), torch.full((1, 1), self.noise))


def with_intercept(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], 1)


def solve(x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Linear:
    inputs = with_intercept(x)
    gram = inputs.T @ inputs + torch.eye(inputs.shape[1])
    mean = torch.linalg.solve(gram, inputs.T @ y)
    if generator is not None:  # a little randomness, as a stochastic method has
        mean = mean + 1e-3 * torch.randn(len(mean), generator=generator)
    noise = max(float((y - inputs @ mean).square().mean().sqrt()), 0.05)
    return Linear(mean, noise * torch.linalg.cholesky(torch.linalg.inv(gram)), noise)


@dataclass(frozen=True)
class Honest(Method):
    """Keeps every check."""

    name: ClassVar[str] = "honest"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            yield self.posterior(train, generator)

    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        return solve(train.x, train.y, generator)


@dataclass(frozen=True)
class YieldsNone(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        return None


@dataclass(frozen=True)
class NoDraw(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        class Half:
            predict = staticmethod(solve(train.x, train.y, generator).predict)

        return Half()


class Wrapped(Linear):
    """A posterior with one method replaced by a subclass."""

    @classmethod
    def of(cls, train: Data, generator: torch.Generator) -> Wrapped:
        honest = solve(train.x, train.y, generator)
        return cls(honest.mean, honest.root, honest.noise)


def with_posterior(kind: type[Wrapped]) -> type[Honest]:
    @dataclass(frozen=True)
    class Breach(Honest):
        def posterior(self, train: Data, generator: torch.Generator) -> Any:
            return kind.of(train, generator)

    Breach.__name__ = kind.__name__.removeprefix("_")
    return Breach


class _DropsARow(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return super().predict(x[: max(1, len(x) - 1)], generator)


class _Transposes(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return super().draw(x, num_draws, generator).T

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(Linear.draw(self, x, NUM_COMPONENTS, generator), torch.full((1, 1), self.noise))


class _NegativeScale(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, NUM_COMPONENTS, generator), torch.full((1, 1), -self.noise))


class _WritesIntoX(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        result = super().predict(x, generator)
        x.mul_(0.5)
        return result


class _InflatedMean(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return 1.3 * super().draw(x, num_draws, generator)


class _NoiseOffset(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        offset = self.noise * torch.randn(num_draws, 1, generator=generator)
        return super().draw(x, num_draws, generator) + offset

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(Linear.draw(self, x, NUM_COMPONENTS, generator), torch.full((1, 1), self.noise))


class _NoiseInDraws(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        functions = super().draw(x, num_draws, generator)
        return functions + self.noise * torch.randn(functions.shape, generator=generator)

    predict = _NoiseOffset.predict


class _PriorDraws(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return torch.randn(num_draws, len(self.mean), generator=generator) @ with_intercept(x).T * 0.1

    predict = _NoiseOffset.predict


class _FreshDraws(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        fresh = torch.Generator()
        fresh.seed()
        return super().draw(x, num_draws, fresh)


class _CentresItsBatch(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return super().predict(x - x.mean(0), generator)


class _Overconfident(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, NUM_COMPONENTS, generator), torch.full((1, 1), 0.35 * self.noise))


class _Underconfident(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, NUM_COMPONENTS, generator), torch.full((1, 1), 2.2 * self.noise))


class _LazyPredict(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            pass
        return super().predict(x, generator)


class _ScaledMean(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return 0.7 * super().draw(x, num_draws, generator)


class _ShiftedMean(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return 0.15 + super().draw(x, num_draws, generator)


class _NoiseTwice(Wrapped):
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, NUM_COMPONENTS, generator), torch.full((1, 1), 2.0**0.5 * self.noise))


class Gaussian(Wrapped):
    """One Gaussian in place of a mixture: what an exact method predicts."""

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        inputs = with_intercept(x)
        return Predictive((inputs @ self.mean)[None], ((inputs @ self.root).square().sum(1) + self.noise**2).sqrt()[None])


def wider(draws: Tensor, mean: Tensor, factor: float) -> Tensor:
    return mean + factor * (draws - mean)


class _GaussianWithoutSpread(Gaussian):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return (with_intercept(x) @ self.mean).expand(num_draws, -1)


class _GaussianTooWide(Gaussian):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return wider(super().draw(x, num_draws, generator), with_intercept(x) @ self.mean, 3.0)


class _WideDraws(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return wider(super().draw(x, num_draws, generator), with_intercept(x) @ self.mean, 2.0)

    predict = _NoiseOffset.predict


class _IndependentRows(Wrapped):
    """The right marginals, one value for equal rows, and no function."""

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        distinct, position = torch.unique(x, dim=0, return_inverse=True)
        inputs = with_intercept(distinct)
        eps = torch.randn(num_draws, len(distinct), generator=generator)
        return (inputs @ self.mean + eps * (inputs @ self.root).square().sum(1).sqrt())[:, position]

    predict = _NoiseOffset.predict


class _DrawSetsThreads(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        torch.set_num_threads(3)
        return super().draw(x, num_draws, generator)

    predict = _NoiseOffset.predict


class _LazyDraw(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
        return super().draw(x, num_draws, generator)

    predict = _NoiseOffset.predict


class _DrawSetsTheEnvironment(Wrapped):
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        os.environ["FSIBENCH_BREACH"] = "1"
        return super().draw(x, num_draws, generator)

    predict = _NoiseOffset.predict


DropsARow, Transposes, NegativeScale = map(with_posterior, (_DropsARow, _Transposes, _NegativeScale))
WritesIntoX, InflatedMean, NoiseOffset = map(with_posterior, (_WritesIntoX, _InflatedMean, _NoiseOffset))
NoiseInDraws, PriorDraws, FreshDraws = map(with_posterior, (_NoiseInDraws, _PriorDraws, _FreshDraws))
CentresItsBatch, Overconfident = map(with_posterior, (_CentresItsBatch, _Overconfident))
Underconfident, LazyPredict = map(with_posterior, (_Underconfident, _LazyPredict))
ScaledMean, ShiftedMean, NoiseTwice = map(with_posterior, (_ScaledMean, _ShiftedMean, _NoiseTwice))
HonestGaussian, GaussianWithoutSpread = map(with_posterior, (Gaussian, _GaussianWithoutSpread))
GaussianTooWide, WideDraws, IndependentRows = map(with_posterior, (_GaussianTooWide, _WideDraws, _IndependentRows))
DrawSetsThreads, LazyDraw = map(with_posterior, (_DrawSetsThreads, _LazyDraw))
DrawSetsTheEnvironment = with_posterior(_DrawSetsTheEnvironment)


@dataclass(frozen=True)
class TorchGlobal(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        found = solve(train.x, train.y)
        return replace(found, mean=found.mean + 0.01 * torch.randn(len(found.mean)))


@dataclass(frozen=True)
class NumpyGlobal(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        found = solve(train.x, train.y)
        return replace(found, mean=found.mean + 0.01 * float(np.random.rand()))


@dataclass(frozen=True)
class PythonGlobal(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        found = solve(train.x, train.y)
        return replace(found, mean=found.mean + 0.01 * random.random())


@dataclass(frozen=True)
class SeedsTheWorld(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        torch.manual_seed(0)
        return super().posterior(train, generator)


@dataclass(frozen=True)
class TimeSeeded(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        return solve(train.x, train.y, torch.Generator().manual_seed(time.perf_counter_ns()))


@dataclass(frozen=True)
class IgnoresItsSeed(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        return solve(train.x, train.y, torch.Generator().manual_seed(5))


@dataclass(frozen=True)
class LearnsFromLooks(Honest):
    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            found = solve(train.x, train.y, generator)

            class Watched(Linear):
                def predict(self, x: Tensor, stream: torch.Generator) -> Predictive:
                    torch.rand(3, generator=generator)
                    return super().predict(x, stream)

            yield Watched(found.mean, found.root, found.noise)


@dataclass(frozen=True)
class WritesIntoItsRows(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        found = super().posterior(train, generator)
        train.y.mul_(1.01)
        return found


@dataclass(frozen=True)
class ChangesSettings(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        torch.set_num_threads(3)
        return super().posterior(train, generator)


@dataclass(frozen=True)
class SetsTheEnvironment(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        os.environ["OMP_NUM_THREADS"] = "17"
        return super().posterior(train, generator)


@dataclass(frozen=True)
class SilencesWarnings(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        warnings.simplefilter("ignore")
        return super().posterior(train, generator)


@dataclass(frozen=True)
class SilencesNumpy(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        np.seterr(all="ignore")
        return super().posterior(train, generator)


@dataclass(frozen=True)
class OneLongPull(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        until = time.process_time() + 2.5
        while time.process_time() < until:
            pass
        return super().posterior(train, generator)


@dataclass(frozen=True)
class WaitsForItsFraction(Honest):
    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while budget.fraction < 0.3:
            solve(train.x, train.y)
        while True:
            yield self.posterior(train, generator)


@dataclass(frozen=True)
class ExtendsItsBudget(Honest):
    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        budget.seconds = 100.0
        yield self.posterior(train, generator)


@dataclass(frozen=True)
class UsesTheFirstRows(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        return solve(train.x[:40], train.y[:40], generator)


@dataclass(frozen=True)
class LearnsNothing(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        return Linear(1e-3 * torch.randn(train.num_inputs + 1, generator=generator), 1e-3 * torch.eye(train.num_inputs + 1), 1.0)


@dataclass(frozen=True)
class FailsOnConstants(Honest):
    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        varying = [float(column.std()) for column in train.x.T if float(column.std()) > 0]
        return solve(train.x / varying[train.num_inputs - 1], train.y, generator)


@dataclass(frozen=True)
class KnowsThePublicTables(Honest):
    """Looks every row up in the table that it is known from."""

    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        whole = prepare(tables.dataset("yacht"), "paper", 0)
        known = torch.from_numpy(whole.test_x)
        answers = torch.from_numpy(whole.standardiser.y(whole.test_y))

        class Knows(Linear):
            def predict(self, x: Tensor, stream: torch.Generator) -> Predictive:
                found = super().predict(x, stream)
                if x.shape[1] != known.shape[1]:
                    return found
                nearest = torch.cdist(x, known).min(1)
                loc = torch.where(nearest.values < 1e-3, answers[nearest.indices], found.mean)
                return Predictive(loc[None], torch.full((1, 1), 0.1))

        found = super().posterior(train, generator)
        return Knows(found.mean, found.root, found.noise)


@dataclass(frozen=True)
class WorksInAThread(Honest):
    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                sum(range(1000))

        threading.Thread(target=work, daemon=True).start()
        try:
            yield from super().fit(train, budget, generator)
        finally:
            ended.set()


@dataclass(frozen=True)
class WorksInAChild(Honest):
    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        child = subprocess.Popen([sys.executable, "-c", "while True: pass"], env=dict(os.environ))
        try:
            yield from super().fit(train, budget, generator)
        finally:
            child.kill()
            child.wait()


CAUGHT_BY: dict[type[Honest], tuple[str, str]] = {
    YieldsNone: ("yields_a_posterior", "yielded None"),
    NoDraw: ("yields_a_posterior", "without draw"),
    DropsARow: ("shapes_are_right", "6 points for 7 rows"),
    Transposes: ("shapes_are_right", "draw gave shape (1, 4)"),
    NegativeScale: ("shapes_are_right", "negative scale"),
    TorchGlobal: ("global_random_state_is_ignored", "torch's global random state"),
    NumpyGlobal: ("global_random_state_is_ignored", "numpy's global random state"),
    PythonGlobal: ("global_random_state_is_ignored", "Python's global random state"),
    SeedsTheWorld: ("global_random_state_is_ignored", "torch's global random state"),
    TimeSeeded: ("same_seed_same_result", "they depend on the clock"),
    IgnoresItsSeed: ("different_seeds_differ", "the generator of fit is not used"),
    LearnsFromLooks: ("looking_changes_nothing", "calling predict during the fit changed the fit"),
    FreshDraws: ("draws_repeat_with_their_generator", "different functions"),
    WritesIntoItsRows: ("inputs_are_left_alone", "fit changed the training rows"),
    WritesIntoX: ("inputs_are_left_alone", "predict changed the x"),
    ChangesSettings: ("settings_of_torch_are_left_alone", "threads from 1 to 3"),
    DrawSetsThreads: ("settings_of_torch_are_left_alone", "threads from 1 to 3"),
    SetsTheEnvironment: ("settings_of_python_are_left_alone", "changed os.environ['OMP_NUM_THREADS']"),
    DrawSetsTheEnvironment: ("settings_of_python_are_left_alone", "changed os.environ['FSIBENCH_BREACH']"),
    SilencesWarnings: ("settings_of_python_are_left_alone", "changed the filters of warnings"),
    SilencesNumpy: ("settings_of_python_are_left_alone", "changed np.geterr()"),
    OneLongPull: ("budget_is_respected", "yield more often"),
    ExtendsItsBudget: ("budget_is_respected", "read-only"),
    WaitsForItsFraction: ("first_posterior_comes_soon", "`fraction` moves only on a yield"),
    FailsOnConstants: ("odd_data_are_survived", "IndexError on data with a constant input"),
    InflatedMean: ("means_are_not_inflated", "the mean is inflated"),
    ScaledMean: ("means_are_not_inflated", "the mean is shrunk"),
    ShiftedMean: ("means_are_not_inflated", "the training targets lie -0.15 standard deviations"),
    NoiseOffset: ("draws_agree_with_predict", "they include observation noise"),
    NoiseInDraws: ("draws_are_coherent_functions", "it includes noise"),
    IndependentRows: ("draws_are_coherent_functions", "rows are drawn one by one"),
    WideDraws: ("draws_agree_with_predict", "far from the data the variance of the draws is"),
    GaussianTooWide: ("draws_agree_with_predict", "far from the data the variance of the draws is"),
    GaussianWithoutSpread: ("draws_agree_with_predict", "they miss its uncertainty"),
    PriorDraws: ("draws_agree_with_predict", "from the predicted mean"),
    CentresItsBatch: ("rows_are_predicted_one_by_one", "a row predicted alone has another mean"),
    UsesTheFirstRows: ("order_and_sign_do_not_matter", "with sorted rows"),
    LearnsNothing: ("beats_the_constant", "predicting the training mean gives"),
    Overconfident: ("spread_is_calibrated", "too small"),
    Underconfident: ("spread_is_calibrated", "too large"),
    NoiseTwice: ("spread_is_calibrated", "times the noise: the predictive spread is too large"),
    LazyPredict: ("predict_is_cheap", "predicting one row costs"),
    LazyDraw: ("predict_is_cheap", "drawing one row costs 3"),
    KnowsThePublicTables: ("test_rows_are_not_known", "true test targets"),
    WorksInAThread: ("rests_while_paused", "CPU seconds of work in a pause"),
    WorksInAChild: ("rests_while_paused", "CPU seconds of work in a pause"),
}
