"""`fsibench store`: list, show, merge, pack, clean and salvage result stores."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fsibench.cli.exits import OK
from fsibench.errors import UsageError
from fsibench.harness.store import DEFAULT_STORE, Store

SHOWN = ("id", "entry", "dataset", "split", "seed", "budget", "status", "train_seconds", "peak_memory_mb", "message")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("store", help="list, show, merge, pack, clean or salvage result stores")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _action(actions, "list", "one line per cell", _list)
    show = _action(actions, "show", "everything about one cell", _show)
    show.add_argument("cell", help="the id, or its beginning")
    merge = _action(actions, "merge", "take over the cells of other stores", _merge)
    merge.add_argument("others", nargs="+", type=Path, metavar="STORE")
    pack = _action(actions, "pack", "a whole store as one small Parquet file, which `merge` and every report read", _pack)
    pack.add_argument("--out", type=Path, required=True, metavar="FILE", help="ends in .parquet")
    _action(actions, "gc", "drop replaced cells and give space back; also brings an old format up to date", _collect)
    salvage = _action(actions, "salvage", "copy what is readable of a damaged store into a new one", _salvage)
    salvage.add_argument("--out", type=Path, required=True, metavar="PATH", help="the new store")


def _action(actions: Any, name: str, help_text: str, handler: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_text)
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH")
    parser.set_defaults(handler=handler)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    from tabulate import tabulate

    with Store.read(arguments.store) as store:
        cells = store.cells()[list(SHOWN)]
    cells["id"] = cells["id"].str[:10]
    print(tabulate(cells.astype(object).where(cells.notna(), ""), headers="keys", showindex=False, maxcolwidths=40))
    return OK


def _show(arguments: argparse.Namespace) -> int:
    with Store.read(arguments.store) as store:
        cell = store.show(arguments.cell)
    trace = cell.pop("traceback") or ""
    cell["options"] = json.loads(cell["options"])
    print(json.dumps(cell, indent=1))
    print(trace, end="\n" if trace else "")
    return OK


def _merge(arguments: argparse.Namespace) -> int:
    from fsibench.harness import environment

    with Store.create(arguments.store) as store:
        for other in arguments.others:
            print(f"{store.merge(other)} cells from {other}")
        note = environment.speed_note(store.cells())
    if note is not None:
        print(note)
    return OK


def _pack(arguments: argparse.Namespace) -> int:
    if arguments.out.suffix != ".parquet":
        raise UsageError(f"cannot pack into {arguments.out.name!r}; the file must end in .parquet.")
    with Store.read(arguments.store) as store:
        count = store.pack(arguments.out)
    print(f"{count} cells -> {arguments.out}, {arguments.out.stat().st_size / 1e6:.2f} MB")
    return OK


def _collect(arguments: argparse.Namespace) -> int:
    Store.read(arguments.store).close()  # an absent store is a mistake here, not a reason to make one
    before = arguments.store.stat().st_size
    with Store.create(arguments.store) as store:
        dropped = store.collect_garbage()
    saved = before - arguments.store.stat().st_size
    print(f"dropped {dropped} replaced cells, {saved / 1e6:.1f} MB smaller")
    return OK


def _salvage(arguments: argparse.Namespace) -> int:
    from fsibench.harness.store.salvage import salvage

    found = salvage(arguments.store, arguments.out)
    print(f"{found.whole} whole cells -> {arguments.out}")
    if found.incomplete:
        print(f"{found.incomplete} cells lost evaluations; the command that ran them runs them again")
    if found.lost:
        print(f"up to {found.lost} cells could not be read")
    return OK
