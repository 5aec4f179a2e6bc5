"""`fsibench export`: a store as tidy CSV or Parquet tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fsibench.cli.exits import OK
from fsibench.errors import UsageError
from fsibench.harness.store import DEFAULT_STORE

TABLES = ("evaluations", "cells", "options", "pit", "trace")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("export", help="a store as tidy CSV or Parquet tables, one row per evaluation")
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH")
    parser.add_argument("--out", type=Path, metavar="FILE", help="ends in .csv or .parquet")
    parser.add_argument("--table", choices=TABLES, default=TABLES[0], help="which table (default: %(default)s)")
    parser.add_argument("--dictionary", action="store_true", help="print what every column means, and export nothing")
    parser.set_defaults(handler=_export)


def _export(arguments: argparse.Namespace) -> int:
    from fsibench.harness import export
    from fsibench.harness.store import Store

    if arguments.dictionary:
        print(export.dictionary())
        return OK
    if arguments.out is None:
        raise UsageError("export needs --out FILE, which ends in .csv or .parquet; --dictionary explains the columns.")
    writers = {".csv": "to_csv", ".parquet": "to_parquet"}
    if arguments.out.suffix not in writers:
        raise UsageError(f"cannot export to {arguments.out.name!r}; the file must end in .csv or .parquet.")
    with Store.read(arguments.store) as store:
        frame = export.frame(store, arguments.table)
    partial = arguments.out.with_name(arguments.out.name + ".part")
    try:
        getattr(frame, writers[arguments.out.suffix])(partial, index=False)
        partial.replace(arguments.out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"{arguments.out} cannot be written: {error.strerror or error}.") from None
    print(f"{len(frame)} rows -> {arguments.out}")
    return OK
