"""Drives a plan: skips what is done, runs the rest, writes what cells report, shows progress, stops cleanly."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TextIO

from fsibench.errors import StoreError
from fsibench.executors.base import Event, Executor
from fsibench.harness.events import Artifact, Evaluation, Finished, Loaded, Started
from fsibench.harness.plan import Cell
from fsibench.harness.store import FINAL_STATUSES, Store

CELL_COLUMNS = (
    *("id", "entry", "method", "note", "reproduces", "variant"),
    *("dataset", "scheme", "split", "seed", "clock", "device"),
)


# A cell whose worker vanished is tried this often in one run; the next run tries again.
MOST_ATTEMPTS = 3


def pending(store: Store, cells: Sequence[Cell], retry: Collection[str] = ()) -> list[Cell]:
    """The cells that the store has no final result for, or one with a status that is to be tried again."""
    known = store.statuses(cell.id for cell in cells)
    again = {cell.id for cell in without_artifacts(store, cells)}
    return [
        cell
        for cell in cells
        if known.get(cell.id) not in FINAL_STATUSES or known[cell.id] in retry or cell.id in again
    ]


def without_artifacts(store: Store, cells: Sequence[Cell]) -> list[Cell]:
    """The finished cells that have the scores but not what is to be kept beside them: they must run again for it."""
    kept = store.kept()
    return [
        cell
        for cell in cells
        if cell.id in kept and any(kept[cell.id].lacks(kind) for kind in cell.keep)
    ]


def drive(
    store: Store,
    run: int,
    cells: Sequence[Cell],
    executor: Executor,
    progress: Progress,
    calibration_seconds: float | None = None,
) -> bool:
    """Run the given cells to their ends, storing everything they report; False when interrupted.

    `calibration_seconds` is this machine's, for cells whose worker does not tell its own.
    """
    queue = deque(cells)
    attempts: dict[str, int] = {}
    running: dict[str, Cell] = {}
    try:
        with _handled(_interrupt):
            for event in executor.run(queue):
                if event is None:
                    store.commit(force=False)
                    continue
                cell, report = event
                if isinstance(report, Started):
                    running[cell.id] = cell
                    attempts[cell.id] = attempts.get(cell.id, 0) + 1
                if isinstance(report, Finished) and calibration_seconds is not None:
                    clocks = {"calibration_seconds": calibration_seconds, **report.clocks}
                    report = dataclasses.replace(report, clocks=clocks)
                _record(store, run, Event(cell, report))
                if isinstance(report, Finished):
                    store.commit()  # before it is shown: what was printed as done survives a kill in the next instant
                    del running[cell.id]
                    again = report.status == "lost" and attempts[cell.id] < MOST_ATTEMPTS
                    queue.extend([cell] if again else [])
                    progress.total += again
                progress.update(event, running)
    except KeyboardInterrupt:
        return False
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"the store {store.path} cannot be written ({error}); what was committed is safe. "
            "Make room and run the same command again: it goes on from there."
        ) from None
    finally:
        with _handled(signal.SIG_IGN):  # a second Ctrl-C finds the run stopping already
            executor.stop()
            progress.close()
            _mark_interrupted(store, running)
    return True


def _mark_interrupted(store: Store, running: dict[str, Cell]) -> None:
    with contextlib.suppress(sqlite3.OperationalError):  # a full disk: the next run marks them
        for cell in running.values():
            store.finish_cell(cell.id, Finished("interrupted", "the run was stopped"))
        store.commit()


def _record(store: Store, run: int, event: Event) -> None:
    cell, report = event
    match report:
        case Started():
            store.start_cell(run, _cell_row(cell))
        case Loaded():
            store.set_size(cell.id, report)
        case Evaluation():
            store.add_evaluation(cell.id, report)
        case Artifact():
            store.add_artifact(cell.id, report)
        case Finished():
            store.finish_cell(cell.id, report)


def _cell_row(cell: Cell) -> dict[str, Any]:
    row = {column: getattr(cell, column) for column in CELL_COLUMNS}
    return {
        **row,
        "options": json.dumps(dict(cell.options), default=list),
        "budget": cell.budget,
        "budget_seconds": cell.seconds,
        "budget_steps": cell.steps,
        "per_decade": cell.per_decade,
        "keep": ",".join(cell.keep),
        "data_fingerprint": cell.data_fingerprint,
        "code_version": cell.code_version,
    }


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to one handler for a while: both stop a run the same way."""
    if threading.current_thread() is not threading.main_thread():
        yield  # whoever owns the main thread handles signals
        return
    before = [(number, signal.signal(number, handler)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, previous in before:
            signal.signal(number, previous)


class Progress:
    """Cells done, running now, time left: one live line on a terminal, one line per finished cell elsewhere."""

    def __init__(self, todo: Sequence[Cell], workers: int, stream: TextIO | None = None) -> None:
        self.total = len(todo)
        self._waiting = Counter(cell.entry for cell in todo)  # cells of each entry that are not finished
        self._budgets = {cell.entry: cell.seconds for cell in todo}
        self._spent: dict[str, list[float]] = {}  # entry -> seconds of its finished cells
        self.workers = workers
        self.done = 0
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.started = time.monotonic()
        self._begun: dict[str, float] = {}
        self._said: set[str] = set()
        self._shown = 0.0

    def update(self, event: Event, running: dict[str, Cell]) -> None:
        cell, report = event
        if isinstance(report, Started):
            self._begun[cell.id] = time.monotonic()
        if isinstance(report, Finished):
            self.done += 1
            self._waiting[cell.entry] -= 1
            self._spent.setdefault(cell.entry, []).append(time.monotonic() - self._begun.pop(cell.id, time.monotonic()))
            if report.status != "ok" or not self.live or self._is_news(report):
                self._line(cell, report)
        if self.live and (isinstance(report, Finished) or time.monotonic() - self._shown > 0.2):
            self._shown = time.monotonic()
            names = ", ".join(cell.title for cell in running.values())
            self._overwrite(f"[{self.done}/{self.total}] {self._left()} left | {names}")

    def _is_news(self, report: Finished) -> bool:
        """Whether a cell that ended well says something that no other has said: every one may miss the same metric."""
        if not report.message or report.message in self._said:
            return False
        self._said.add(report.message)
        return True

    def close(self) -> None:
        if self.live:
            self._overwrite("")

    def _line(self, cell: Cell, report: Finished) -> None:
        if self.live:
            self._overwrite("")
        text = f"[{self.done}/{self.total}] {cell.title}: {report.status}"
        seconds = report.clocks.get("train_seconds")
        text += f", {seconds:.1f} s" if seconds is not None else ""
        text += f" ({report.message})" if report.message else f", {self._left()} left"
        print(text, file=self.stream, flush=True)

    def seconds_left(self) -> float | None:
        """Cells of an entry take what its finished ones took, before that its budget; None where neither is known."""
        known = [second for seconds in self._spent.values() for second in seconds]
        usual = sum(known) / len(known) if known else None
        total = 0.0
        for entry, count in self._waiting.items():
            spent = self._spent.get(entry)
            each = sum(spent) / len(spent) if spent else self._budgets[entry] or usual
            if each is None:
                return None
            total += count * each
        return total / self.workers

    def _left(self) -> str:
        seconds = self.seconds_left()
        if seconds is None:
            return "?"
        minutes, seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

    def _overwrite(self, text: str) -> None:
        import shutil

        width = shutil.get_terminal_size().columns - 1
        self.stream.write("\r\x1b[2K" + text[:width])
        self.stream.flush()
