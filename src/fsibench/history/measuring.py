"""One commit measured for the record: a short list of series, about a minute of CPU time."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fsibench.errors import UsageError
from fsibench.harness import environment
from fsibench.history.checkouts import Commit, Repository, accepted_series
from fsibench.history.record import CommitRecord, Measured
from fsibench.history.workers import Place, Worker, WorkerLost

# What is kept of every commit, patterns of series: half a minute of CPU time. All of the suites would take an hour.
KEPT = (
    r"steps\.Step\.time_step\((?!vip\[noise|hmc\)|gfsvi|svgp)[a-z_]+(\[prior=ns\])?\)",
    r"steps\.Step\.time_step\((sip|aadm|avb|bbb|fbnn)\[preset=.*\)",
    r"steps\.Step\.time_step\(hmc\[.*\)",
    r"steps\.Fit\.time_fit\(linear\)",
    r"start\.Command\.(time_command|track_peak)\(list methods\)",
    r"blocks\.(Conditional|Stein|Discriminator)\..*",
    r"blocks\.Crps\.time_crps\(0.3\)",
    r"memory\.Fit\.peakmem_fit\(bbb, 10000\)",
    r"quality\.Quality\.track_(ll|crps|rmse|calibration)\((linear|bbb|sip|laplace), boston\)",
)
ROUNDS, ROUNDS_OF_COMMANDS = 3, 1  # a command takes seconds where it imports torch
SECONDS_PER_ROUND, LEAST_CALLS = 0.03, 4
SPLITS = 3


def kept_series(worker: Worker) -> list[dict[str, str]]:
    answer = worker.ask("list")
    if "failed" in answer:
        raise UsageError(f"the suites cannot be read with {worker.label}: {answer['failed']}")
    return [row for row in answer["series"] if any(re.fullmatch(pattern, row["name"]) for pattern in KEPT)]


def measure(repository: Repository, commit: Commit) -> CommitRecord:
    """Every kept series that this commit has."""
    with TemporaryDirectory(prefix="fsibench-history-") as scratch:
        place = Place(commit.label, repository.lay_out(commit, Path(scratch)), repository.root, Path(scratch) / "run")
        series: dict[str, Measured] = dict(_measured(place))
    message = repository.git("show", "--no-patch", "--format=%B", commit.sha)
    return CommitRecord(commit.sha, commit.date, commit.subject, machine(), series, accepted_series(message))


def _measured(place: Place) -> Iterator[tuple[str, Measured]]:
    with Worker(place) as worker:
        try:
            rows = kept_series(worker)
        except UsageError:
            return  # a commit from before the registry: nothing of it can be measured, and nothing is made up
        for row in rows:
            if row["kind"] == "time":
                found = _times(worker, row["name"])
            elif row["kind"] == "track":
                found = _tracked(worker, row)
            else:
                found = _peak(place, row["name"])
            if found is not None:
                yield row["name"], found


def _times(worker: Worker, name: str) -> Measured | None:
    if "open" not in worker.ask("open", series=name):
        return None
    if name.startswith("start."):
        rounds = [worker.ask("units", seconds=SECONDS_PER_ROUND, calls=1) for _ in range(ROUNDS_OF_COMMANDS)]
    else:  # the first round warms up
        ask = (worker.ask("units", seconds=SECONDS_PER_ROUND, calls=LEAST_CALLS) for _ in range(ROUNDS + 1))
        rounds = list(ask)[1:]
    if any("failed" in answer for answer in rounds):
        return None
    return Measured("T", tuple(answer["cpu"] / answer["product"] for answer in rounds))


def _tracked(worker: Worker, row: dict[str, str]) -> Measured | None:
    values = []
    for split in range(min(SPLITS, int(row["splits"]))):
        if "open" not in worker.ask("open", series=row["name"], split=split):
            return None
        answer = worker.ask("track")
        if "value" not in answer or answer["value"] != answer["value"]:
            return None
        values.append(answer["value"])
    return Measured(row["unit"], tuple(values))


def _peak(place: Place, name: str) -> Measured | None:
    """In a process of its own, since memory that was once used by others counts."""
    try:
        with Worker(place) as worker:
            if "open" not in worker.ask("open", series=name):
                return None
            answer = worker.ask("peak")
    except WorkerLost:
        return None
    return Measured("MB", (answer["value"],)) if "value" in answer else None


def machine() -> str:
    """The kind of processor, interpreter and torch; no name of a host."""
    here = environment.machine()
    return f"{here['processor']}, Python {here['python']}, torch {here['packages']['torch']}"


def middle(found: Measured) -> float:
    return statistics.fmean(found.values) if found.unit not in ("T", "MB") else statistics.median(found.values)
