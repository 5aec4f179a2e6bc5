"""`fsibench data`: bring data sets onto this machine, check, describe and locate them, clean up after them."""

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
    card = actions.add_parser("card", help="what a set is, where it is from, how its target is spread, what to mind")
    card.add_argument("names", nargs="+", metavar="NAME", help="boston, openml:44959, ... or all that are here")
    card.add_argument("--json", action="store_true", help="print JSON instead of text")
    card.set_defaults(action=_card)
    audit = actions.add_parser("audit", help="look for row numbers, copies of the target, twins, -999 and the like")
    audit.add_argument("names", nargs="+", metavar="NAME")
    audit.set_defaults(action=_audit)
    clean = actions.add_parser("clean", help="remove prepared splits of large tables from the cache")
    clean.add_argument("--all", action="store_true", dest="everything", help="remove cached tables and downloads too")
    clean.set_defaults(action=_clean)
    for action in (fetch, verify, path, card, audit, clean):
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


def _card(arguments: argparse.Namespace) -> int:
    import json

    from fsibench.data.card import card, text

    chosen = _chosen(arguments.names)
    if "all" in arguments.names:
        chosen = [(name, dataset) for name, dataset in chosen if dataset.describe().available]
    cards = [card(dataset) for _, dataset in chosen]
    if arguments.json:
        print(json.dumps(cards, indent=1))
    else:
        print("\n\n".join(text(content) for content in cards))
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    """Findings are no failure: some are what a set is."""
    from fsibench.data import TableDataset
    from fsibench.data.audit import audit

    for name, dataset in _chosen(arguments.names):
        findings = audit(dataset) if isinstance(dataset, TableDataset) else []
        if not findings:
            print(f"{name}: nothing found")
        for finding in findings:
            print(f"{name}: {finding.kind}: {f'{finding.column}: ' if finding.column else ''}{finding.sentence}")
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    from fsibench.data.sources import cache

    removed = cache.clean(everything=arguments.everything)
    print(f"removed {removed / 1e6:.1f} MB from {cache.folder()}")
    return 0


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
