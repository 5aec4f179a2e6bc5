"""The processes that the local executor starts: one server, a supervisor per slot, a process per cell.

    driver ── server ── supervisor ── cell ── whatever the method starts

`serve` imports torch and all methods once and forks supervisors. A supervisor forks one cell after the other, each a
fraction of a second away from running. It adopts what a cell leaves behind, so that when the cell ends, everything it
started ends too, in whatever session. When its channel closes, the driver has ended: it kills its cell and exits.

A cell has three outputs: reports, as frames on a pipe to the driver; printed text, of which the supervisor keeps the
end; and its exit code. Nothing that comes from a cell is unpickled, and every report is checked.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fsibench.executors.cores import Core, claim_core
from fsibench.executors.wire import READ_BYTES, Channel, cell_from_json, pack
from fsibench.harness import identity, processes
from fsibench.harness.events import Finished, Report, encode

# What a cell printed is kept for failures only, and only its end.
OUTPUT_TAIL = 4000
# Seconds that the server waits for supervisors to exit after the driver has ended.
PATIENCE = 10.0

# What `ps` and `top` call them.
SERVER, SUPERVISOR, CELL = "fsi-server", "fsi-supervisor", "fsi-cell"

# The server ----------------------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Fork a supervisor for each socket that arrives; end with the driver."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.be_called(SERVER)
    processes.adopt_orphans()
    import fsibench.executors.preload  # noqa: F401 (the point of a warm server)

    gc.collect()
    gc.freeze()  # exempt from garbage collection: a collection in a cell would write to these pages and so copy them
    alarm = _wake_on_child()
    supervisors: set[int] = set()
    while True:
        ready = _wait(control, alarm)
        if control.fileno() in ready:
            data, sockets, _, _ = socket.recv_fds(control, 1, 1)
            if not data:
                break
            supervisors.add(_fork_supervisor(socket.socket(fileno=sockets[0]), control))
        supervisors -= _reaped(supervisors)
        processes.end_descendants(supervisors)  # what a killed supervisor left
    _leave(supervisors)


def _leave(supervisors: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while supervisors and time.monotonic() < deadline:
        supervisors -= _reaped(supervisors)
        time.sleep(processes.SWEEP_EVERY)
    processes.end_descendants()


def _reaped(children: set[int]) -> set[int]:
    """Those of our children that have ended."""
    return {child for child in children if os.waitpid(child, os.WNOHANG)[0]}


def _fork_supervisor(end: socket.socket, control: socket.socket) -> int:
    child = os.fork()
    if child == 0:
        try:
            control.close()
            supervise(Channel(end))
        finally:
            os._exit(0)
    end.close()
    return child


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    alarm, setter = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(setter, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(setter, warn_on_full_buffer=False)
    return alarm


def _wait(*descriptors: Any) -> set[int]:
    """Which of the descriptors can be read; blocks until one can."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    ready = {number for number, _ in poll.poll()}
    if descriptors[-1] in ready:  # empty the wake-up pipe, however many signals arrived
        with contextlib.suppress(BlockingIOError):
            os.read(descriptors[-1], READ_BYTES)
    return ready


# The supervisor ------------------------------------------------------------------------------------------------------


@dataclass
class _Job:
    """A cell as its supervisor sees it."""

    id: str
    process: int
    output: int | None
    printed: bytes = b""

    def listen(self) -> None:
        """Read what the cell has printed, without waiting for more; keep the end."""
        if self.output is None:
            return
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.output, READ_BYTES)
            self.printed = (self.printed + data)[-OUTPUT_TAIL:]
            if not data:
                self.close()

    def close(self) -> None:
        if self.output is not None:
            os.close(self.output)
            self.output = None


def supervise(channel: Channel) -> None:
    """Run the cells that arrive on a channel, one at a time, until it closes."""
    os.setsid()
    processes.be_called(SUPERVISOR)
    processes.adopt_orphans()
    alarm = _wake_on_child()
    core: Core | None = None
    with contextlib.suppress(EOFError, OSError):  # the driver has ended
        channel.send({"supervisor": os.getpid()})
        while True:
            for message in channel.receive():
                if "folder" in message:
                    _settle(message["folder"], message["environment"])
                elif "run" in message:  # other messages concern a cell that has already ended
                    core = core or claim_core(message["slot"])
                    job = _fork_cell(message["run"], channel, core)
                    channel.send({"cell": job.id, "began": job.process})
                    code = _until_it_ends(job, channel, alarm)
                    channel.send({"cell": job.id, "ended": code, "printed": job.printed.decode(errors="replace")})
    processes.end_descendants()


def _settle(folder: str, environment: dict[str, str]) -> None:
    """Take over the driver's working folder and environment: the server may be older than the run."""
    with contextlib.suppress(OSError):  # the folder was removed
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def _until_it_ends(job: _Job, channel: Channel, alarm: int) -> int:
    """Exit code of the cell, negative for a signal, once nothing of it is left."""
    while True:
        ready = _wait(channel, *([] if job.output is None else [job.output]), alarm)
        job.listen()
        if channel.fileno() in ready and {"stop": job.id} in channel.receive():
            processes.kill([job.process])
        process, status = os.waitpid(job.process, os.WNOHANG)
        if process:
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the group ended with its leader
        os.killpg(job.process, signal.SIGKILL)  # for systems where descendants cannot be listed
    processes.end_descendants()
    job.listen()
    job.close()
    return os.waitstatus_to_exitcode(status)


def _fork_cell(text: str, channel: Channel, core: Core | None) -> _Job:
    cell = cell_from_json(text)
    if cell.file is not None:
        identity.read_ahead(Path(cell.file.rpartition(":")[0]))
    reports = channel.descriptors.pop()
    output, printer = os.pipe()
    os.set_blocking(output, False)
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            channel.close()
            os.close(output)
            _become_cell(supervisor, printer, core)
            _report_all(cell, reports)
        finally:
            os._exit(1)
    os.close(reports)
    os.close(printer)
    return _Job(cell.id, child, output)


# The cell ------------------------------------------------------------------------------------------------------------


def _become_cell(supervisor: int, printer: int, core: Core | None) -> None:
    """Give the cell its own session, descendants and output, and a core where one is free."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    processes.die_with_parent()
    if os.getppid() != supervisor:
        os._exit(1)  # it ended before we could ask to be told
    os.setsid()
    processes.be_called(CELL)
    processes.adopt_orphans()
    os.dup2(printer, 1)
    os.dup2(printer, 2)
    os.close(printer)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()
    _offer_to_the_oom_killer()
    if core is not None:
        os.close(core.lock)  # the claim is the supervisor's, and ends with it
        os.sched_setaffinity(0, {core.number})


def _report_all(cell: Any, reports: int) -> NoReturn:
    """Run the cell and send its reports, including its end, for any exception of the method."""
    process = os.getpid()

    def emit(report: Report) -> None:
        if os.getpid() != process:
            os._exit(1)  # a copy of the cell that a method forked and forgot
        frame = memoryview(pack(encode(cell.id, report).encode()))
        while frame:
            frame = frame[os.write(reports, frame) :]

    from fsibench.executors.preload import run_in_fresh_process

    try:
        run_in_fresh_process(cell, emit)
    except BaseException as error:  # noqa: BLE001 (also sys.exit and an interrupt end a cell, not a supervisor)
        emit(Finished("error", f"{type(error).__name__}: {error}", traceback.format_exc()))
    finally:
        sys.stdout.flush()
        os._exit(0)


def _offer_to_the_oom_killer() -> None:
    """When the machine runs out of memory, the cell goes before the driver and the user's other programs."""
    with contextlib.suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text("1000")
