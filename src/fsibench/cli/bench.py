"""`fsibench bench steps`: CPU time of one training step of each method, in units of a fixed kernel."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("bench", help="measure the cost of training steps on this machine")
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    steps = kinds.add_parser("steps", help="CPU milliseconds per step and in units of a batched matrix product")
    steps.add_argument("--methods", metavar="A,B[opt=v]", help="only these rows")
    steps.add_argument("--json", action="store_true", help="print JSON instead of a table")
    steps.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    from tabulate import tabulate

    from fsibench.harness import step_costs
    from fsibench.options import split_list

    rows = step_costs.measure(split_list(arguments.methods) if arguments.methods else None)
    print(json.dumps(rows, indent=1) if arguments.json else tabulate(rows, headers="keys", floatfmt=".3g"))
    return 0
