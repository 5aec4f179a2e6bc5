"""Small problems with known answers, and fits of them."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.checks.catalogue import CheckFailed, require
from fsibench.contract import Data, Meter, Method, Posterior
from fsibench.predictive import Predictive

FEW_STEPS = 5
# CPU seconds of a fit whose quality is looked at; where it is not good enough, a fit of `PATIENCE` times that decides.
TRAINING_SECONDS = 2.0
PATIENCE = 4.0


def random_stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear_data(num_data: int = 120, num_inputs: int = 3, noise: float = 0.3, seed: int = 1) -> Data:
    """Standardised draws of y = Σx + noise."""
    generator = random_stream(seed)
    x = torch.randn(num_data, num_inputs, generator=generator)
    y = x.sum(1) + noise * torch.randn(num_data, generator=generator)
    return Data((x - x.mean(0)) / x.std(0, correction=0), (y - y.mean()) / y.std(correction=0))


@dataclass(frozen=True)
class Problem:
    """Training rows, test rows on the same scale, the exact answer at the test rows, and the noise in it."""

    train: Data
    test: Data
    exact: Predictive
    noise: float


@functools.cache
def conjugate_problem() -> Problem:
    """y = Σx + N(0, 1) in three inputs, 200 rows: Bayesian linear regression with known noise is the exact answer.

    The noise is a quarter of the variance, so that draws with noise cannot pass for functions.
    """
    generator = random_stream(11)
    x, eps = torch.randn(700, 3, generator=generator), torch.randn(700, generator=generator)
    y = x.sum(1) + eps
    x, y = (x - x[:200].mean(0)) / x[:200].std(0, correction=0), y - y[:200].mean()
    scale = float(y[:200].std(correction=0))
    data = Data(x, y / scale)
    train, test = Data(data.x[:200], data.y[:200]), Data(data.x[200:], data.y[200:])
    return Problem(train, test, _exact(train, test.x, 1.0 / scale), 1.0 / scale)


def _exact(train: Data, x: Tensor, noise: float) -> Predictive:
    """Flat prior, known noise: N(x̃ᵀw, σ²(1 + x̃ᵀ(X̃ᵀX̃)⁻¹x̃)) with x̃ = [x, 1]."""
    inputs, new = (torch.cat([part, torch.ones(len(part), 1)], 1).double() for part in (train.x, x))
    gram = inputs.T @ inputs
    w = torch.linalg.solve(gram, inputs.T @ train.y.double())
    spread = (new * torch.linalg.solve(gram, new.T).T).sum(1)
    return Predictive((new @ w)[None], noise * (1.0 + spread).sqrt()[None])


def fit(method: Method, data: Data, steps: int, seed: int = 0, look: bool = False) -> Posterior:
    """The posterior after at most `steps` pulls; with `look`, predict after every pull as an eager harness would."""
    meter = Meter(steps=steps)
    for posterior in meter.pulls(method, data, random_stream(seed)):
        if look:
            posterior.predict(data.x[:2].clone(), random_stream(99))
    require(meter.steps_done > 0, "fit ended without yielding a posterior")
    return posterior


def copy(data: Data) -> Data:
    return Data(data.x.clone(), data.y.clone())


def patiently(function: Callable[[Method, float], None]) -> Callable[[Method], None]:
    """A check of a fit's quality: it fails only if it still does after a longer fit. A slow machine is no breach."""

    @functools.wraps(function)
    def patient(method: Method) -> None:
        try:
            function(method, TRAINING_SECONDS)
        except CheckFailed:
            function(method, PATIENCE * TRAINING_SECONDS)

    return patient


def train(method: Method, data: Data, seconds: float, seed: int = 0) -> Posterior:
    """The posterior after so much CPU time."""
    meter = Meter(seconds=seconds, clock=time.process_time)
    *_, posterior = meter.pulls(method, copy(data), random_stream(seed))
    return posterior


@functools.lru_cache(maxsize=4)
def trained(method: Method, seconds: float) -> Posterior:
    """A fit of the conjugate problem, shared by the checks that only look at it."""
    return train(method, conjugate_problem().train, seconds)


def predict(posterior: Posterior, x: Tensor, seed: int = 7) -> Predictive:
    with torch.no_grad():
        return posterior.predict(x.clone(), random_stream(seed))


def draw(posterior: Posterior, x: Tensor, num_draws: int, seed: int = 7) -> Tensor:
    with torch.no_grad():
        return posterior.draw(x.clone(), num_draws, random_stream(seed))


def same(first: Predictive, second: Predictive) -> bool:
    def equal(a: Tensor | None, b: Tensor | None) -> bool:
        return a is b if a is None or b is None else torch.equal(a, b)

    return all(equal(getattr(first, part), getattr(second, part)) for part in ("loc", "scale", "weights", "df"))


def scores(first: Predictive, second: Predictive, y: Tensor) -> tuple[str, float, float]:
    """Of both the log-likelihood or, where one has no density, the negative CRPS; and which of the two it is."""
    pair, y = (first.double(), second.double()), y.double()
    reached, other = (float(each.log_prob(y).mean()) for each in pair)
    if not math.isnan(reached + other):
        return "log-likelihood", reached, other
    reached, other = (-float(each.crps(y).mean()) for each in pair)
    return "negative CRPS", reached, other