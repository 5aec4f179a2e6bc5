"""What a run was made with: versions, processor, threads, revision. No user, host or path names."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsibench

if TYPE_CHECKING:
    import pandas as pd

# On one busy machine, where cores share caches, two calibrations differ by less than this factor.
SAME_SPEED = 1.5
PACKAGES = ("torch", "numpy", "scipy", "pandas")


def describe() -> dict[str, Any]:
    """The environment record of a run, JSON-able."""
    return {**machine(), "calibration_seconds": calibrate()}


def machine() -> dict[str, Any]:
    """Versions, processor and revision."""
    return {
        "fsibench": fsibench.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads_per_fit": 1,
        "revision": _revision(),
    }


def calibrate(at_least: float = 1.0) -> float:
    """CPU seconds of a fixed kernel (a batched matrix product of the size that dominates a SIP step), median over a second.

    The ratio of two machines' values turns seconds on one into seconds on the other.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left, right = torch.ones(100, 110, 50), torch.ones(100, 50, 50)
        times: list[float] = []
        while sum(times) < at_least:
            start = time.process_time()
            torch.bmm(left, right)
            times.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return sorted(times)[len(times) // 2]


def speed_note(cells: pd.DataFrame) -> str | None:
    """A sentence when cells come from machines whose speeds differ by more than noise; None when they can be pooled."""
    calibrations = cells.loc[cells["clock"] != "reference", "calibration_seconds"]
    known = [seconds for seconds in calibrations if seconds is not None and math.isfinite(seconds) and seconds > 0]
    if not known or max(known) < SAME_SPEED * min(known):
        return None
    return (
        f"cells of this store ran on machines whose speeds differ by a factor of {max(known) / min(known):.1f} "
        "(column calibration_seconds): seconds of different workers do not compare as they are; use workers of one kind, "
        "--clock reference, or a budget in --steps."
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if sys.platform == "linux" and info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _revision() -> str:
    """Git revision of the checkout this package runs from, with `+changes` when it is dirty; empty when installed."""
    folder = Path(__file__).parent
    try:
        # An installed copy may lie inside somebody else's repository: then this file is not tracked, and git fails.
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        return head + ("+changes" if _git(folder, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""  # no git on this machine, or no repository


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()
