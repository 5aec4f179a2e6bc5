"""Shapes, budgets, side effects, odd data."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsibench.checks.catalogue import CheckFailed, check, require
from fsibench.checks.problems import FEW_STEPS, copy, draw, fit, linear_data, predict, random_stream
from fsibench.contract import Budget, Data, Meter, Method, Posterior
from fsibench.errors import Diverged, FsibenchError
from fsibench.predictive import Predictive

# Seconds of CPU time for the first posterior of a step budget, pre-training included.
FIRST_YIELD_SECONDS = 20.0


@check("yield an object with `predict(x, generator)` and `draw(x, num_draws, generator)` after each unit of work")
def yields_a_posterior(method: Method) -> None:
    """`fit` yields objects with `predict` and `draw`."""
    posterior = fit(method, linear_data(), 1)
    require(posterior is not None, "fit yielded None instead of a posterior")
    absent = [name for name in ("predict", "draw") if not callable(getattr(posterior, name, None))]
    require(not absent, f"fit yielded a {type(posterior).__name__} without {' and '.join(absent)}")


@check("predict returns Predictive(loc [S, N], scale [S, N]) with scale > 0; draw returns a tensor [num_draws, N]")
def shapes_are_right(method: Method) -> None:
    """predict gives [S, N] with positive scales, draw gives [num_draws, N]; also for one row."""
    data = linear_data()
    posterior = fit(method, data, FEW_STEPS)
    for rows in (1, 7):
        predictive = predict(posterior, data.x[:rows])
        require(isinstance(predictive, Predictive), f"predict returned {type(predictive).__name__}, not a Predictive")
        require(predictive.num_points == rows, f"predict gave {predictive.num_points} points for {rows} rows")
        _require_finite(predictive, f"for {rows} rows")
        draws = draw(posterior, data.x[:rows], 4)
        require(isinstance(draws, Tensor), f"draw returned {type(draws).__name__}, not a tensor")
        require(tuple(draws.shape) == (4, rows), f"draw gave shape {tuple(draws.shape)}, expected (4, {rows})")


def _require_finite(predictive: Predictive, where: str) -> None:
    require(predictive.fault() is None, f"the prediction {where} {predictive.fault()}")


@check("restore what you change: torch.set_num_threads, set_default_dtype, set_grad_enabled belong to the caller")
def settings_of_torch_are_left_alone(method: Method) -> None:
    """Threads, default dtype, grad mode and determinism are the caller's."""
    before = _settings()
    try:
        _use(method)
        changed = [f"{name} from {before[name]} to {now}" for name, now in _settings().items() if now != before[name]]
    finally:
        torch.set_num_threads(int(before["threads"]))
        torch.set_default_dtype(before["default dtype"])
        torch.set_grad_enabled(bool(before["grad mode"]))
    require(not changed, f"fit, predict or draw changed {' and '.join(changed)}")


def _use(method: Method) -> None:
    """A short fit, a prediction and draws."""
    data = linear_data()
    posterior = fit(method, data, FEW_STEPS)
    predict(posterior, data.x)
    draw(posterior, data.x, 2)


def _settings() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "grad mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


@check("for a while only: warnings.catch_warnings(), np.errstate(); give a child process an environment of its own")
def settings_of_python_are_left_alone(method: Method) -> None:
    """Environment variables, warning filters, numpy's error handling and the working folder are the caller's."""
    with _restored_process():
        _use(method)  # what imports on first use change is no breach
    with _restored_process():
        before = _process_settings()
        _use(method)
        after = _process_settings()
    absent = object()
    changed = sorted(name for name in before | after if before.get(name, absent) != after.get(name, absent))
    require(not changed, f"fit, predict or draw changed {' and '.join(changed)}")


def _process_settings() -> dict[str, Any]:
    return {
        **{f"os.environ[{name!r}]": value for name, value in os.environ.items()},
        "the filters of warnings": list(warnings.filters),
        "np.geterr()": np.geterr(),
        "the working folder": os.getcwd(),
    }


@contextlib.contextmanager
def _restored_process() -> Iterator[None]:
    """Whatever happens to these settings inside, the caller finds them as they were."""
    environment, folder = dict(os.environ), os.getcwd()
    try:
        with warnings.catch_warnings(), np.errstate():
            yield
    finally:
        os.chdir(folder)
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


@check("work on copies: `train.x.clone()`, and no in-place operation (`mul_`, `x[...] = `) on what was passed in")
def inputs_are_left_alone(method: Method) -> None:
    """`fit` does not write into its data, nor `predict` and `draw` into x."""
    data = linear_data()
    before = copy(data)
    posterior = fit(method, data, FEW_STEPS)
    require(torch.equal(before.x, data.x) and torch.equal(before.y, data.y), "fit changed the training rows it was given")
    x = data.x.clone()
    with torch.no_grad():
        posterior.predict(x, random_stream())
        require(torch.equal(x, before.x), "predict changed the x it was given")
        posterior.draw(x, 3, random_stream())
        require(torch.equal(x, before.x), "draw changed the x it was given")


@check("yield after each small unit of work, and do not assign to the budget: it is read-only")
def budget_is_respected(method: Method) -> None:
    """One pull is a small unit of work: a quarter-second budget ends within two seconds, set-up included."""

    def posteriors() -> Iterator[Posterior]:
        return Meter(seconds=0.25, clock=time.process_time).pulls(method, linear_data(), random_stream())

    next(posteriors(), None)  # what a process pays once, such as imports on first use, is no breach
    start = time.process_time()
    for _ in posteriors():
        pass
    spent = time.process_time() - start
    require(spent < 2.0, f"a budget of 0.25 s took {spent:.1f} CPU seconds; yield more often")


@check("in a step budget `fraction` moves only when fit yields; bound pre-training by a number of steps as well")
def first_posterior_comes_soon(method: Method) -> None:
    """In a step budget the first posterior comes without waiting for `budget.fraction`, which moves only on a yield."""
    start = time.process_time()
    asked = 0

    def spent() -> tuple[float, int]:
        nonlocal asked
        asked += 1
        seconds = time.process_time() - start
        if seconds > FIRST_YIELD_SECONDS:
            raise CheckFailed(
                f"no posterior after {seconds:.0f} CPU seconds of a step budget; fit asked the budget {asked} times "
                "before its first yield, and `fraction` moves only on a yield"
            )
        return seconds, 0

    for _ in method.fit(linear_data(), Budget(steps=3, spent=spent), random_stream()):
        break
    seconds = time.process_time() - start
    require(seconds < FIRST_YIELD_SECONDS, f"the first posterior of a step budget took {seconds:.0f} CPU seconds")


def _odd_data() -> dict[str, Data]:
    base = linear_data()
    constant_column = torch.cat([base.x, torch.zeros(len(base), 1)], 1)
    return {
        "three rows": Data(base.x[:3], base.y[:3]),
        "one input": Data(base.x[:, :1], base.y),
        "a constant input": Data(constant_column, base.y),
        "a constant target": Data(base.x, torch.zeros_like(base.y)),
        "duplicated rows": Data(base.x[:10].repeat(8, 1), base.y[:10].repeat(8)),
        "100 inputs": linear_data(60, 100),
    }


@check("guard divisions by a spread that may be zero and sizes larger than the data; or raise a UsageError that says why")
def odd_data_are_survived(method: Method) -> None:
    """Tiny, constant, duplicated and wide data give finite predictions, or one clear error."""
    for name, data in _odd_data().items():
        try:
            predictive = predict(fit(method, data, 3 * FEW_STEPS), data.x)
        except Diverged as error:
            raise CheckFailed(f"diverged on data with {name}: {error}") from None
        except FsibenchError as error:
            require(len(str(error)) > 20, f"on data with {name} the error says too little: {error}")
            continue
        except Exception as error:
            raise CheckFailed(f"{type(error).__name__} on data with {name}: {error}".replace("\n", " ")) from error
        _require_finite(predictive, f"on data with {name}")
