"""What is uneven about the cells of a board, in sentences; each is empty where there is nothing to say."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from fsibench import registry
from fsibench.errors import UsageError
from fsibench.reports.analysis.results import Results

NOTABLY_SLOWER = 1.1


def fewer_splits(results: Results) -> str:
    """Entries with fewer splits than others."""
    numbers = results.cells[results.finished].groupby("entry", observed=True)["split"].nunique()
    few = [f"{', '.join(map(str, part.index))} ({number})" for number, part in numbers[numbers < numbers.max()].groupby(numbers)]
    return f" On fewer splits than {numbers.max()}: {'; '.join(few)}." if few else ""


def slower(results: Results) -> str:
    """Entries whose seconds were those of a slower processor; the clock `reference` counts that in, and steps do not depend on it."""
    cells = results.cells[results.cells["clock"].isin(["wall", "cpu"]) & results.cells["budget"].astype(str).str.fullmatch(r"[\d.]+s")]
    seconds = cells["calibration_seconds"].astype(float).groupby(cells["entry"], observed=True).median()
    ratio = (seconds / seconds.min()).dropna()
    slow = ratio[ratio > NOTABLY_SLOWER].sort_values()
    told = ", ".join(f"{entry} ({number:.2f} times)" for entry, number in slow.items())
    return f" Ran where a speed check took longer, so that their seconds hold fewer steps: {told}." if told else ""


def other_options(results: Results) -> str:
    """Entries that were run with other options than their names stand for today."""
    found = []
    for entry, cells in results.cells.groupby("entry", observed=True):
        ran = [json.loads(text) for text in cells["options"].unique()]
        today = options_today(str(entry))
        names = sorted({name for options in ran for name in {*options, *today} if options.get(name, ...) != today.get(name, ...)})
        found += [f"{entry} ({', '.join(names) if len(names) < 6 else f'{len(names)} options'})"] if names else []
    return f" Run with earlier defaults, not with today's: {', '.join(found)}." if found else ""


def options_today(entry: str) -> dict[str, Any]:
    try:
        method = registry.entry(entry).method
    except UsageError:
        return {}  # the name or an option of it is gone
    options: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(method)))
    return options
