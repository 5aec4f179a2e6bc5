"""Processes as the system shows them: who descends from whom, what they hold and what they have used, and their end.

Everything here works through `/proc` and `prctl`, so on Linux. Elsewhere the family of a process is the process itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
# Between two looks at processes that have been killed and are not gone yet, in seconds.
SWEEP_EVERY = 0.002
# Positions in /proc/PID/stat behind the name of the program: CPU ticks of the process, and of its reaped children.
_OWN_TICKS, _REAPED_TICKS = slice(11, 13), slice(13, 15)
# Likewise: when the process started, in ticks since the machine did. With the process id it names a process for good.
_START = 19


def children(process: int) -> list[int]:
    """Direct children, also those that were started from a thread; none where the system does not tell."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # gone meanwhile, or no /proc
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/children", "rb") as listing:
                found += [int(child) for child in listing.read().split()]
    return found


def descendants(process: int) -> list[int]:
    """All processes below one, parents before children."""
    found: list[int] = []
    waiting = children(process)
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting += children(child)
    return found


def resident_mb(processes: Iterable[int]) -> float:
    """Resident memory of some processes together."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(OSError, IndexError):  # gone meanwhile
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_MB
    return total


def family_cpu_seconds() -> float:
    """CPU seconds of this process and of everything it started, running or ended.

    Whole only in a process that adopts orphans, as every cell does. Living children count with the resolution of the
    system's clock tick, 0.01 s.
    """
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    below = sum(_cpu_seconds(process) for process in descendants(os.getpid()))
    return time.process_time() + reaped.ru_utime + reaped.ru_stime + below


def _cpu_seconds(process: int) -> float:
    """CPU seconds of a process and of the children it has waited for."""
    fields = _statistics(process)  # empty if the process has ended; its parent then has counted its time
    return sum(map(int, fields[_OWN_TICKS] + fields[_REAPED_TICKS])) / TICKS_PER_SECOND


def _statistics(process: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name of the program; empty when the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def identity(process: int) -> str:
    """A name that no other process of this machine ever has: namespace, id and start; empty when it is gone."""
    fields = _statistics(process)
    try:
        return f"{os.readlink('/proc/self/ns/pid')}/{process}/{fields[_START]}" if fields else ""
    except OSError:
        return ""


def carrying(mark: str, among: Iterable[int] | None = None) -> dict[int, str]:
    """Processes of ours with a variable of this name in the environment they started with, and its value."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*") if among is None else (Path(f"/proc/{number}") for number in among):
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to look at
            for variable in (entry / "environ").read_bytes().split(b"\0"):
                if variable.startswith(f"{mark}=".encode()):
                    found[int(entry.name)] = variable.partition(b"=")[2].decode(errors="replace")
    return found


def adopt_orphans(wanted: bool = True) -> None:
    """From now on a descendant whose parent dies becomes a child of this process, instead of init's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def be_called(name: str) -> None:
    """The name of this process in `ps` and `top`; at most 15 letters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""  # gone meanwhile


def kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone meanwhile
            os.kill(process, signal.SIGKILL)


def end_descendants(spared: Iterable[int] = (), seconds: float = 10.0) -> None:
    """Kill and reap everything below this process but the spared children and what is below them.

    For a process that adopts orphans: a process that is started during one round is found in the next.
    """
    spared = set(spared)
    deadline = time.monotonic() + seconds
    while doomed := [child for child in children(os.getpid()) if child not in spared]:
        for child in doomed:
            kill((child, *descendants(child)))
        for child in doomed:
            with contextlib.suppress(ChildProcessError):  # reaped elsewhere
                os.waitpid(child, os.WNOHANG)
        if time.monotonic() > deadline:
            return  # stuck inside the kernel: nothing more can be done from here
        time.sleep(SWEEP_EVERY)
