"""`fsibench gate`: is a commit slower, larger or worse than another?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fsibench.cli.exits import FAILED, OK
from fsibench.errors import UsageError

if TYPE_CHECKING:
    from fsibench.history.checkouts import Commit, Repository
    from fsibench.history.gate import Outcome


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "gate",
        help="is a commit slower, larger or worse than another? one verdict per series",
        description="Compare two commits of the repository that you are in: speed by running both at the same time, "
        "memory, and scores by split. Exit code 1 if there is a regression that no commit message accepts with a line "
        "`Accept-regression: SERIES reason`. See docs/performance.md.",
    )
    parser.add_argument("base", metavar="BASE", help="the commit to compare with, e.g. main or HEAD~1")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="the commit to judge (default: the last one)")
    parser.add_argument("--dirty", action="store_true", help="judge the files as they are, with changes not committed")
    parser.add_argument("--series", action="append", default=[], metavar="NAME", help="only these; `*` stands for any text")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="stop measuring then; what is left is counted")
    parser.add_argument("--all", action="store_true", help="compare even if no code differs, and show every row")
    parser.add_argument("--list", action="store_true", help="only show what would be compared")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the outcomes to a file")
    parser.set_defaults(handler=_gate)


def _gate(arguments: argparse.Namespace) -> int:
    from fsibench.history import gate, terminal
    from fsibench.history.checkouts import Repository
    from fsibench.history.workers import Place

    if arguments.limit is not None and not arguments.limit > 0:
        raise UsageError("--limit must be a positive number of seconds.")
    repository = Repository(Path.cwd())
    base, head = repository.commit(arguments.base), _head(repository, arguments)
    changed = repository.changed_code(base, head)
    print(f"base {base.label} {base.subject}\nhead {head.label} {head.subject}", file=sys.stderr)
    if not changed and not arguments.all and not arguments.list:
        print("no code differs between the two; --all compares all the same")
        return OK
    with TemporaryDirectory(prefix="fsibench-gate-") as scratch:
        before, after = (
            Place(label, repository.lay_out(commit, Path(scratch) / label), repository.root, Path(scratch) / label / "run")
            for label, commit in (("base", base), ("head", head))
        )
        series = gate.by_relevance(gate.chosen(gate.catalogue(after), arguments.series), changed)
        if arguments.list:
            print("\n".join(one.name for one in series))
            return OK
        accepted = repository.acceptances(base, head)
        outcomes = gate.compare(before, after, series, arguments.limit, accepted, _say)
    print(terminal.gate_table(outcomes, every=arguments.all))
    if arguments.json is not None:
        _write(arguments.json, base, head, outcomes)
    if all(outcome.change is None and not outcome.is_regression for outcome in outcomes):
        raise UsageError(f"nothing could be compared; the first reason: {outcomes[0].note or outcomes[0].verdict}.")
    return FAILED if any(outcome.is_regression for outcome in outcomes) else OK


def _head(repository: Repository, arguments: argparse.Namespace) -> Commit:
    if arguments.dirty:
        if arguments.head is not None:
            raise UsageError("--dirty judges the files as they are; leave out HEAD.")
        return repository.working_tree()
    if arguments.head is None and repository.has_changes():
        raise UsageError("there are changes that are not committed; commit them, give HEAD, or judge them with --dirty.")
    return repository.commit(arguments.head or "HEAD")


def _say(outcome: Outcome) -> None:
    print(f"{outcome.verdict:18} {outcome.series} ({outcome.seconds:.0f} s)", file=sys.stderr, flush=True)


def _write(path: Path, base: Commit, head: Commit, outcomes: list[Outcome]) -> None:
    from dataclasses import asdict

    kept = {"base": base.sha, "head": head.sha, "outcomes": [asdict(outcome) for outcome in outcomes]}
    try:
        path.write_text(json.dumps(kept, indent=1, allow_nan=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
