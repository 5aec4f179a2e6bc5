"""`fsibench report`: parse, load the report by name, print where the result is.

Reports are plugins, so they are imported by name and only when asked for; `fsibench --help` loads none of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench.errors import UsageError
from fsibench.harness.store import DEFAULT_STORE, Store

if TYPE_CHECKING:
    from fsibench.reports.analysis.results import Subset

# Between two looks at a store that is being written, and between two reloads of its pages.
WATCH_SECONDS = 5
# A run of at least so many seconds writes its report at the end, which takes some seconds itself.
LONG_RUN = 30.0
CONDITIONS = ("scheme", "budget", "clock", "device")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        help="make the report site, or print the ranking",
        description="Make a static site from a result store: pages, tables (CSV, LaTeX, Markdown) and figures.",
    )
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH", help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write to (default: next to the store)")
    parser.add_argument("--terminal", action="store_true", help="print the ranking and write nothing")
    parser.add_argument("--metrics", metavar="a,b", help="with --terminal: rank in these (default: RMSE, LL and CRPS)")
    parser.add_argument(
        "--figures",
        default="none",
        metavar="svg,pdf,png",
        help="also draw figures at print size in these formats (default: %(default)s; the pages save theirs as SVG and PDF)",
    )
    parser.add_argument("--entries", metavar="a,b", help="only these entries, in this order")
    parser.add_argument("--datasets", metavar="x,y", help="only these data sets, in this order")
    parser.add_argument("--order", choices=("rank", "name", "given"), default="rank", help="order of the entries in tables")
    parser.add_argument("--rename", metavar="sip=Ours,boston=Boston", help="names for a paper; colours stay")
    parser.add_argument("--watch", action="store_true", help="write the pages again whenever a run adds results, until it ends")
    add_conditions(parser)
    parser.set_defaults(handler=report)


def add_conditions(parser: argparse.ArgumentParser) -> None:
    for condition in CONDITIONS:
        parser.add_argument(f"--{condition}", help=f"only cells with this {condition} (default: the most frequent)")


def chosen_conditions(arguments: argparse.Namespace) -> dict[str, str]:
    chosen = {condition: getattr(arguments, condition) for condition in CONDITIONS}
    return {condition: value for condition, value in chosen.items() if value is not None}


def report(arguments: argparse.Namespace) -> int:
    store, where = arguments.store, chosen_conditions(arguments)
    if arguments.terminal:
        from fsibench.reports import terminal

        print(terminal.render(store, where, arguments.metrics.split(",") if arguments.metrics else ()))
        return 0
    if arguments.metrics:
        raise UsageError("--metrics is for --terminal; the pages have every metric.")
    formats = [] if arguments.figures == "none" else [part.strip() for part in arguments.figures.split(",")]
    out = arguments.out or store.parent / f"{store.stem}-report"
    from fsibench.reports import site

    _give_back_memory()
    try:
        if arguments.watch:
            _watch(lambda refresh: site.build(store, out, where, (), _subset(arguments), refresh), store)
        index = site.build(store, out, where, formats, _subset(arguments))
    except OSError as error:
        raise UsageError(f"the report cannot be written to {out}: {error.strerror or error}.") from None
    print(f"report: {index}")
    return 0


def _give_back_memory() -> None:
    """Texts of a data frame are Arrow's, whose own allocator keeps what is freed: tens of megabytes for a large store."""
    import pyarrow

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def line_after_run(store: Path, seconds: float, wanted: bool | None) -> str:
    """Where the report of a finished run is, written if it is wanted or small beside the run; otherwise the command."""
    if wanted is False or (wanted is None and seconds < LONG_RUN):
        return f"pages: fsibench report --store {store}"
    from fsibench.reports import site

    try:
        index = site.build(store, store.parent / f"{store.stem}-report")
    except OSError as error:  # the results are safe; the report can be made elsewhere
        return f"pages: fsibench report --store {store} --out DIR (not written beside the store: {error.strerror or error})"
    return f"report: {index.resolve().as_uri()}"


def _subset(arguments: argparse.Namespace) -> Subset:
    from fsibench.options import split_list
    from fsibench.reports.analysis.results import Subset

    names = {}
    for pair in split_list(arguments.rename or ""):
        old, equals, new = _halves(pair)
        if not equals or not new.strip():
            raise UsageError(f"cannot read {pair!r} in --rename; write old=new,old=new.")
        names[old.strip()] = new.strip()
    return Subset(split_list(arguments.entries or ""), split_list(arguments.datasets or ""), names, arguments.order)


def _halves(pair: str) -> tuple[str, str, str]:
    """At the first equals sign that is not inside brackets: `sip[prior=ns]=SIP`."""
    depth = 0
    for place, letter in enumerate(pair):
        depth += (letter == "[") - (letter == "]")
        if letter == "=" and depth == 0:
            return pair[:place], "=", pair[place + 1 :]
    return pair, "", ""


def _watch(build: Callable[[int], Path], store: Path) -> None:
    """Build again whenever the store has changed, until its last run has ended or somebody presses Ctrl-C."""
    seen = None
    try:
        while is_running(store):
            changed = store.stat().st_mtime_ns
            if changed != seen:
                index = build(WATCH_SECONDS)
                if seen is None:
                    print(f"report: {index}, written again while the run goes on (Ctrl-C ends this)", flush=True)
                seen = changed
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def is_running(store: Path) -> bool:
    with Store.read(store) as opened:
        runs = opened.runs()
    return bool(runs) and runs[-1]["outcome"] is None
