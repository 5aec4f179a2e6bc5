"""The list of checks, and how one is run: with a time limit, to one outcome."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fsibench.contract import Method
from fsibench.errors import UsageError, place, told, unknown

# Seconds of CPU time that one check may take. A check that sleeps spends none: it ends after four times as many seconds
# of wall time in which it had less than this share of a core. On a crowded machine a working check has more.
LIMIT = 60.0
WALL_FACTOR = 4.0
ASLEEP = 0.01


class CheckFailed(AssertionError):
    """A method does not keep the contract."""


class _OutOfTime(BaseException):
    """Raised by the timer inside a check; no `except Exception` of a method can swallow it."""


@dataclass(frozen=True)
class Check:
    """A named check; `hint` says what usually mends a failure."""

    name: str
    function: Callable[[Method], None]
    hint: str

    @property
    def meaning(self) -> str:
        return (self.function.__doc__ or "").strip().partition("\n")[0]


CHECKS: dict[str, Check] = {}


@dataclass(frozen=True)
class Outcome:
    """How a check ended: one line of reason, and a hint where it failed."""

    name: str
    status: Literal["ok", "failed", "waived"]
    reason: str = ""
    hint: str = ""
    seconds: float = 0.0


def check(hint: str) -> Callable[[Callable[[Method], None]], Callable[[Method], None]]:
    """Put a function on the list of checks."""

    def add(function: Callable[[Method], None]) -> Callable[[Method], None]:
        CHECKS[function.__name__] = Check(function.__name__, function, hint)
        return function

    return add


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise CheckFailed(sentence)


def run(name: str, method: Method, limit: float = LIMIT) -> Outcome:
    """Run one check on a method."""
    if name not in CHECKS:
        raise unknown("check", name, CHECKS)
    _require_waivers(method)
    if name in method.waivers:
        return Outcome(name, "waived", method.waivers[name])
    started = time.monotonic()
    reason = _reason(CHECKS[name], method, limit)
    seconds = time.monotonic() - started
    return Outcome(name, "failed", reason, CHECKS[name].hint, seconds) if reason else Outcome(name, "ok", "", "", seconds)


def _require_waivers(method: Method) -> None:
    """Waivers name checks, each with a reason that can be shown."""
    if not isinstance(method.waivers, Mapping):
        raise UsageError(f"`waivers` of {method.name} must be a dictionary {{check: reason}}; got {method.waivers!r}.")
    for waived, reason in method.waivers.items():
        if waived not in CHECKS:
            raise unknown(f"check waived by {method.name}", waived, CHECKS)
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(f"{method.name} waives {waived!r} without a reason; say in a few words why it cannot apply.")


def _reason(one: Check, method: Method, limit: float) -> str:
    """Empty when the check passes, else one sentence."""
    try:
        with _time_limit(limit):
            one.function(method)
    except CheckFailed as failure:
        return str(failure)
    except _OutOfTime as error:
        return f"not finished after {limit:g} s ({place(error)})"
    except Exception as error:  # noqa: BLE001 (whatever a method raises is a finding)
        return told(error)
    return ""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise inside the block when it takes too long: `seconds` of CPU time, or several times that asleep."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield  # signals reach the main thread only
        return

    began, spent = time.monotonic(), time.process_time()

    def stop(number: int, _frame: Any) -> None:
        if number == signal.SIGALRM and time.process_time() - spent > ASLEEP * (time.monotonic() - began):
            signal.setitimer(signal.ITIMER_REAL, WALL_FACTOR * seconds)
            return
        raise _OutOfTime

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, WALL_FACTOR * seconds))
    before = [(number, signal.signal(number, stop)) for number, _, _ in timers]
    for _, timer, after in timers:
        signal.setitimer(timer, after)
    try:
        yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0.0)
        for number, handler in before:
            signal.signal(number, handler)
