"""Drives a plan: skips what is done, runs the rest, writes what cells report, shows progress, stops cleanly."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from fsibench.executor import Event, Executor
from fsibench.plan import Cell
from fsibench.store import FINAL_STATUSES, Store

JSON_COLUMNS = ("pit", "trace")
CELL_COLUMNS = ("id", "entry", "method", "note", "dataset", "scheme", "split", "seed", "clock", "device")


@dataclasses.dataclass
class Outcome:
    """What became of a run."""

    finished: int = 0
    failed: int = 0
    skipped: int = 0
    interrupted: bool = False


def pending(store: Store, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that the store has no final result for."""
    known = store.statuses(cell.id for cell in cells)
    return [cell for cell in cells if known.get(cell.id) not in FINAL_STATUSES]


def drive(
    store: Store,
    run: int,
    cells: Sequence[Cell],
    executor: Executor,
    progress: Progress,
) -> Outcome:
    """Run the given cells to their ends, or until interrupted; everything reported is stored at once."""
    outcome = Outcome()
    running: dict[str, Cell] = {}
    with _stop_signals():
        try:
            for event in executor.run(cells):
                _record(store, run, event)
                if event.kind == "started":
                    running[event.cell.id] = event.cell
                elif event.kind == "finished":
                    running.pop(event.cell.id, None)
                    outcome.finished += 1
                    outcome.failed += event.payload["status"] != "ok"
                progress.update(event, running)
        except KeyboardInterrupt:
            outcome.interrupted = True
        finally:
            executor.stop()
            for cell in running.values():
                store.finish_cell(cell.id, "interrupted", {"message": "the run was stopped"})
            store.commit()
            progress.close()
    return outcome


def _record(store: Store, run: int, event: Event) -> None:
    cell, payload = event.cell, event.payload
    if event.kind == "started":
        store.start_cell(run, _cell_row(cell))
    elif event.kind == "prepared":
        store.update_cell(cell.id, payload)
    elif event.kind == "evaluation":
        store.add_evaluation(cell.id, {k: json.dumps(v) if k in JSON_COLUMNS else v for k, v in payload.items()})
    elif event.kind == "artifact":
        store.add_artifact(cell.id, payload["kind"], payload["content"])
    else:
        assert event.kind == "finished", event.kind
        store.finish_cell(cell.id, payload["status"], payload["details"])


def _cell_row(cell: Cell) -> dict[str, Any]:
    row = {column: getattr(cell, column) for column in CELL_COLUMNS}
    return {
        **row,
        "options": json.dumps(dict(cell.options), default=list),
        "budget": cell.budget,
        "data_fingerprint": cell.data_fingerprint,
        "code_version": cell.code_version,
    }


@contextlib.contextmanager
def _stop_signals() -> Iterator[None]:
    """SIGTERM stops a run the way Ctrl-C does."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: whoever owns it handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Progress:
    """Cells done, running now, time left: one live line on a terminal, one line per finished cell elsewhere."""

    def __init__(self, total: int, workers: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.workers = workers
        self.done = 0
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.started = time.monotonic()
        self._busy = 0.0
        self._begun: dict[str, float] = {}
        self._shown = 0.0

    def update(self, event: Event, running: dict[str, Cell]) -> None:
        if event.kind == "started":
            self._begun[event.cell.id] = time.monotonic()
        if event.kind == "finished":
            self.done += 1
            self._busy += time.monotonic() - self._begun.pop(event.cell.id, time.monotonic())
            if event.payload["status"] != "ok" or not self.live:
                self._line(event)
        if self.live and (event.kind == "finished" or time.monotonic() - self._shown > 0.2):
            self._shown = time.monotonic()
            names = ", ".join(cell.title for cell in running.values())
            self._overwrite(f"[{self.done}/{self.total}] {self._left()} left | {names}")

    def close(self) -> None:
        if self.live:
            self._overwrite("")

    def _line(self, event: Event) -> None:
        status, details = event.payload["status"], event.payload["details"]
        if self.live:
            self._overwrite("")
        text = f"[{self.done}/{self.total}] {event.cell.title}: {status}"
        seconds = details.get("train_seconds")
        text += f", {seconds:.1f} s" if seconds is not None else ""
        text += f" ({details['message']})" if details.get("message") else f", {self._left()} left"
        print(text, file=self.stream, flush=True)

    def _left(self) -> str:
        if not self.done:
            return "?"
        seconds = self._busy / self.done * (self.total - self.done) / self.workers
        minutes, seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

    def _overwrite(self, text: str) -> None:
        import shutil

        width = shutil.get_terminal_size().columns - 1
        self.stream.write("\r\x1b[2K" + text[:width])
        self.stream.flush()
