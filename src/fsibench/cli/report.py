"""`fsibench report`: parse, load the report by name, print where the result is.

Reports are plugins, so they are imported by name and only when asked for; `fsibench --help` loads none of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fsibench.errors import UsageError
from fsibench.harness.store import DEFAULT_STORE

CONDITIONS = ("scheme", "budget", "clock", "device")


def add_parser(subparsers: Any) -> None:
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
    add_conditions(parser)
    parser.set_defaults(handler=report)


def add_conditions(parser: argparse.ArgumentParser) -> None:
    for condition in CONDITIONS:
        parser.add_argument(f"--{condition}", help=f"only cells with this {condition} (default: the most frequent)")


def chosen_conditions(arguments: argparse.Namespace) -> dict[str, str]:
    chosen = {condition: getattr(arguments, condition) for condition in CONDITIONS}
    return {condition: value for condition, value in chosen.items() if value is not None}


def report(arguments: argparse.Namespace) -> int:
    store, where = arguments.store, chosen_conditions(arguments)
    if arguments.terminal:
        from fsibench.reports import terminal

        print(terminal.render(store, where))
        return 0
    formats = [] if arguments.figures == "none" else [part.strip() for part in arguments.figures.split(",")]
    out = arguments.out or store.parent / f"{store.stem}-report"
    from fsibench.reports import site

    try:
        index = site.build(store, out, where, formats)
    except OSError as error:
        raise UsageError(f"the report cannot be written to {out}: {error.strerror or error}.") from None
    print(f"report: {index}")
    return 0
