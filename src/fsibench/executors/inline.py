"""Cells in this process, one after the other: for tests, debuggers and scale measurements. No limits, no isolation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from fsibench.executors.base import Event
from fsibench.harness.events import Report, Started
from fsibench.harness.plan import Cell


class InlineExecutor:
    """One cell after the other in the calling process."""

    def run(self, queue: deque[Cell]) -> Iterator[Event | None]:
        from fsibench.harness.runner import run_cell

        while queue:
            cell = queue.popleft()
            yield Event(cell, Started())
            reports: list[Report] = []
            run_cell(cell, reports.append)
            yield from (Event(cell, report) for report in reports)

    def stop(self) -> None:
        """Nothing runs between two events."""
