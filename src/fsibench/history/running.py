"""Commits measured one after the other for the record; what is there already is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fsibench.history import record
from fsibench.history.checkouts import Commit, Repository
from fsibench.history.measuring import measure


def chosen(commits: Sequence[Commit], every: int) -> list[Commit]:
    """Every n-th commit, counted from the newest, which is always one of them; oldest first."""
    return list(commits[::-1][::every])[::-1]


def run(repository: Repository, commits: Sequence[Commit], folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Measure the commits that have no file yet. Interrupted and started again, it goes on where it was."""
    known = record.read_all(folder)
    missing = [commit for commit in commits if commit.sha not in known]
    say(f"{len(commits)} commits, {len(missing)} without a result")
    written = []
    for number, commit in enumerate(missing, start=1):
        found = measure(repository, commit)
        written.append(record.save(found, folder))
        say(f"{number}/{len(missing)} {commit.label} {len(found.series)} series: {commit.subject}")
    return written
