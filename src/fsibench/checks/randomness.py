"""Where randomness comes from: the generators that are passed in, and nothing else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch

from fsibench.checks.catalogue import check, require
from fsibench.checks.problems import FEW_STEPS, copy, draw, fit, linear_data, predict, same
from fsibench.contract import Method
from fsibench.predictive import Predictive

# The global streams: name -> (state as something comparable, how to seed it).
STREAMS: dict[str, tuple[Callable[[], object], Callable[[int], object]]] = {
    "torch's": (lambda: torch.random.get_rng_state().numpy().tobytes(), torch.manual_seed),
    "numpy's": (lambda: repr(np.random.get_state(legacy=False)), np.random.seed),
    "Python's": (random.getstate, random.seed),
}
# No seeds that anybody would choose: a method that seeds a global stream with 0 must be seen to move it.
FIRST_SEED, SECOND_SEED = 7_203_411, 7_203_412
GENERATOR_HINT = "pass `generator=generator` to every torch function that draws, and seed other libraries from it"


@contextlib.contextmanager
def _restored_streams() -> Iterator[None]:
    """Whatever happens to the global streams inside, the caller finds them as they were."""
    states = torch.random.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.random.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _outcome(method: Method, seed: int = 3, streams: int = 0, look: bool = False) -> Predictive:
    """Predictions of a short fit on fresh data, with the global streams seeded."""
    _seed_all(streams)
    data = linear_data()
    return predict(fit(method, copy(data), FEW_STEPS, seed, look), data.x)


@check(GENERATOR_HINT)
def same_seed_same_result(method: Method) -> None:
    """Two fits with one seed agree bit for bit."""
    with _restored_streams():
        equal = same(_outcome(method, streams=1), _outcome(method, streams=2))
        if not equal:
            by_streams = same(_outcome(method, streams=1), _outcome(method, streams=1))
            cause = (
                "they depend on a global random state"
                if by_streams
                else "not even with all global random states fixed: they depend on the clock, on memory or on an earlier fit"
            )
            require(False, f"two fits with the same seed gave different predictions; {cause}")


@check(GENERATOR_HINT)
def global_random_state_is_ignored(method: Method) -> None:
    """Results depend on the generators passed in, and the global streams are left alone."""
    with _restored_streams():
        before = _seed_all(FIRST_SEED)
        first = _outcome_as_is(method)
        moved = [owner for owner, (state, _) in STREAMS.items() if state() != before[owner]]
        require(not moved, f"the method moves {' and '.join(moved)} global random state: it draws from it or seeds it")
        _seed_all(SECOND_SEED)
        if same(first, _outcome_as_is(method)):
            return
        for owner, (_, seeded) in STREAMS.items():  # a state that is read without being moved
            _seed_all(FIRST_SEED)
            repeats = same(first, _outcome_as_is(method))
            seeded(SECOND_SEED)
            changes = not same(first, _outcome_as_is(method))
            require(not (repeats and changes), f"results depend on {owner} global random state")


def _seed_all(seed: int) -> dict[str, object]:
    """Seed every global stream; returns their states."""
    for _, seeded in STREAMS.values():
        seeded(seed)
    return {owner: state() for owner, (state, _) in STREAMS.items()}


def _outcome_as_is(method: Method) -> Predictive:
    data = linear_data()
    posterior = fit(method, copy(data), FEW_STEPS)
    draw(posterior, data.x[:3], 2)
    return predict(posterior, data.x)


@check("predict and draw only read the state of the fit and use their own generator, never that of the fit")
def looking_changes_nothing(method: Method) -> None:
    """Predicting during the fit leaves its path unchanged."""
    with _restored_streams():
        blind, watched = _outcome(method), _outcome(method, look=True)
    require(same(blind, watched), "calling predict during the fit changed the fit")


@check("use the generator passed to fit; a method without randomness waives this check (`waivers`) and says so")
def different_seeds_differ(method: Method) -> None:
    """Another seed gives another fit or other predictions."""
    data = linear_data()
    with _restored_streams():
        posterior = fit(method, copy(data), FEW_STEPS, seed=3)
        other = fit(method, copy(data), FEW_STEPS, seed=4)
        fits_differ = not same(predict(posterior, data.x), predict(other, data.x))
    require(fits_differ, "two seeds gave the same predictions bit for bit: the generator of fit is not used")


@check("draw takes its randomness from the generator passed to it")
def draws_repeat_with_their_generator(method: Method) -> None:
    """Equal generators give equal draws; other ones give others, unless the posterior is a point."""
    data = linear_data()
    posterior = fit(method, data, FEW_STEPS)
    with _restored_streams():
        first, second, other = (draw(posterior, data.x[:5], 4, seed) for seed in (1, 1, 2))
    require(torch.equal(first, second), "two calls of draw with equal generators gave different functions")
    spread = float(first.std(0).mean())
    require(not torch.equal(first, other) or spread == 0.0, "draw gives the same functions whatever its generator")
