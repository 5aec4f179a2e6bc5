"""`fsibench compare`: two stores, before and after."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fsibench.cli.report import add_conditions, chosen_conditions
from fsibench.errors import UsageError

REGRESSION = 1


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="two stores, before and after",
        description="Compare two stores on the cells they share; exit code 1 with --fail if something got worse.",
    )
    parser.add_argument("before", type=Path, metavar="STORE_A")
    parser.add_argument("after", type=Path, metavar="STORE_B")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write all rows to a CSV file")
    parser.add_argument("--fail", action="store_true", help="exit with 1 if there is a regression")
    add_conditions(parser)
    parser.set_defaults(handler=compare)


def compare(arguments: argparse.Namespace) -> int:
    from fsibench.reports import compare as comparing

    comparison = comparing.compare(arguments.before, arguments.after, chosen_conditions(arguments))
    print(comparing.render(comparison))
    if arguments.out is not None:
        try:
            comparison.rows.to_csv(arguments.out, index=False)
        except OSError as error:
            raise UsageError(f"{arguments.out} cannot be written: {error.strerror or error}.") from None
    return REGRESSION if arguments.fail and comparison.has_regression else 0
