"""A benchmark suite of OpenML: `openml-suite:353` (CTR23) stands for its tasks, each with its own folds.

Options after a question mark are handed to every task.
"""

from __future__ import annotations

import json

from fsibench.data import Dataset
from fsibench.data.sources import cache
from fsibench.data.sources.own import split_reference
from fsibench.errors import UsageError

PREFIX = "openml-suite:"


def expand(reference: str) -> list[str]:
    """The tasks of a suite; asked for once, then read from the cache."""
    number, query = split_reference(reference, PREFIX)
    if not number.isdecimal() or not 0 < int(number) < 1 << 31:
        raise UsageError(f"{reference!r} should be an OpenML suite id, for example openml-suite:353.")
    options = f"?{query}" if query else ""
    return [f"openml-task:{task}{options}" for task in _tasks(int(number))]


def _tasks(identity: int) -> list[int]:
    key = f"openml-suite-{identity}"
    path = cache.folder() / "suites" / key / "tasks.json"
    with cache.lock(key):
        if not path.is_file():
            from fsibench.data.sources import openml_client

            with cache.replacing(path.parent) as staging:
                with cache.workplace(key) as place:
                    tasks = openml_client.fetch_suite(identity, place)
                (staging / path.name).write_text(json.dumps(tasks), encoding="utf-8")
        found: list[int] = json.loads(path.read_text(encoding="utf-8"))
    return found


def resolve(reference: str) -> Dataset:
    tasks = expand(reference)
    raise UsageError(f"{reference!r} stands for {len(tasks)} data sets, {tasks[0]} and others; name one of them here.")
