"""`fsibench data`: bring data sets onto this machine, check every copy of them, say where they lie."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsibench.errors import DataError

FAILED = 1


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("data", help="fetch, verify or locate data sets")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    fetch = actions.add_parser("fetch", help="bring data sets onto this machine")
    fetch.add_argument("names", nargs="+", metavar="NAME", help="kin8nm, openml:44959, ... or all")
    fetch.set_defaults(action=_fetch)
    verify = actions.add_parser("verify", help="check every value of every copy on this machine")
    verify.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    verify.set_defaults(action=_verify)
    path = actions.add_parser("path", help="print where a data set lies, or the cache folder")
    path.add_argument("names", nargs="*", metavar="NAME")
    path.set_defaults(action=_path)
    for action in (fetch, verify, path):
        action.add_argument("--mirror", type=Path, metavar="DIR", help="folder with data files by name")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.mirror is not None:
        os.environ["FSIBENCH_MIRROR"] = str(arguments.mirror.resolve())
    code: int = arguments.action(arguments)
    return code


def _fetch(arguments: argparse.Namespace) -> int:
    failed = False
    for name, dataset in _chosen(arguments.names):
        try:
            with _shown_log():
                dataset.fetch()
        except DataError as error:
            print(f"fsibench: {error}", file=sys.stderr)
            failed = True
        else:
            found = dataset.describe()
            print(f"{name}: {found.rows} rows, {found.inputs} inputs, from {found.source}")
    return FAILED if failed else 0


def _verify(arguments: argparse.Namespace) -> int:
    failed = False
    for name, dataset in _chosen(arguments.names or ["all"]):
        copies = dataset.verify()
        if not copies and arguments.names:
            print(f"{name}: not on this machine")
        for where, problem in copies:
            print(f"{name}: {where}: {problem or 'ok'}")
            failed = failed or (bool(problem) and not problem.startswith("unverified"))
    return FAILED if failed else 0


def _path(arguments: argparse.Namespace) -> int:
    from fsibench.data.sources import cache

    if not arguments.names:
        print(cache.folder())
        return 0
    failed = False
    for name, dataset in _chosen(arguments.names):
        location = dataset.location()
        if location is None:
            print(f"fsibench: data set {name!r} is not on this machine; fsibench data fetch {name}", file=sys.stderr)
            failed = True
        else:
            print(location)
    return FAILED if failed else 0


def _chosen(names: list[str]) -> list[tuple[str, Any]]:
    from fsibench import registry

    known = sorted(registry.datasets().items)
    wanted = dict.fromkeys(name for given in names for name in (known if given == "all" else registry.expand(given)))
    return [(name, registry.dataset(name)) for name in wanted]


@contextlib.contextmanager
def _shown_log() -> Iterator[None]:
    """Which source is asked, and what it said, on the terminal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("  %(message)s"))
    logger = logging.getLogger("fsibench.data.sources")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
