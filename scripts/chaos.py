"""Random kills of cells and of the driver while 200 cells run; then counts what was lost. `nox -s chaos` runs it.

A reference run, in one process and undisturbed, says which rows must be there, bit for bit. The disturbed run is
started again each time its driver dies, with a store whose size limit also acts as a full disk now and then.

    kills survived   cells and drivers killed with SIGKILL
    rows lost        rows of the reference run that the disturbed store lacks, or has with other values
    rows duplicated  rows beyond the reference
    results redone   cells that were finished and stored, and ran again all the same
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fsibench.cli import main as fsibench
from fsibench.harness.store import Store

METHOD = '''
import time
from dataclasses import dataclass
from typing import ClassVar
import torch
from fsibench import Method, Predictive

@dataclass(frozen=True)
class Place:
    loc: float
    def predict(self, x, generator):
        return Predictive(self.loc + torch.randn(3, len(x), generator=generator), torch.ones(1, 1))
    def draw(self, x, num_draws, generator):
        return torch.full((num_draws, len(x)), self.loc)

@dataclass(frozen=True)
class Walk(Method):
    """A random walk that takes its time."""
    name: ClassVar[str] = "chaos-walk"
    def fit(self, train, budget, generator):
        place = 0.0
        while True:
            time.sleep(0.004)
            place += float(torch.randn((), generator=generator))
            yield Place(place)
'''
COLUMNS = ["dataset", "split", "step", "rmse", "ll", "crps"]
MOST_SECONDS = 240
FULL_DISK_KILOBYTES = 250


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    dice = random.Random(parser.parse_args().seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "walk.py").write_text(METHOD)
        arguments = ["run", "smoke", "--methods", f"{folder / 'walk.py'}:Walk", "--splits", "20", "--steps", "50"]
        sets = "yacht,boston,concrete,energy,wine,snelson,bimodal,heteroscedastic,composite,energy-cooling"
        arguments += ["--datasets", sets]
        assert fsibench([*arguments, "--store", str(folder / "calm.sqlite"), "--executor", "inline"]) == 0
        figures = disturb(folder, [*arguments, "--store", str(folder / "wild.sqlite")], dice)
        figures |= compare(folder / "calm.sqlite", folder / "wild.sqlite")
    for title, figure in figures.items():
        print(f"{title:20} {figure}")
    return int(figures["rows lost"] + figures["rows duplicated"] + figures["results redone"] > 0)


def disturb(folder: Path, arguments: list[str], dice: random.Random) -> dict[str, int]:
    """Run to the end against all odds; counts of what was done to it."""
    counts = {"cells killed": 0, "drivers killed": 0, "disks filled": 0, "results redone": 0}
    finished: dict[str, int] = {}
    deadline = time.monotonic() + MOST_SECONDS
    while True:
        full = counts["disks filled"] < 1
        driver = start(folder, arguments, full)
        while driver.poll() is None:
            time.sleep(dice.uniform(0.1, 0.4))
            if time.monotonic() > deadline or full:
                continue  # left in peace
            cells = running_cells(driver.pid)
            if cells and dice.random() < 0.05:
                driver.kill()
                counts["drivers killed"] += 1
            elif cells and dice.random() < 0.5:
                counts["cells killed"] += kill(dice.choice(cells))
        code = driver.wait()
        counts["disks filled"] += code == 2
        counts["results redone"] += redone(folder / "wild.sqlite", finished)
        if code == 0:
            return counts


def start(folder: Path, arguments: list[str], full: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fsibench", *arguments, "--workers", "2"]
    if full:  # a limit on file size acts like a full disk for the store
        command = ["bash", "-c", f'ulimit -f {FULL_DISK_KILOBYTES}; exec "$@"', "bash", *command]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def running_cells(driver: int) -> list[int]:
    """The processes below a supervisor: driver -> fork server -> supervisor -> cell."""
    return [cell for server in children(driver) for supervisor in children(server) for cell in children(supervisor)]


def kill(process: int) -> bool:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def redone(path: Path, finished: dict[str, int]) -> int:
    """How many cells that were stored as finished before have been run again since; updates the record."""
    if not path.exists():
        return 0
    with Store.read(path) as store:
        table = store.cells()
    table = table[table["status"] == "ok"]
    now = dict(zip(table["id"], table["attempts"], strict=True))
    again: int = sum(now.get(cell) != attempts for cell, attempts in finished.items())
    finished.update(now)
    return again


def compare(calm: Path, wild: Path) -> dict[str, int]:
    with Store.read(calm) as store:
        expected = set(store.evaluations()[COLUMNS].itertuples(index=False, name=None))
    with Store.read(wild) as store:
        rows = list(store.evaluations()[COLUMNS].itertuples(index=False, name=None))
        cells = len(store.cells())
    return {
        "cells": cells,
        "rows": len(rows),
        "rows lost": len(expected - set(rows)),
        "rows duplicated": len(rows) - len(set(rows) & expected),
    }


if __name__ == "__main__":
    sys.exit(main())
