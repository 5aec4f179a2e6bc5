"""`fsibench check`: does a method keep the contract?"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fsibench.cli.exits import FAILED, OK
from fsibench.errors import UsageError, unknown


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("check", help="does a method keep the contract? small named checks, one line each")
    parser.add_argument("entry", help="a method name, name[option=value] or ./file.py:Class")
    parser.add_argument("--only", metavar="NAME", help="run one check only")
    parser.add_argument("--limit", type=float, metavar="S", help="CPU seconds that one check may take (default: 60)")
    parser.set_defaults(handler=_check)


def _check(arguments: argparse.Namespace) -> int:
    import torch

    from fsibench import checks, registry

    torch.set_num_threads(1)  # as in a run: more threads slow tiny tensors down
    entry = registry.entry(arguments.entry)
    if arguments.only and arguments.only not in checks.CHECKS:
        raise unknown("check", arguments.only, checks.CHECKS)
    limit = checks.LIMIT if arguments.limit is None else arguments.limit
    if not limit > 0:
        raise UsageError(f"--limit must be positive; got {limit:g}.")
    names = [arguments.only] if arguments.only else list(checks.CHECKS)
    counts = {"ok": 0, "failed": 0, "waived": 0}
    for number, name in enumerate(names, 1):
        _progress(f"[{number}/{len(names)}] {name} ...")
        outcome = checks.run(name, entry.method, limit)
        _progress("")
        counts[outcome.status] += 1
        print(_line(outcome), flush=True)
    waived = f", {counts['waived']} waived" if counts["waived"] else ""
    print(f"{entry.label}: {counts['ok']} of {len(names)} checks passed{waived}")
    return FAILED if counts["failed"] else OK


def _line(outcome: Any) -> str:
    mark = {"ok": "ok", "failed": "FAILED", "waived": "waived"}[outcome.status]
    text = f"{mark:7}{outcome.name}" + (f": {outcome.reason}" if outcome.reason else "")
    return f"{text}\n       hint: {outcome.hint}" if outcome.hint else text


def _progress(text: str) -> None:
    """What is being checked now, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
