"""The behavioural contract as small named checks. Public: a plugin runs them with `fsibench check NAME`.

Each check takes a method and raises `CheckFailed` with one sentence; the tests run the same ones over every built-in.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import torch
from torch import Tensor

from fsibench.contract import Data, Meter, Method, Posterior
from fsibench.errors import Diverged, FsibenchError
from fsibench.predictive import Predictive

CHECKS: dict[str, Callable[[Method], None]] = {}
FEW_STEPS = 5


class CheckFailed(AssertionError):
    """A method does not keep the contract."""


def check(function: Callable[[Method], None]) -> Callable[[Method], None]:
    CHECKS[function.__name__] = function
    return function


def run(name: str, method: Method) -> str | None:
    """None when the check passes, else one sentence that says what was wrong."""
    try:
        CHECKS[name](method)
    except CheckFailed as failure:
        return str(failure)
    except Exception as error:  # noqa: BLE001 (whatever a method raises is a finding)
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
    return None


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise CheckFailed(sentence)


# Small problems ------------------------------------------------------------------------------------------------------


def linear_data(num_data: int = 120, num_inputs: int = 3, noise: float = 0.3, seed: int = 1) -> Data:
    """Standardised draws of y = x·w + noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_data, num_inputs, generator=generator)
    y = x.sum(1) + noise * torch.randn(num_data, generator=generator)
    return Data((x - x.mean(0)) / x.std(0, correction=0), (y - y.mean()) / y.std(correction=0))


def random_stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fit(method: Method, data: Data, steps: int, seed: int = 0, look: bool = False) -> Posterior:
    """The posterior after at most `steps` pulls; with `look`, predict after every pull as an eager harness would."""
    posterior: Posterior | None = None
    for posterior in Meter(steps=steps).pulls(method, data, random_stream(seed)):
        if look:
            posterior.predict(data.x[:2], random_stream(99))
    assert posterior is not None
    return posterior


def predict(posterior: Posterior, x: Tensor, seed: int = 7) -> Predictive:
    with torch.no_grad():
        return posterior.predict(x, random_stream(seed))


def same(first: Predictive, second: Predictive) -> bool:
    return torch.equal(first.loc, second.loc) and torch.equal(first.scale, second.scale)


# The checks ----------------------------------------------------------------------------------------------------------


@check
def yields_a_posterior(method: Method) -> None:
    """`fit` yields objects with `predict` and `draw`."""
    posterior = fit(method, linear_data(), 1)
    require(isinstance(posterior, Posterior), f"fit yielded {type(posterior).__name__}, which lacks predict or draw")


@check
def shapes_are_right(method: Method) -> None:
    """predict gives [S, N] with positive scales, draw gives [num_draws, N]; also for one row."""
    data = linear_data()
    posterior = fit(method, data, FEW_STEPS)
    for rows in (1, 7):
        predictive = predict(posterior, data.x[:rows])
        require(isinstance(predictive, Predictive), f"predict returned {type(predictive).__name__}, not a Predictive")
        require(predictive.num_points == rows, f"predict gave {predictive.num_points} points for {rows} rows")
        require(bool((predictive.scale > 0).all()), "predict gave a scale that is not positive")
        draws = posterior.draw(data.x[:rows], 4, random_stream())
        require(tuple(draws.shape) == (4, rows), f"draw gave shape {tuple(draws.shape)}, expected (4, {rows})")


@check
def same_seed_same_result(method: Method) -> None:
    """Two fits with one seed agree bit for bit."""
    data = linear_data()
    first, second = (predict(fit(method, data, FEW_STEPS, seed=3), data.x) for _ in range(2))
    require(same(first, second), "two fits with the same seed gave different predictions")


@check
def looking_changes_nothing(method: Method) -> None:
    """Predicting during the fit leaves its path unchanged."""
    data = linear_data()
    blind = predict(fit(method, data, FEW_STEPS), data.x)
    watched = predict(fit(method, data, FEW_STEPS, look=True), data.x)
    require(same(blind, watched), "calling predict during the fit changed the fit")


@check
def global_random_state_is_ignored(method: Method) -> None:
    """Results depend on the generators passed in, and the global streams are left alone."""
    data = linear_data()
    outcomes = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        outcomes.append(predict(fit(method, data, FEW_STEPS), data.x))
        require(torch.equal(before, torch.random.get_rng_state()), "the fit used torch's global random state")
    require(same(*outcomes), "results depend on torch's global random state")


@check
def settings_of_torch_are_left_alone(method: Method) -> None:
    """Threads, default dtype and grad mode are the caller's."""
    data = linear_data()
    before = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())
    predict(fit(method, data, FEW_STEPS), data.x)
    after = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())
    require(before == after, f"(threads, dtype, grad mode) changed from {before} to {after}")


@check
def training_rows_are_left_alone(method: Method) -> None:
    """`fit` does not write into its data."""
    data = linear_data()
    x, y = data.x.clone(), data.y.clone()
    fit(method, data, FEW_STEPS)
    require(torch.equal(x, data.x) and torch.equal(y, data.y), "fit changed the training rows it was given")


@check
def budget_is_respected(method: Method) -> None:
    """One pull is a small unit of work: a quarter-second budget ends within two seconds, set-up included."""
    start = time.process_time()
    for _ in Meter(seconds=0.25, clock=time.process_time).pulls(method, linear_data(), random_stream()):
        pass
    spent = time.process_time() - start
    require(spent < 2.0, f"a budget of 0.25 s took {spent:.1f} CPU seconds; yield more often")


@check
def beats_the_constant(method: Method) -> None:
    """On data with a strong linear signal the log-likelihood exceeds that of a Gaussian around the mean."""
    train, test = linear_data(seed=1), linear_data(seed=2)
    *_, posterior = Meter(seconds=4.0, clock=time.process_time).pulls(method, train, random_stream())
    reached = float(predict(posterior, test.x).double().log_prob(test.y.double()).mean())
    constant = Predictive(torch.zeros(1, len(test)), torch.ones(1, len(test)))
    floor = float(constant.log_prob(test.y).mean())
    require(reached > floor + 0.1, f"log-likelihood {reached:.2f}, but predicting the training mean gives {floor:.2f}")


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


@check
def odd_data_are_survived(method: Method) -> None:
    """Tiny, constant, duplicated and wide data give finite predictions, or one clear error."""
    for name, data in _odd_data().items():
        try:
            predictive = predict(fit(method, data, 3 * FEW_STEPS), data.x)
        except Diverged as error:
            raise CheckFailed(f"diverged on {name}: {error}") from None
        except FsibenchError as error:
            require(len(str(error)) > 20, f"on {name} the error says too little: {error}")
            continue
        finite = bool(torch.isfinite(predictive.loc).all()) and bool(torch.isfinite(predictive.scale).all())
        require(finite, f"predictions on {name} are not finite")


@check
def draws_are_coherent_functions(method: Method) -> None:
    """A draw is one function: the same input in two places has the same value."""
    data = linear_data()
    posterior = fit(method, data, FEW_STEPS)
    x = torch.cat([data.x[:5], data.x[:5]])
    draws = posterior.draw(x, 6, random_stream())
    gap = float((draws[:, :5] - draws[:, 5:]).abs().max())
    scale = float(draws.abs().max()) + 1e-3
    require(gap <= 1e-2 * scale, f"one draw has two values at the same input, {gap:.2g} apart")
