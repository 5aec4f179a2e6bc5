"""Is all work on the clock, and does the method know only what it was given?"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from fsibench import registry
from fsibench.checks.catalogue import CheckFailed, check, require
from fsibench.checks.problems import draw, linear_data, predict, random_stream
from fsibench.contract import Data, Meter, Method
from fsibench.data import Prepared, prepare
from fsibench.harness.processes import family_cpu_seconds

PAUSE_SECONDS = 0.3
SEVERAL_STEPS, COSTLY_SECONDS = 10.0, 0.02
SHUFFLES = 4


@check("train inside the pulls of fit; a thread or process that trains must stop before the next yield")
def rests_while_paused(method: Method) -> None:
    """Between two pulls nothing works: no thread, no child process."""
    pulls = Meter(steps=3).pulls(method, linear_data(), random_stream())
    next(pulls)
    before = family_cpu_seconds() - time.thread_time()
    time.sleep(PAUSE_SECONDS)
    worked = family_cpu_seconds() - time.thread_time() - before
    pulls.close()
    require(worked < 0.1 * PAUSE_SECONDS, f"{worked:.2f} CPU seconds of work in a pause of {PAUSE_SECONDS:g} s")


@check("what depends on the training rows alone is computed in fit, before the yield, not in predict or draw")
def predict_is_cheap(method: Method) -> None:
    """Predicting one row, or drawing one, costs no more than several steps: work with training rows is on the clock."""
    data = linear_data(600, 5)
    meter = Meter(seconds=0.5, clock=time.process_time)
    costs: list[tuple[float, float]] = []
    for posterior in meter.pulls(method, data, random_stream()):
        if len(costs) < 5:
            costs.append((_cost(predict, posterior, data.x[:1]), _cost(draw, posterior, data.x[:1], 1)))
    step = meter.elapsed / meter.steps_done
    for what, cost in zip(("predicting", "drawing"), map(min, zip(*costs, strict=True)), strict=True):
        require(
            cost < max(COSTLY_SECONDS, SEVERAL_STEPS * step),
            f"{what} one row costs {1e3 * cost:.0f} ms, a step {1e3 * step:.1f} ms: work is hidden from the clock",
        )


def _cost(function: Callable[..., object], *arguments: object) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


@check("learn from `train` only; read no data set, no file and no earlier prediction")
def test_rows_are_not_known(method: Method) -> None:
    """With shuffled training targets of a public table, nothing can be known about its test targets.

    One input explains most of yacht, so a smooth fit to one shuffle agrees with the truth by chance now and then. What
    is known agrees with it after every shuffle.
    """
    prepared = prepare(registry.dataset("yacht"), "paper", 0)
    lowest = 1.0
    for seed in range(SHUFFLES):
        lowest = min(lowest, _correlation_after_a_shuffle(method, prepared, seed))
        if lowest < 0.6:
            return
    raise CheckFailed(
        f"fitted to shuffled targets of yacht, it still predicts the true test targets (correlation {lowest:.2f} or more "
        f"after each of {SHUFFLES} shuffles)"
    )


def _correlation_after_a_shuffle(method: Method, prepared: Prepared, seed: int) -> float:
    """Of the predictive mean with the true test targets; 0 for a constant mean."""
    y = np.random.RandomState(seed).permutation(prepared.train_y)
    train = Data(torch.from_numpy(prepared.train_x), torch.from_numpy(y))
    *_, posterior = Meter(seconds=0.5, clock=time.process_time).pulls(method, train, random_stream())
    mean = predict(posterior, torch.from_numpy(prepared.test_x)).mean.double().cpu().numpy()
    return float(np.corrcoef(mean, prepared.test_y)[0, 1]) if float(mean.std()) >= 1e-6 else 0.0
