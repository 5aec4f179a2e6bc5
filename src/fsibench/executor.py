"""Where cells run: each in a process of its own, forked from a warm server, some at a time.

The server has torch and all methods imported, so a cell starts in a few hundredths of a second. A cell's process leads
its own session: Ctrl-C reaches the driver only, and killing the group takes whatever the method started along. When
the driver dies, the server sees its pipe close and exits, and the parent-death signal ends the cells.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any, Protocol

from fsibench.plan import Cell

# One thread each: two threads on tiny tensors are slower than one, and far slower on a busy machine.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# What a cell printed is kept for failures only, and only its end.
OUTPUT_TAIL = 4000
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Event:
    """Something a cell reports: `started`, `prepared`, `evaluation`, `finished`."""

    cell: Cell
    kind: str
    payload: dict[str, Any] = field(default_factory=dict)


class Executor(Protocol):
    """Runs cells somewhere and yields what they report; `stop` ends whatever is running."""

    def run(self, cells: Iterable[Cell]) -> Iterator[Event]: ...

    def stop(self) -> None: ...


class InlineExecutor:
    """In this process, one after the other: for tests and debuggers."""

    def run(self, cells: Iterable[Cell]) -> Iterator[Event]:
        from fsibench.runner import run_cell

        for cell in cells:
            yield Event(cell, "started")
            events: list[Event] = []
            run_cell(cell, lambda kind, payload, cell=cell, events=events: events.append(Event(cell, kind, payload)))
            yield from events

    def stop(self) -> None:
        """Nothing runs between two events."""


@dataclass
class _Running:
    """A live cell process as the driver sees it."""

    cell: Cell
    process: Any
    events: Connection
    output: IO[bytes]


class LocalExecutor:
    """`workers` processes at a time on this machine."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["fsibench.warm"])
        self._running: dict[str, _Running] = {}

    def run(self, cells: Iterable[Cell]) -> Iterator[Event]:
        waiting = iter(cells)
        exhausted = False
        while True:
            while not exhausted and len(self._running) < self.workers:
                cell = next(waiting, None)
                if cell is None:
                    exhausted = True
                else:
                    self._start(cell)
                    yield Event(cell, "started")
            if not self._running:
                return
            yield from self._listen()

    def stop(self) -> None:
        for running in self._running.values():
            self._end(running)
        self._running.clear()

    def _start(self, cell: Cell) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        output = tempfile.NamedTemporaryFile(prefix="fsibench-")  # noqa: SIM115 (closed when the cell ends)
        process = self._context.Process(target=_cell_process, args=(cell, sender, output.name))
        with _environment(ONE_THREAD):
            process.start()
        sender.close()
        self._running[cell.id] = _Running(cell, process, receiver, output)

    def _listen(self) -> Iterator[Event]:
        by_connection = {running.events: running for running in self._running.values()}
        for ready in multiprocessing.connection.wait(list(by_connection), timeout=0.5):
            running = by_connection[ready]  # type: ignore[index]
            try:
                kind, payload = running.events.recv()
            except (EOFError, OSError):
                kind, payload = "finished", self._lost(running)
            if kind == "finished":
                self._attach_output(running, payload)
                self._end(running)
                del self._running[running.cell.id]
            yield Event(running.cell, kind, payload)

    def _lost(self, running: _Running) -> dict[str, Any]:
        running.process.join(timeout=5)
        code = running.process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        return {"status": "lost", "details": {"message": f"the worker process {how}"}}

    def _attach_output(self, running: _Running, payload: dict[str, Any]) -> None:
        if payload["status"] in ("ok", "interrupted"):
            return
        size = running.output.seek(0, os.SEEK_END)
        running.output.seek(max(0, size - OUTPUT_TAIL))
        printed = running.output.read().decode(errors="replace").strip()
        if printed:
            before = payload["details"].get("traceback") or ""
            payload["details"]["traceback"] = f"{before}\n--- printed by the cell ---\n{printed}".strip()

    def _end(self, running: _Running) -> None:
        """Kill what is left of a cell's process group and free what the driver held for it."""
        running.process.join(timeout=0.05)
        if running.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is gone already
                os.killpg(running.process.pid, signal.SIGKILL)
        running.process.join(timeout=5)
        running.events.close()
        running.output.close()


def _cell_process(cell: Cell, sender: Connection, output: str) -> None:
    """Entry point of a cell's process."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent()
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    from fsibench.warm import run_in_fresh_process

    run_in_fresh_process(cell, lambda kind, payload: sender.send((kind, payload)))
    sys.stdout.flush()
    sender.close()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for the server, which inherits them when it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
