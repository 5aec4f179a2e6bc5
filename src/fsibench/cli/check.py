"""`fsibench check`: does a method keep the contract?"""

from __future__ import annotations

import argparse
from typing import Any

from fsibench.cli.exits import FAILED, OK
from fsibench.errors import unknown


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("check", help="does a method keep the contract? small named checks, one line each")
    parser.add_argument("entry", help="a method name, name[option=value] or ./file.py:Class")
    parser.add_argument("--only", metavar="NAME", help="run one check only")
    parser.set_defaults(handler=_check)


def _check(arguments: argparse.Namespace) -> int:
    import torch

    from fsibench import checks, registry

    torch.set_num_threads(1)  # as in a run: more threads slow tiny tensors down
    entry = registry.entry(arguments.entry)
    if arguments.only and arguments.only not in checks.CHECKS:
        raise unknown("check", arguments.only, checks.CHECKS)
    names = [arguments.only] if arguments.only else list(checks.CHECKS)
    failures = 0
    for name in names:
        problem = checks.run(name, entry.method)
        failures += problem is not None
        print(f"{'FAILED' if problem else 'ok':7}{name}" + (f": {problem}" if problem else ""), flush=True)
    print(f"{entry.label}: {len(names) - failures} of {len(names)} checks passed")
    return FAILED if failures else OK
