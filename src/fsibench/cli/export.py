"""`fsibench export`: one row per evaluation as CSV or Parquet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fsibench.cli.exits import OK
from fsibench.errors import UsageError
from fsibench.harness.store import DEFAULT_STORE


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("export", help="one row per evaluation as CSV or Parquet")
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="ends in .csv or .parquet")
    parser.set_defaults(handler=_export)


def _export(arguments: argparse.Namespace) -> int:
    from fsibench.harness.store import Store

    writers = {".csv": "to_csv", ".parquet": "to_parquet"}
    if arguments.out.suffix not in writers:
        raise UsageError(f"cannot export to {arguments.out.name!r}; the file must end in .csv or .parquet.")
    with Store.read(arguments.store) as store:
        frame = store.evaluations()
    partial = arguments.out.with_name(arguments.out.name + ".part")
    try:
        getattr(frame, writers[arguments.out.suffix])(partial, index=False)
        partial.replace(arguments.out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"{arguments.out} cannot be written: {error.strerror or error}.") from None
    print(f"{len(frame)} rows -> {arguments.out}")
    return OK
