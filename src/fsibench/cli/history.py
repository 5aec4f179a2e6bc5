"""`fsibench history`: speed, memory and quality over the commits of this repository."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fsibench.cli.exits import OK
from fsibench.errors import UsageError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "history",
        help="speed, memory and quality over the commits of this repository: where they changed, and by how much",
        description="Find the commits at which a kept series changed. Run it inside a clone of the project; see "
        "docs/performance.md.",
    )
    parser.add_argument("--run", metavar="RANGE", help="first measure commits without a result, e.g. HEAD~50..HEAD")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="with --run: only every n-th commit")
    parser.add_argument("--series", action="append", default=[], metavar="NAME", help="only these; `*` stands for any text")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write the page DIR/history/index.html")
    parser.add_argument("--asv", metavar="ADDRESS", help="with --out: where the pages of `asv publish` are, for a link")
    parser.set_defaults(handler=_history)


def _history(arguments: argparse.Namespace) -> int:
    from fsibench.history import record, running, terminal, trends
    from fsibench.history.checkouts import Repository, covers

    repository = Repository(Path.cwd())
    folder = repository.root / record.FOLDER
    if arguments.every < 1:
        raise UsageError("--every must be at least 1.")
    if arguments.run is not None:
        commits = running.chosen(repository.commits(arguments.run), arguments.every)
        running.run(repository, commits, folder, lambda line: print(line, file=sys.stderr, flush=True))
    records = record.in_order(record.read_all(folder), [commit.sha for commit in repository.commits("HEAD")])
    if not records:
        raise UsageError(f"{record.FOLDER} holds no result of this branch; measure some with --run HEAD~10..HEAD.")
    found = trends.trends(records, {kept.sha: kept.accepted for kept in records})
    chosen = [trend for trend in found if not arguments.series or any(covers(one, trend.name) for one in arguments.series)]
    print(terminal.history_table(chosen))
    print(f"{len(records)} commits, {len(chosen)} series")
    if arguments.out is not None:
        from fsibench.reports import history as page

        print(page.write(records, chosen, arguments.out, arguments.asv))
    return OK
