"""The warm server as the driver sees it: one per process, started on demand, asked for supervisors, ended at exit."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from fsibench.errors import UsageError
from fsibench.executors.wire import Channel
from fsibench.harness import processes

# One thread each: two threads on tiny tensors are slower than one, and far slower on a busy machine.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# After this many servers in a row have ended without making a supervisor, the run stops with an error.
MOST_FAILED_STARTS = 3
# In the environment of all our processes and, as a rule, of what methods start: the identity of the driver. It finds
# those whose parents were killed.
FAMILY = "FSIBENCH_FAMILY"
# With the driver's module path, because `-P` keeps the working folder out of it.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    "from fsibench.executors.worker import serve; serve(int(sys.argv[1]))"
)


def _environment() -> dict[str, str]:
    """Of all our processes, and so of what methods start: that of this process, which is the driver."""
    return {**os.environ, **ONE_THREAD, FAMILY: processes.identity(os.getpid())}


class Server:
    """One server process, and the socket to ask it for supervisors."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.proven = False  # has made a supervisor
        self._control, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), json.dumps(sys.path)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C reaches the driver only
            env=_environment(),
        )
        theirs.close()

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def ask_for_supervisor(self) -> Channel:
        """A channel to a new supervisor, which works in this process's folder and environment."""
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        with theirs, contextlib.suppress(OSError):  # the server is dead: the next read of the channel reports it
            socket.send_fds(self._control, [b"s"], [theirs.fileno()])
            channel.send({"folder": os.getcwd(), "environment": _environment()})
        return channel

    def last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 500))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.owner == os.getpid():
            self.kill()
        self._control.close()
        self._log.close()


_server: Server | None = None
_failed_starts = 0
_lock = threading.Lock()  # a Dask worker may run cells from several threads


def live_server() -> Server:
    """The server of this process: the one that runs, or a new one."""
    global _server, _failed_starts
    with _lock:
        if _server is not None and not _server.alive:
            _failed_starts = 0 if _server.proven else _failed_starts + 1
            if _failed_starts >= MOST_FAILED_STARTS:
                _failed_starts = 0
                raise _cannot_start(_server)
            _server.close()
            _server = None
        if _server is None:
            processes.adopt_orphans()
            end_strays()
            _server = Server()
        return _server


def end_orphans(spared: set[int]) -> None:
    """End what became a child of this process when a killed server or supervisor left it behind."""
    if _server is not None:
        spared = {*spared, _server.process.pid}
    me = processes.identity(os.getpid())
    while orphans := [
        child for child in processes.children(os.getpid()) if child not in spared and _family(child) == me != ""
    ]:
        for orphan in orphans:
            processes.kill([*processes.descendants(orphan), orphan])
        for orphan in orphans:
            with contextlib.suppress(ChildProcessError):  # reaped elsewhere
                os.waitpid(orphan, 0)


def end_strays(seconds: float = 10.0) -> None:
    """Kill processes that belong to drivers that have ended: driver, server and supervisor can be killed at once.

    A stray may start another one until the moment it dies, so that one look is not enough.
    """
    deadline = time.monotonic() + seconds
    while (strays := _strays()) and time.monotonic() < deadline:
        processes.kill(strays)
        time.sleep(processes.SWEEP_EVERY)


def _strays() -> list[int]:
    """Living processes whose driver is gone."""
    here = processes.identity(os.getpid()).partition("/")[0]
    found = []
    for process, driver in processes.carrying(FAMILY).items():
        namespace, _, rest = driver.partition("/")
        number = rest.partition("/")[0]
        if namespace == here and number.isdigit() and processes.identity(int(number)) != driver:
            found.append(process)
    return found


@atexit.register
def _close() -> None:
    if _server is not None and _server.owner == os.getpid():
        _server.close()
        end_orphans(set())


def _family(process: int) -> str:
    return processes.carrying(FAMILY, [process]).get(process, "")


def _cannot_start(server: Server) -> UsageError:
    return UsageError(
        f"the process that imports torch and the methods ended {MOST_FAILED_STARTS} times before any cell could run "
        f"(exit code {server.process.returncode}; {server.last_words()}). `fsibench list methods` may name a broken plugin."
    )
