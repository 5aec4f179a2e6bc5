"""What every executor is: it takes cells from a queue and yields what they report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fsibench.harness.events import Finished, Report
from fsibench.harness.plan import Cell


class Event(NamedTuple):
    """A report and the cell it belongs to."""

    cell: Cell
    report: Report


class Executor(Protocol):
    """Runs cells somewhere and yields what they report; `stop` ends whatever is running.

    The queue may grow while it is worked off (a lost cell is put back), so executors take from its left end. None in
    place of an event is a tick of the clock: nothing was reported for a while.
    """

    def run(self, queue: deque[Cell]) -> Iterator[Event | None]: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """Per cell: wall seconds beyond which it is killed, resident megabytes likewise; None is no limit."""

    seconds: float | None = None
    memory_mb: float | None = None


def lost(how: str) -> Finished:
    """The final report of a cell whose process is gone."""
    return Finished("lost", f"the worker process was lost: {how}")
