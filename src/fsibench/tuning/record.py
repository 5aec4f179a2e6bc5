"""`methods/defaults/NAME.toml`: what a search found, and what was searched, with which seed, by which command.

The best options there and the defaults in the method's file are the same numbers; a test compares them.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsibench.contract import Space
from fsibench.tuning.search import Outcome, Settings
from fsibench.tuning.space import described

TOP = 10
NOTHING = "none"


def record(name: str, space: Space, outcome: Outcome, settings: Settings, datasets: Sequence[str], command: str) -> str:
    """The text of the file."""
    best = outcome.best
    before = next(candidate for candidate in outcome.candidates if candidate.is_default)
    lines = [
        f"# Written by `{command}`. The defaults in methods/ are the [best] options.",
        f"method = {_value(name)}",
        f"command = {_value(command)}",
        f"seed = {settings.seed}",
        f"cpu_seconds = {outcome.cpu_seconds:.0f}",
        f"cell_seconds = {settings.cell_seconds:g}",
        f"datasets = {_value(list(datasets))}",
        f"trials = {len(outcome.candidates)}",
        f"merit = {best.merit:.4f} # 0 is constant, 1 the best known; mean over LL and CRPS and {len(best.merits)} whole fits",
        f"merit_of_the_defaults_before = {before.merit:.4f} # over {len(before.merits)} whole fits",
        "",
        "[searched]",
        *(f"{key} = {_value(described(values))}" for key, values in space.items()),
        "",
        "[before]",
        *(f"{key} = {_value(value)}" for key, value in before.options.items()),
        "",
        "[best]",
        *(f"{key} = {_value(value)}" for key, value in best.options.items()),
    ]
    for candidate in outcome.candidates[:TOP]:
        options = ", ".join(f"{key} = {_value(value)}" for key, value in candidate.options.items())
        lines += ["", "[[top]]", f"screened = {_number(candidate.screened)} # in short fits", f"fits = {len(candidate.merits)}"]
        lines += [f"merit = {candidate.merit:.4f}"] if candidate.merits else []
        lines += [f"options = {{ {options} }}"]
    return "\n".join(lines) + "\n"


def best_options(path: Path) -> Mapping[str, Any]:
    """The options that a search found best."""
    found: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["best"]
    return {name: None if value == NOTHING else value for name, value in found.items()}


def summary(folder: Path) -> list[list[str]]:
    """A row per file: method, points tried, merit of the defaults before and of those found, and what changed."""
    rows = []
    for path in sorted(folder.glob("*.toml")):
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        before, best = found["before"], found["best"]
        changed = [f"{name} {before[name]} → {value}" for name, value in best.items() if value != before[name]]
        merits = (f"{found[key]:.3f}" for key in ("merit_of_the_defaults_before", "merit"))
        rows.append([f"`{found['method']}`", str(found["trials"]), *merits, ", ".join(changed) or "nothing"])
    return rows


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else str(value)


def _value(value: Any) -> str:
    """TOML of numbers, texts, truth values and lists is JSON; it has no word for None."""
    return json.dumps(NOTHING if value is None else value, ensure_ascii=False)
