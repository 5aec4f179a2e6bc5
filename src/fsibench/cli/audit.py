"""`fsibench audit`: can a store be believed?"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from fsibench.cli.exits import FAILED, OK
from fsibench.errors import UsageError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="can a store be believed? checks rows, runs a sample again, asks for fresh data",
        description="Check every row of a store, run a random sample of its step-budget cells again under watch, and "
        "with --fresh run its entries on data that nobody could prepare for. See docs/trust.md.",
    )
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--sample", type=int, default=8, metavar="N", help="cells to run again (default: %(default)s)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the choice of cells (default: a new one, printed)")
    parser.add_argument("--fresh", action="store_true", help="also run the entries on fresh data")
    parser.add_argument("--splits", type=int, default=5, metavar="N", help="fresh splits per set (default: %(default)s)")
    parser.add_argument("--methods", metavar="A,B", help="files of code (./file.py:Class) that may be run again")
    parser.set_defaults(handler=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    from fsibench.harness.audit import audit
    from fsibench.options import split_list

    if arguments.sample < 0 or arguments.splits < 2:
        raise UsageError("--sample must be at least 0 and --splits at least 2.")
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    result = audit(
        arguments.store,
        arguments.sample,
        seed,
        split_list(arguments.methods) if arguments.methods else (),
        arguments.splits if arguments.fresh else 0,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    for note in result.notes:
        print(f"note: {note}")
    for finding in result.findings:
        print(f"{finding.entry}: {finding.check}: {finding.explanation}")
    accused = len({finding.entry for finding in result.findings})
    print(f"{accused} entries have something to explain (sample chosen with --seed {seed})")
    return FAILED if accused else OK
