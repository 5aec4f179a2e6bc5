"""`fsibench run`: a protocol, its plan, an executor and a store; the same command resumes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench.cli.exits import FAILED, INTERRUPTED, OK
from fsibench.cli.rounds import rounds
from fsibench.errors import Unreachable, UsageError, unknown
from fsibench.harness.store import DEFAULT_STORE

if TYPE_CHECKING:
    from fsibench.executors.base import Executor, Limits
    from fsibench.harness.plan import Cell, Protocol


# How much slower than alone a cell may run when its budget counts CPU seconds.
BUSY = 20.0
TIME_LIMIT_HELP = (
    "kill a cell after this (default: 3 budgets and 2 minutes, 20 times that for a CPU clock; with --steps 10 minutes and 1 s per step)"
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("run", help="run a protocol; the same command resumes an interrupted run")
    parser.add_argument("protocol", help="quick, uci, synthetic, smoke, ... or the path of a TOML file")
    parser.add_argument("--lite", action="store_true", help="the protocol's short form: what it shows, in at most three minutes")
    parser.add_argument("--methods", metavar="A,B[opt=v]", help="entries instead of the protocol's")
    parser.add_argument("--datasets", metavar="A,B", help="data sets instead of the protocol's")
    parser.add_argument("--splits", metavar="N", help="5: the first five; 15-19: those; 3,7: those two")
    parser.add_argument("--scheme", help="split scheme: paper (80/20), standard (90/10), twins, gap or large (docs/data.md)")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--budget", metavar="20s", help="training time per cell, for example 20s, 5m, 1h")
    budget.add_argument("--steps", type=int, metavar="N", help="training steps per cell; bit-reproducible")
    parser.add_argument("--clock", choices=("wall", "cpu", "reference"),
                        help="what a budget in seconds counts: time, CPU time, or CPU time of a reference machine (default: wall)")
    parser.add_argument("--seed", type=int, metavar="N", help="repetition seed (default: the protocol's)")
    parser.add_argument("--device", default=None, help="cpu, cuda or mps (default: cpu)")
    parser.add_argument("--workers", type=int, metavar="N", help="cells at a time (default: number of cores)")
    parser.add_argument("--shard", metavar="I/N", help="only part I of N of the plan, into a store of its own (docs/clusters.md)")
    parser.add_argument("--store", type=Path, metavar="PATH", help=f"default: {DEFAULT_STORE}")
    parser.add_argument("--race", metavar="METRIC", help="after 5 splits, give further ones only to entries whose order in this metric is open")
    parser.add_argument("--take-over", type=Path, action="append", default=[], metavar="STORE", help="first copy the cells of this store, packed or not, and run only what is missing")
    parser.add_argument("--keep", metavar="functions,predictives", help="store draws on a grid for every split of sets with one or two inputs, not only the first; predictives for `rescore`")
    parser.add_argument("--retry", metavar="STATUS", help="run finished cells again: failed, diverged, error, timeout, oom")
    parser.add_argument("--time-limit", metavar="60s", help=TIME_LIMIT_HELP)
    parser.add_argument("--memory-limit", type=float, metavar="MB", help="kill a cell beyond this resident memory")
    parser.add_argument("--executor", choices=("local", "dask", "inline"), default="local", help="where cells run")
    parser.add_argument("--scheduler", metavar="tcp://...", help="a running Dask cluster (with --executor dask)")
    parser.add_argument("--mirror", type=Path, metavar="DIR", help="folder with data files by name")
    parser.add_argument("--report", action=argparse.BooleanOptionalAction, help="write the report at the end (default: after 30 s)")
    parser.set_defaults(handler=_run)


def _run(arguments: argparse.Namespace) -> int:
    from fsibench.harness import driver, environment
    from fsibench.harness.plan import left_out, make_plan
    from fsibench.harness.runner import device_named
    from fsibench.harness.store import Store

    started, workers = time.monotonic(), _workers(arguments.workers)
    if arguments.mirror is not None:
        os.environ["FSIBENCH_MIRROR"] = str(arguments.mirror.resolve())
    protocol = _with_data(_protocol(arguments))
    device_named(protocol.device)
    planned = make_plan(protocol)
    cells = _shard(arguments, planned)
    _executor(arguments, protocol, workers)  # refuses what it cannot do before anything is written
    with Store.create(arguments.store) as store:
        for other in arguments.take_over:
            print(f"{store.merge(other)} cells taken over from {other}", file=sys.stderr)
        todo = driver.pending(store, cells, _statuses_to_retry(arguments.retry))
        print(_announcement(protocol, len(cells), len(todo), arguments.store), file=sys.stderr)
        again = len(driver.without_artifacts(store, cells))
        if again:
            print(f"{again} of them have scores and run again to keep {', '.join(protocol.keep)}", file=sys.stderr)
        cards = _cards(protocol)
        for sentence in [*left_out(protocol), *_audit_line(cards)]:
            print(sentence, file=sys.stderr)
        machine = environment.describe() | {"data": cards}
        told = {"citations": _citations(protocol), "cells_per_split": Counter(cell.split for cell in planned)}
        run = store.begin_run(_command(), _as_json(protocol) | told, machine)
        finished = True
        for part in rounds(store, cells, todo, arguments.race):
            executor, progress = _executor(arguments, protocol, workers), driver.Progress(part, workers)
            finished = driver.drive(store, run, part, executor, progress, machine["calibration_seconds"])
            if not finished:
                break
        store.end_run(run, "finished" if finished else "interrupted")
        stored = store.cells()
        note = environment.speed_note(stored) if finished else None
    if not finished:
        print("fsibench: stopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    if note is not None and protocol.seconds is not None:
        print(note, file=sys.stderr)
    from fsibench.cli.report import line_after_run
    from fsibench.reports import terminal

    print(terminal.render(arguments.store))
    planned_pairs = {(cell.entry, cell.dataset) for cell in planned}
    if not planned_pairs.issuperset(stored[["entry", "dataset"]].itertuples(index=False, name=None)):
        print(f"Earlier runs in {arguments.store} are ranked with this one; another --store keeps them apart.")
    print(f"\n{terminal.verdict(arguments.store)}\n{line_after_run(arguments.store, time.monotonic() - started, arguments.report)}")
    return FAILED if _any_failed(arguments.store, [cell.id for cell in cells]) else OK


def _shard(arguments: argparse.Namespace, cells: list[Cell]) -> list[Cell]:
    """The cells of the shard that was asked for; without a --store it gets one of its own."""
    from fsibench.harness.shards import parse_shard

    if arguments.shard is None:
        arguments.store = arguments.store or DEFAULT_STORE
        return cells
    shard = parse_shard(arguments.shard)
    arguments.store = arguments.store or shard.store(DEFAULT_STORE)
    return shard.of(cells)


def _protocol(arguments: argparse.Namespace) -> Protocol:
    from fsibench.harness.plan import load_protocol, parse_budget
    from fsibench.options import split_list

    changes: dict[str, Any] = {
        "methods": split_list(arguments.methods) if arguments.methods else None,
        "datasets": split_list(arguments.datasets) if arguments.datasets else None,
        "splits": arguments.splits,
        "scheme": arguments.scheme,
        "seconds": parse_budget(arguments.budget) if arguments.budget else None,
        "steps": arguments.steps,
        "clock": arguments.clock,
        "seeds": [arguments.seed] if arguments.seed is not None else None,
        "device": arguments.device,
        "keep": split_list(arguments.keep) if arguments.keep else None,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    return load_protocol(arguments.protocol, given, arguments.lite)


def _with_data(protocol: Protocol) -> Protocol:
    """The protocol with its data on this machine; sets that cannot be had here are named and left out."""
    import dataclasses

    from fsibench import registry

    here = []
    for text in [name for given in protocol.datasets for name in registry.expand(given)]:
        try:
            registry.dataset(text).fetch()
        except Unreachable as error:
            if len(protocol.datasets) == 1:
                raise
            print(f"{text} is left out: {error}", file=sys.stderr)
        else:
            here.append(text)
    if not here:
        raise UsageError("none of the data sets can be had on this machine.")
    return dataclasses.replace(protocol, datasets=tuple(here))


def _cards(protocol: Protocol) -> dict[str, Any]:
    """The data card of each set: what an audit found, and for reports."""
    from fsibench import registry
    from fsibench.data.card import card

    return {text: card(registry.dataset(text), quick=True) for text in protocol.datasets}


def _citations(protocol: Protocol) -> dict[str, str]:
    """Method -> its paper: reports read the store and nothing else. Data cards have those of the data sets."""
    from fsibench import registry

    return {entry.method.name: entry.method.paper for entry in map(registry.entry, protocol.methods)}


def _audit_line(cards: dict[str, Any]) -> list[str]:
    """What to mind about the data, in one line."""
    from fsibench.data.audit import in_short

    found = {text: in_short(card["audit"]) for text, card in cards.items() if card.get("audit")}
    if not found:
        return []
    shown = "; ".join(f"{text} ({short})" for text, short in found.items())
    return [f"audit of the data: {shown}. fsibench data audit NAME says more"]


def _workers(requested: int | None) -> int:
    if requested is not None and requested < 1:
        raise UsageError(f"--workers must be at least 1; got {requested}.")
    if requested is not None:
        return requested
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _statuses_to_retry(text: str | None) -> set[str]:
    from fsibench.harness.store import FINAL_STATUSES

    failures = set(FINAL_STATUSES) - {"ok"}
    chosen = set(text.split(",")) if text else set()
    for status in chosen - failures - {"failed"}:
        raise unknown("status", status, {*failures, "failed"})
    return failures if "failed" in chosen else chosen


def _executor(arguments: argparse.Namespace, protocol: Protocol, workers: int) -> Executor:
    from fsibench.executors.inline import InlineExecutor
    from fsibench.executors.local import LocalExecutor

    if arguments.scheduler and arguments.executor != "dask":
        raise UsageError("--scheduler needs --executor dask.")
    if arguments.executor == "inline":
        return InlineExecutor()
    limits = _limits(arguments, protocol, workers)
    if arguments.executor == "dask":
        from fsibench.executors.dask import DaskExecutor

        return DaskExecutor(workers, limits, arguments.scheduler)
    return LocalExecutor(workers, limits)


def _limits(arguments: argparse.Namespace, protocol: Protocol, workers: int) -> Limits:
    """Generous by default: `TIME_LIMIT_HELP` says how long, and an equal share of 90 % of the memory."""
    from fsibench.executors.base import Limits
    from fsibench.executors.local import physical_memory_mb
    from fsibench.harness.plan import parse_budget

    longest = max([protocol.seconds or 0.0, *protocol.budgets.values()])
    seconds = 600.0 + (protocol.steps or 0) if protocol.seconds is None else 3.0 * longest + 120.0
    # The limit is on wall time. A budget in CPU seconds is for machines with other work, where it may take many times as long.
    seconds *= 1.0 if protocol.clock == "wall" else BUSY
    if arguments.time_limit:
        seconds = parse_budget(arguments.time_limit)
    if arguments.memory_limit is not None and not arguments.memory_limit > 0:
        raise UsageError(f"--memory-limit must be positive; got {arguments.memory_limit:g}.")
    return Limits(seconds, arguments.memory_limit or 0.9 * physical_memory_mb() / workers)


def _announcement(protocol: Protocol, total: int, todo: int, store: Path) -> str:
    kept = f" ({total - todo} already in {store})" if todo < total else ""
    exact = "" if protocol.steps else "; a time budget does not reproduce bit for bit, --steps does"
    own = "".join(f", {entry} {seconds:g}s" for entry, seconds in protocol.budgets.items())
    return f"{protocol.name}: {todo} cells to run{kept}, {protocol.budget} each{own}{exact}"


def _command() -> list[str]:
    """The command as typed, without the path of the interpreter."""
    return ["fsibench", *sys.argv[1:]]


def _as_json(protocol: Protocol) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(protocol)


def _any_failed(path: Path, cells: list[str]) -> bool:
    from fsibench.harness.store import Store

    with Store.read(path) as store:
        return any(status != "ok" for status in store.statuses(cells).values())
