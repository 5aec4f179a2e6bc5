"""Where cells run on this machine: each in processes of its own, forked from a warm server, some at a time.

    driver ── fork server ── supervisor ── cell
                             (leads a session of its own)

The server has torch and all methods imported, so a cell starts in a few hundredths of a second. The supervisor does
nothing but wait: when the cell dies it says how, and when the driver dies it kills the session, so that neither the
cell nor anything a method started outlives the run. Ctrl-C reaches the driver only. The driver enforces the limits:
a cell over its time or its resident memory is killed and the reason becomes its status.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import multiprocessing
import multiprocessing.connection
import os
import select
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from fsibench.executors.base import Event, Limits, lost
from fsibench.harness.events import Finished, Report, Started, decode, encode
from fsibench.harness.plan import Cell

# One thread each: two threads on tiny tensors are slower than one, and far slower on a busy machine.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# What a cell printed is kept for failures only, and only its end.
OUTPUT_TAIL = 4000
# How often the driver looks at time and memory of running cells, in seconds.
WATCH_EVERY = 0.1
PR_SET_PDEATHSIG = 1


@dataclass
class _Running:
    """A live cell as the driver sees it."""

    cell: Cell
    process: Any
    events: Connection
    output: IO[bytes]
    slot: int
    started: float


class LocalExecutor:
    """`workers` cells at a time on this machine."""

    def __init__(self, workers: int, limits: Limits = Limits()) -> None:  # noqa: B008 (frozen)
        self.workers = workers
        self.limits = limits
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["fsibench.executors.preload"])
        self._running: dict[str, _Running] = {}

    def run(self, queue: deque[Cell]) -> Iterator[Event]:
        while queue or self._running:
            while queue and len(self._running) < self.workers:
                cell = queue.popleft()
                self._start(cell)
                yield Event(cell, Started())
            yield from self._listen()
            yield from self._enforce_limits()

    def stop(self) -> None:
        for running in self._running.values():
            self._end(running)
        self._running.clear()

    def _start(self, cell: Cell) -> None:
        slot = min(set(range(self.workers)) - {running.slot for running in self._running.values()})
        receiver, sender = self._context.Pipe(duplex=False)
        output = tempfile.NamedTemporaryFile(prefix="fsibench-")  # noqa: SIM115 (closed when the cell ends)
        process = self._context.Process(target=_supervise, args=(cell, sender, output.name, slot))
        with _environment(ONE_THREAD):
            process.start()
        sender.close()
        self._running[cell.id] = _Running(cell, process, receiver, output, slot, time.monotonic())

    def _listen(self) -> Iterator[Event]:
        by_connection = {running.events: running for running in self._running.values()}
        for ready in multiprocessing.connection.wait(list(by_connection), timeout=WATCH_EVERY):
            running = by_connection[ready]  # type: ignore[index]
            try:
                _, report = decode(running.events.recv_bytes())
            except (EOFError, OSError):
                report = lost("its supervisor vanished")
            yield self._event(running, report)

    def _enforce_limits(self) -> Iterator[Event]:
        for running in list(self._running.values()):
            seconds = time.monotonic() - running.started
            if self.limits.seconds is not None and seconds > self.limits.seconds:
                message = f"killed after {seconds:.0f} s; the limit is {self.limits.seconds:g} s per cell"
                yield self._event(running, Finished("timeout", message))
            elif self.limits.memory_mb is not None:
                memory = cell_memory_mb(running.process.pid)
                if memory > self.limits.memory_mb:
                    message = f"killed at {memory:.0f} MB of resident memory; the limit is {self.limits.memory_mb:.0f} MB"
                    yield self._event(running, Finished("oom", message))

    def _event(self, running: _Running, report: Report) -> Event:
        if isinstance(report, Finished):
            report = self._with_output(running, report)
            self._end(running)
            del self._running[running.cell.id]
        return Event(running.cell, report)

    def _with_output(self, running: _Running, report: Finished) -> Finished:
        """What a failed cell printed becomes part of its traceback."""
        if report.status == "ok":
            return report
        size = running.output.seek(0, os.SEEK_END)
        running.output.seek(max(0, size - OUTPUT_TAIL))
        printed = running.output.read().decode(errors="replace").strip()
        if not printed:
            return report
        text = f"{report.traceback or ''}\n--- printed by the cell ---\n{printed}".strip()
        return dataclasses.replace(report, traceback=text)

    def _end(self, running: _Running) -> None:
        """Kill what is left of a cell's session and free what the driver held for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is gone already
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.join(timeout=5)
        running.events.close()
        running.output.close()


# In the cell's own processes -----------------------------------------------------------------------------------------


def _supervise(cell: Cell, sender: Connection, output: str, slot: int) -> None:
    """Lead a session, run the cell in a child, report how it ended, and leave nobody behind."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    pin_to_a_free_core(slot)
    child = os.fork()
    if child == 0:
        _cell_process(cell, sender)
    status = _wait_for(child, sender)
    if status is not None and status != 0:
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        with contextlib.suppress(OSError):  # the driver is gone, nobody listens
            sender.send_bytes(encode(cell.id, lost(how)).encode())
    sender.close()
    os.killpg(0, signal.SIGKILL)


def _wait_for(child: int, sender: Connection) -> int | None:
    """Exit code of the child (negative: a signal), or None when the driver died first."""
    driver = select.poll()
    driver.register(sender.fileno(), 0)  # no event asked for: errors are always told, and a lost reader is one
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if driver.poll(50):
            return None


def _cell_process(cell: Cell, sender: Connection) -> None:
    code = 1
    try:
        _die_with_parent()
        _offer_to_the_oom_killer()
        from fsibench.executors.preload import run_in_fresh_process

        run_in_fresh_process(cell, lambda report: sender.send_bytes(encode(cell.id, report).encode()))
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _offer_to_the_oom_killer() -> None:
    """When the machine runs out of memory, the cell goes before the driver and the user's other programs."""
    with contextlib.suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text("1000")


# What the system can tell --------------------------------------------------------------------------------------------


def pin_to_a_free_core(slot: int) -> int | None:
    """Stay on one core that no other cell of this user is pinned to, beginning with the slot's own; else on none.

    A lock per core says who is where, also between two runs at once. It is held open until the process ends.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    for number in range(len(cores)):
        core = cores[(slot + number) % len(cores)]
        path = Path(tempfile.gettempdir()) / f"fsibench-{os.getuid()}-core-{core}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue  # taken
        os.sched_setaffinity(0, {core})
        return core
    return None


def cell_memory_mb(supervisor: int) -> float:
    """Resident memory of everything below a supervisor; 0 where the system does not tell."""
    try:
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return sum(_resident_mb(child) + cell_memory_mb(int(child)) for child in children)
    except (OSError, IndexError):
        return 0.0  # gone meanwhile, or no /proc


def _resident_mb(process: str) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def physical_memory_mb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6


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
