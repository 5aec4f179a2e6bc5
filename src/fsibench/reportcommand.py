"""`fsibench report` and `fsibench compare`: parse, load the report by name, print where the result is.

Reports are plugins, so they are imported by name and only when asked for; `fsibench --help` loads none of them.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from fsibench.store import DEFAULT_STORE

CONDITIONS = ("scheme", "budget", "clock", "device")


def add_parser(subparsers: Any) -> None:
    """Add `report` and `compare` to the commands of `fsibench`; each sets `handler` on its arguments."""
    _add_report(subparsers)


def _add_report(subparsers: Any) -> None:
    parser = subparsers.add_parser("report", help="make the report site, or print the ranking", description=__doc__)
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, help="result store to read (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder to write to (default: a folder named after the store)")
    parser.add_argument("--terminal", action="store_true", help="print the ranking and write nothing")
    for condition in CONDITIONS:
        parser.add_argument(f"--{condition}", help=f"show cells with this {condition} only")
    parser.set_defaults(handler=report)


def _conditions(arguments: argparse.Namespace) -> dict[str, str]:
    chosen = {condition: getattr(arguments, condition) for condition in CONDITIONS}
    return {condition: value for condition, value in chosen.items() if value is not None}


def report(arguments: argparse.Namespace) -> int:
    where = _conditions(arguments)
    if arguments.terminal:
        print(importlib.import_module("fsibench.reports.terminal").render(arguments.store, where))
        return 0
    out = arguments.out or arguments.store.parent / f"{arguments.store.stem}-report"
    index = importlib.import_module("fsibench.reports.site").build(arguments.store, out, where)
    print(f"report: {index}")
    return 0
