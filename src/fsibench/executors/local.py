"""Cells on this machine, some at a time, each in a process of its own; `fsibench.executors.worker` is the other side.

The driver gives each slot a supervisor, forked from a server that has imported everything, and each cell a pipe. It
reads pipes and channels without blocking, checks every message, and enforces the limits: a cell that exceeds its time
or memory limit is killed with everything it started, and the reason becomes its status. A server or supervisor that
dies or sends an invalid message is replaced. The cell that it ran gets the status `lost` and is tried again. Ctrl-C
reaches the driver only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fsibench.executors import server
from fsibench.executors.base import Event, Limits, lost
from fsibench.executors.wire import READ_BYTES, Channel, Frames, cell_to_json
from fsibench.harness import processes
from fsibench.harness.events import Finished, MalformedMessage, Started, decode
from fsibench.harness.plan import Cell

# How often the driver looks at time and memory of running cells, in seconds.
WATCH_EVERY = 0.1
# Seconds after which a server that has made no supervisor, or a supervisor that has not ended its cell, is abandoned.
START_LIMIT = 300.0
STOP_LIMIT = 10.0


@dataclass
class _Job:
    """The state of one cell: given to a supervisor, begun, perhaps stopped, ended."""

    cell: Cell
    reports: int
    frames: Frames = field(default_factory=Frames)
    given: float = field(default_factory=time.monotonic)
    begun: float | None = None
    finished: Finished | None = None  # the end as the cell reports it
    verdict: Finished | None = None  # the end as the driver decides it: a limit was exceeded
    stopped: float | None = None
    closed: bool = False  # the pipe is closed at the other end

    def read(self, everything: bool = False) -> Iterator[Event]:
        """Reports that arrived since the last call; `MalformedMessage` for anything that is not a report of this cell."""
        while data := self._data():
            for frame in self.frames.feed(data):
                sender, report = decode(frame)
                if sender != self.cell.id:
                    raise MalformedMessage(f"a report carries the id {sender[:24]!r} of another cell")
                if self.finished is not None:
                    raise MalformedMessage("a report came after the last one")
                if isinstance(report, Finished):
                    self.finished = report
                else:
                    yield Event(self.cell, report)
            if not everything:
                return

    def _data(self) -> bytes:
        try:
            data = os.read(self.reports, READ_BYTES)
        except BlockingIOError:
            return b""
        self.closed = not data
        return data

    def end(self, code: int, printed: str) -> Finished:
        """How the cell ended; the output of a failed cell becomes part of its traceback."""
        report = self.verdict or self.finished or _end_without_report(code)
        if report.status == "ok" or not printed.strip():
            return report
        text = f"{report.traceback or ''}\n--- printed by the cell ---\n{printed.strip()}".strip()
        return dataclasses.replace(report, traceback=text)


def _end_without_report(code: int) -> Finished:
    """The end of a cell that exited without a closing report."""
    if code < 0:
        return lost(f"signal {-code}")
    return Finished("error", f"the method ended its process with exit code {code} before the cell was finished")


@dataclass
class _Slot:
    """A place for one cell at a time; `supervisor` is the process that runs it, once it has sent its process id."""

    number: int
    channel: Channel
    supervisor: int | None = None
    job: _Job | None = None


class LocalExecutor:
    """`workers` cells at a time on this machine."""

    def __init__(self, workers: int, limits: Limits = Limits()) -> None:  # noqa: B008 (frozen)
        self.workers = workers
        self.limits = limits
        self._slots: dict[int, _Slot] = {}
        self._selector = selectors.DefaultSelector()
        self._watched = time.monotonic()

    def run(self, queue: deque[Cell]) -> Iterator[Event | None]:
        while queue or self._busy():
            self._assign(queue)
            for key, _ in self._selector.select(WATCH_EVERY):
                slot: _Slot = key.data
                if self._slots.get(slot.number) is slot:  # not abandoned since `select` returned
                    yield from self._guarded(slot, queue, key.fileobj is slot.channel)
            if time.monotonic() - self._watched > WATCH_EVERY:
                self._watched = time.monotonic()
                for slot in list(self._slots.values()):
                    yield from self._enforce_limits(slot, queue)
            yield None

    def stop(self) -> None:
        """Kill all cells, their supervisors and what they started; the server stays for the next run of this process."""
        for slot in self._slots.values():
            with contextlib.suppress(OSError):  # closed from the other end
                slot.channel.socket.shutdown(socket.SHUT_WR)
        for slot in list(self._slots.values()):
            if slot.supervisor is not None:
                _await_end(slot.channel)
            self._give_up(slot)
        self._end_orphans()

    def _busy(self) -> bool:
        return any(slot.job is not None for slot in self._slots.values())

    # Cells go out ----------------------------------------------------------------------------------------------------

    def _assign(self, queue: deque[Cell]) -> None:
        for number in range(self.workers):
            if not queue:
                return
            slot = self._slots.get(number) or self._new_slot(number)
            if slot.job is None:
                self._give(slot, queue.popleft())

    def _give(self, slot: _Slot, cell: Cell) -> None:
        reports, sender = os.pipe()
        os.set_blocking(reports, False)
        slot.job = _Job(cell, reports)
        self._selector.register(reports, selectors.EVENT_READ, slot)
        with contextlib.suppress(OSError):  # the supervisor is dead: the next read of its channel reports it
            slot.channel.send({"run": cell_to_json(cell), "slot": slot.number}, (sender,))
        os.close(sender)

    def _new_slot(self, number: int) -> _Slot:
        slot = self._slots[number] = _Slot(number, server.live_server().ask_for_supervisor())
        self._selector.register(slot.channel, selectors.EVENT_READ, slot)
        return slot

    # Messages come in ------------------------------------------------------------------------------------------------

    def _guarded(self, slot: _Slot, queue: deque[Cell], from_supervisor: bool) -> Iterator[Event]:
        """Messages of one slot; an invalid or missing one abandons the slot and marks its cell as lost."""
        try:
            if from_supervisor:
                for message in slot.channel.receive():
                    yield from self._hear(slot, message)
            elif slot.job is not None and slot.job.begun is not None:  # else its `began` message comes first
                yield from slot.job.read()
                if slot.job.closed:
                    self._ignore(slot.job)
        except (EOFError, OSError):
            yield from self._lose(slot, "its supervisor was killed", queue)
        except MalformedMessage as error:
            yield from self._lose(slot, str(error), queue)

    def _hear(self, slot: _Slot, message: dict[str, Any]) -> Iterator[Event]:
        job = slot.job
        if "supervisor" in message:
            slot.supervisor = message["supervisor"]
            server.live_server().proven = True
        elif job is None or message["cell"] != job.cell.id:
            raise MalformedMessage("a supervisor sent a message about another cell")
        elif "began" in message:
            job.begun = time.monotonic()
            yield Event(job.cell, Started())
        elif "ended" in message:
            yield from job.read(everything=True)
            if job.frames.unfinished and job.verdict is None and message["ended"] >= 0:
                raise MalformedMessage("the last report of the cell is incomplete")
            self._forget_job(slot)
            yield Event(job.cell, job.end(message["ended"], message["printed"]))

    def _lose(self, slot: _Slot, how: str, queue: deque[Cell]) -> Iterator[Event]:
        """Abandon a slot; its cell is marked as lost, or goes back to the queue if it had not begun."""
        job = slot.job
        self._give_up(slot)
        self._end_orphans()
        if job is not None and job.begun is None:
            queue.appendleft(job.cell)
        elif job is not None:
            yield Event(job.cell, job.verdict or lost(how))

    def _give_up(self, slot: _Slot) -> None:
        if slot.supervisor is not None:
            processes.kill([*processes.descendants(slot.supervisor), slot.supervisor])
        self._forget_job(slot)
        self._selector.unregister(slot.channel)
        slot.channel.close()
        del self._slots[slot.number]

    def _forget_job(self, slot: _Slot) -> None:
        if slot.job is not None:
            self._ignore(slot.job)
            os.close(slot.job.reports)
            slot.job = None

    def _ignore(self, job: _Job) -> None:
        """Stop waiting for a pipe: one that is closed at the other end is always readable."""
        if job.reports in self._selector.get_map():
            self._selector.unregister(job.reports)

    # Limits ----------------------------------------------------------------------------------------------------------

    def _enforce_limits(self, slot: _Slot, queue: deque[Cell]) -> Iterator[Event]:
        job, now = slot.job, time.monotonic()
        if job is None:
            return
        if slot.supervisor is None or job.begun is None:
            if now - job.given > START_LIMIT:
                server.live_server().kill()
                yield from self._lose(slot, "it was not started", queue)
        elif job.stopped is not None:
            if now - job.stopped > STOP_LIMIT:
                yield from self._lose(slot, "it could not be stopped", queue)
        elif verdict := self._over_a_limit(slot.supervisor, now - job.begun):
            job.verdict, job.stopped = verdict, now
            with contextlib.suppress(OSError):  # it ended meanwhile
                slot.channel.send({"stop": job.cell.id})

    def _over_a_limit(self, supervisor: int, seconds: float) -> Finished | None:
        limits = self.limits
        if limits.seconds is not None and seconds > limits.seconds:
            return Finished("timeout", f"killed after {seconds:.0f} s; the limit is {limits.seconds:g} s per cell")
        if limits.memory_mb is not None:
            memory = processes.resident_mb(processes.descendants(supervisor))
            if memory > limits.memory_mb:
                what = f"killed at {memory:.0f} MB of resident memory; the limit is {limits.memory_mb:.0f} MB"
                return Finished("oom", what)
        return None

    def _end_orphans(self) -> None:
        server.end_orphans({slot.supervisor for slot in self._slots.values() if slot.supervisor is not None})


def _await_end(channel: Channel) -> None:
    """Read until the supervisor closes its end, which it does after all its descendants have ended."""
    channel.socket.settimeout(STOP_LIMIT)
    with contextlib.suppress(EOFError, OSError, MalformedMessage):
        while True:
            channel.receive()


def physical_memory_mb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
