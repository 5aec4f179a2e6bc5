"""300 random kills of whatever takes part in a run, while it runs; then counts what was lost. `nox -s chaos` runs it.

A reference run, in one process and undisturbed, says which rows must be there, bit for bit. Disturbed runs of the same
plan follow, each started again when its driver dies, until all kills are done: on this machine, then on a Dask cluster.
Victims are drawn from a shuffled deck, and each is killed (SIGKILL) while cells are running. One run meets a full disk.

    rows lost        rows of the reference run that a disturbed store lacks, or has with other values or another name
    rows duplicated  rows beyond the reference
    results redone   cells that were finished and stored, and ran again all the same
    processes left   processes of a run that are alive after its end
    files left       temporary files of ours; a killed Dask scheduler leaves a lock in a scratch folder of its own
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Self

from fsibench.cli import main as fsibench
from fsibench.executors.worker import CELL, SERVER, SUPERVISOR
from fsibench.harness import processes
from fsibench.harness.store import Store

METHOD = '''
import subprocess, time
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
    """A random walk that takes its time; it may leave a process behind, in a session of its own."""
    name: ClassVar[str] = "chaos-walk"
    daemon: bool = False
    def fit(self, train, budget, generator):
        if self.daemon:
            subprocess.Popen(["sleep", "900"], start_new_session=True)
        place = 0.0
        while True:
            time.sleep(0.004)
            place += float(torch.randn((), generator=generator))
            yield Place(place)
'''
COLUMNS = ["entry", "dataset", "split", "step", "rmse", "ll", "crps"]
SETS = "yacht,boston,energy,snelson,bimodal,heteroscedastic"
# How many of 100 kills hit whom; `group` is the driver's process group, the way a closed terminal ends it.
HERE = {"cell": 40, "supervisor": 20, "server": 12, "driver": 10, "group": 6}
CLUSTER = {"worker": 8, "scheduler": 4}
MARK = "FSIBENCH_CHAOS"
FULL_DISK_KILOBYTES = 250
PATIENCE = 20.0


class Stage:
    """One folder, one plan, one mark in the environment of every process of a run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.mark = uuid.uuid4().hex
        places = {"TMPDIR": str(folder / "tmp"), "DASK_TEMPORARY_DIRECTORY": str(folder / "dask")}
        self.environment = {**os.environ, MARK: self.mark, **places}
        (folder / "tmp").mkdir()
        (folder / "walk.py").write_text(METHOD)
        walk = f"{folder / 'walk.py'}:Walk"
        methods = f"{walk},{walk}[daemon=true]"
        self.arguments = ["run", "smoke", "--methods", methods, "--splits", "10", "--steps", "50", "--datasets", SETS]

    def start(self, store: Path, *options: str, full_disk: bool = False) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fsibench", *self.arguments, "--store", str(store), *options]
        if full_disk:  # a limit on file size acts like a full disk for the store
            command = ["bash", "-c", f'ulimit -f {FULL_DISK_KILOBYTES}; exec "$@"', "bash", *command]
        return self.launch(command)

    def launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=quiet, stderr=quiet, start_new_session=True
        )

    def left(self) -> int:
        """Processes that carry our mark; those that are on their way out get a moment."""
        deadline = time.monotonic() + PATIENCE
        while (alive := [p for p, mark in processes.carrying(MARK).items() if mark == self.mark]) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in alive:
            print("left:", process, processes.name_of(process), processes.descendants(process), file=sys.stderr)
        processes.kill(alive)
        return len(alive)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        stage = Stage(Path(name), options.seed)
        calm = stage.folder / "calm.sqlite"
        assert fsibench([*stage.arguments, "--store", str(calm), "--executor", "inline"]) == 0
        processes.end_descendants()  # what the walks left behind in this process
        for round_ in range(10**6):
            deck = remaining(HERE, options.kills, stage.counts)
            if not deck and round_:
                break
            check(stage, calm, here(stage, deck, round_))
        for round_ in range(10**6):
            deck = remaining(CLUSTER, options.kills, stage.counts)
            if not deck:
                break
            check(stage, calm, on_a_cluster(stage, deck, round_))
        files = [path for path in (stage.folder / "tmp").rglob("*") if path.is_file() and path.suffix != ".lock"]
        stage.counts["files left"] = len(files)
        for path in files:
            print("left:", path.relative_to(stage.folder), path.stat().st_size, "bytes", file=sys.stderr)
    kills = sum(stage.counts[victim] for victim in (*HERE, *CLUSTER))
    faults = ("rows lost", "rows duplicated", "results redone", "processes left", "files left")
    for title in (*HERE, *CLUSTER, "full disks", "rows", *faults):
        print(f"{title:20} {stage.counts[title]}")
    print(f"{'kills in all':20} {kills}")
    return int(any(stage.counts[fault] for fault in faults))


def remaining(shares: dict[str, int], kills: int, done: Counter[str]) -> list[str]:
    """Victims that are still to come, each as often as its share demands."""
    wanted = {victim: round(share * kills / 100) for victim, share in shares.items()}
    return [victim for victim, number in wanted.items() for _ in range(number - done[victim])]


def here(stage: Stage, deck: list[str], round_: int) -> Path:
    """One plan on this machine, to its end, against all odds; returns its store."""
    store = stage.folder / f"here-{round_}.sqlite"
    stage.dice.shuffle(deck)
    finished: dict[str, int] = {}
    code = None
    while code != 0:
        full = stage.counts["full disks"] < 1
        driver = stage.start(store, "--workers", "2", full_disk=full)
        while driver.poll() is None:
            time.sleep(stage.dice.uniform(0.05, 0.4))
            if not full and deck and strike(driver.pid, deck[-1], stage.dice):
                stage.counts[deck.pop()] += 1
        code = driver.wait()
        stage.counts["full disks"] += full and code == 2
        stage.counts["results redone"] += redone(store, finished)
    return store


def strike(driver: int, victim: str, dice: random.Random) -> bool:
    """Kill one of the given kind, if cells are running: driver -> server -> supervisor -> cell."""
    family = processes.descendants(driver)
    cells, supervisors, servers = (
        [process for process in family if processes.name_of(process) == name] for name in (CELL, SUPERVISOR, SERVER)
    )
    found = {"cell": cells, "supervisor": supervisors, "server": servers, "driver": [driver], "group": [driver]}[victim]
    if not cells or not found:
        return False
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if victim == "group" else os.kill)(dice.choice(found), signal.SIGKILL)
        return True
    return False


def on_a_cluster(stage: Stage, deck: list[str], round_: int) -> Path:
    """One plan on a Dask cluster whose workers and scheduler are killed and replaced; returns its store."""
    store = stage.folder / f"cluster-{round_}.sqlite"
    stage.dice.shuffle(deck)
    finished: dict[str, int] = {}
    with Cluster(stage) as cluster:
        code = None
        while code != 0:
            driver = stage.start(store, "--executor", "dask", "--scheduler", cluster.address)
            while driver.poll() is None:
                time.sleep(stage.dice.uniform(0.5, 2.0))
                if deck and cluster.busy():
                    cluster.replace(deck[-1])
                    stage.counts[deck.pop()] += 1
            code = driver.wait()
            stage.counts["results redone"] += redone(store, finished)
    return store


class Cluster:
    """A scheduler and two workers, as an administrator would start them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._scheduler()
        self.workers = [self._worker() for _ in range(2)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def busy(self) -> bool:
        below = [child for worker in self.workers for child in processes.descendants(worker.pid)]
        return any(processes.name_of(process) == CELL for process in below)

    def replace(self, victim: str) -> None:
        """Kill a worker or the scheduler and start another one; a worker that lost its scheduler ends too."""
        if victim == "scheduler":
            self.scheduler.kill()
            self.scheduler.wait()
            self.scheduler = self._scheduler()
        doomed = self.workers if victim == "scheduler" else [self.stage.dice.choice(self.workers)]
        for worker in doomed:
            worker.kill()
            worker.wait()
        self.workers = [self._worker() if worker in doomed else worker for worker in self.workers]

    def _scheduler(self) -> subprocess.Popen[bytes]:
        options = ["--host", "127.0.0.1", "--port", self.port, "--no-dashboard"]
        return self.stage.launch([sys.executable, "-m", "dask", "scheduler", *options])

    def _worker(self) -> subprocess.Popen[bytes]:
        options = ["--nthreads", "1", "--resources", "slot=1", "--no-nanny", "--no-dashboard"]
        return self.stage.launch([sys.executable, "-m", "dask", "worker", self.address, *options])


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


def check(stage: Stage, calm: Path, wild: Path) -> None:
    """Compare a disturbed store with the reference, and look for what its run left behind."""
    with Store.read(calm) as store:
        expected = set(store.evaluations()[COLUMNS].itertuples(index=False, name=None))
    with Store.read(wild) as store:
        rows = list(store.evaluations()[COLUMNS].itertuples(index=False, name=None))
    stage.counts["rows"] += len(rows)
    stage.counts["rows lost"] += len(expected - set(rows))
    stage.counts["rows duplicated"] += len(rows) - len(set(rows) & expected)
    stage.counts["processes left"] += stage.left()
    print({title: number for title, number in stage.counts.items() if number}, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
