"""`fsibench shapes`: functions on sets with one input, in numbers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fsibench.cli.exits import OK
from fsibench.harness.store import DEFAULT_STORE


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("shapes", help="sets with one input: do predictives follow the truth in width and shape, did priors learn, where did inducing inputs go")
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH")
    parser.set_defaults(handler=_shapes)


def _shapes(arguments: argparse.Namespace) -> int:
    from tabulate import tabulate

    from fsibench.reports.analysis import shapes

    means = shapes.means(arguments.store)
    if means.empty:
        print("No cell of this store kept its functions: only sets with one input have them.")
        return OK
    means = means.round(2)
    print(tabulate(means.astype(object).where(means.notna(), "-"), headers="keys", tablefmt="github", showindex=False))
    print("\nprior_r2: 1 where the mean of prior draws follows the truth. width_r: correlation of the 90 % width with the true deviation.")
    print("between_modes: share of draws between two modes, 0 is right. covered, moved, moved_late: inducing inputs, in training ranges.")
    return OK
