"""Pins cells to cores. A lock file per core keeps two cells off the same core, also cells of two runs."""

from __future__ import annotations

import fcntl
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Core:
    """A claimed core; `lock` is the descriptor that holds the claim, for as long as it is open."""

    number: int
    lock: int


def claim_core(slot: int) -> Core | None:
    """A core that no other cell of this user is pinned to, beginning with the slot's own; None when all are taken."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    for number in range(len(cores)):
        core = cores[(slot + number) % len(cores)]
        lock = _lock(Path(tempfile.gettempdir()) / f"fsibench-{os.getuid()}-core-{core}.lock")
        if lock is not None:
            return Core(core, lock)
    return None


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock, or None where somebody else does or the file is not ours."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
