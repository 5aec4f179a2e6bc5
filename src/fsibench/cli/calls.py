"""Commands as Python calls: `fsibench.run` and `fsibench.report`, with the checks and the defaults of the command line."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench.cli import command_parser
from fsibench.errors import UsageError, unknown
from fsibench.harness.store import DEFAULT_STORE

if TYPE_CHECKING:
    import pandas as pd


def run(protocol: str | Path, *, store: str | Path = DEFAULT_STORE, **options: Any) -> pd.DataFrame:
    """Run a protocol as `fsibench run` does and return the final scores of the store; the same call resumes.

    Options are those of the command line: methods=["bbb", "linear"], datasets=["yacht"], splits=5, budget="20s",
    steps=1000, workers=2, executor="inline", keep="functions", ...
    """
    from fsibench.api import load

    _call("run", [str(protocol)], {"store": store, **options})
    return load(store)


def report(store: str | Path = DEFAULT_STORE, out: str | Path | None = None, **options: Any) -> Path:
    """Write the report site as `fsibench report` does; returns its first page."""
    folder = Path(out) if out is not None else Path(store).parent / f"{Path(store).stem}-report"
    _call("report", [], {"store": store, "out": folder, **options})
    return folder / "index.html"


def _call(name: str, words: list[str], options: Mapping[str, Any]) -> None:
    parser = command_parser(name)
    known = {action.dest: action for action in parser._actions if action.option_strings and action.dest != "help"}
    for key, value in options.items():
        if key not in known:
            raise unknown(f"option of fsibench.{name}", key, known)
        words = [*words, *_words(known[key], value)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = parser.parse_args(words)
    except SystemExit:
        raise UsageError(f"fsibench.{name} cannot be called like that: {said.getvalue().strip().removeprefix('fsibench: ')}") from None
    arguments.handler(arguments)


def _words(action: argparse.Action, value: Any) -> list[str]:
    """One option as the command line writes it; None and False leave it out."""
    flag = action.option_strings[-1]
    if isinstance(action, argparse.BooleanOptionalAction):  # --report and --no-report
        return [] if value is None else [action.option_strings[0 if value else -1]]
    if value is None or value is False:
        return []
    if action.nargs == 0:
        return [flag]
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [f"{flag}={text}"]
