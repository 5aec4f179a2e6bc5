"""`fsibench report` and `fsibench compare`: parse, load the report by name, print where the result is.

Reports are plugins, so they are imported by name and only when asked for; `fsibench --help` loads none of them.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from fsibench.errors import UsageError
from fsibench.store import DEFAULT_STORE

CONDITIONS = ("scheme", "budget", "clock", "device")
REGRESSION = 1


def add_parser(subparsers: Any) -> None:
    """Add `report` and `compare` to the commands of `fsibench`; each sets `handler` on its arguments."""
    _add_report(subparsers)
    _add_compare(subparsers)


def _add_report(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        help="make the report site, or print the ranking",
        description="Make a static site from a result store: pages, tables (CSV, LaTeX, Markdown) and figures.",
    )
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH", help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write to (default: next to the store)")
    parser.add_argument("--terminal", action="store_true", help="print the ranking and write nothing")
    parser.add_argument(
        "--figures",
        default="svg",
        metavar="svg,pdf,png",
        help="formats of the figures for papers, or none (default: %(default)s)",
    )
    _add_conditions(parser)
    parser.set_defaults(handler=report)


def _add_compare(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="two stores, before and after",
        description="Compare two stores on the cells they share; exit code 1 with --fail if something got worse.",
    )
    parser.add_argument("before", type=Path, metavar="STORE_A")
    parser.add_argument("after", type=Path, metavar="STORE_B")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write all rows to a CSV file")
    parser.add_argument("--fail", action="store_true", help="exit with 1 if there is a regression")
    _add_conditions(parser)
    parser.set_defaults(handler=compare)


def _add_conditions(parser: argparse.ArgumentParser) -> None:
    for condition in CONDITIONS:
        parser.add_argument(f"--{condition}", help=f"only cells with this {condition} (default: the most frequent)")


def _conditions(arguments: argparse.Namespace) -> dict[str, str]:
    chosen = {condition: getattr(arguments, condition) for condition in CONDITIONS}
    return {condition: value for condition, value in chosen.items() if value is not None}


def report(arguments: argparse.Namespace) -> int:
    store, where = arguments.store, _conditions(arguments)
    if arguments.terminal:
        print(importlib.import_module("fsibench.reports.terminal").render(store, where))
        return 0
    formats = [] if arguments.figures == "none" else [part.strip() for part in arguments.figures.split(",")]
    out = arguments.out or store.parent / f"{store.stem}-report"
    site = importlib.import_module("fsibench.reports.site")
    try:
        index = site.build(store, out, where, formats)
    except OSError as error:
        raise UsageError(f"the report cannot be written to {out}: {error.strerror or error}.") from None
    print(f"report: {index}")
    return 0


def compare(arguments: argparse.Namespace) -> int:
    module = importlib.import_module("fsibench.reports.compare")
    comparison = module.compare(arguments.before, arguments.after, _conditions(arguments))
    print(module.render(comparison))
    if arguments.out is not None:
        try:
            comparison.rows.to_csv(arguments.out, index=False)
        except OSError as error:
            raise UsageError(f"{arguments.out} cannot be written: {error.strerror or error}.") from None
    return REGRESSION if arguments.fail and comparison.has_regression else 0
