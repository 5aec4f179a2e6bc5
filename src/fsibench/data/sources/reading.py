"""Files to numbers: delimited text, Parquet, spreadsheets, ARFF, archives; with an error that says what and where.

Nothing here trusts the file: text in numeric columns, missing and infinite values, ragged lines, repeated names,
binary garbage, archives that expand too far or contain paths outside themselves are refused with one sentence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fsibench.data.sources.archives import only_member, open_file, open_member, open_packed
from fsibench.data.sources.arff import read_arff
from fsibench.data.sources.parquet import read_parquet
from fsibench.data.sources.raw import Layout, Raw
from fsibench.data.sources.text import read_text
from fsibench.data.sources.xlsx import read_xlsx
from fsibench.errors import DataError

TEXTS = (".csv", ".tsv", ".txt", ".data")
FORMATS = (*TEXTS, ".parquet", ".pq", ".xlsx", ".arff")
PACKINGS = (".gz", ".bz2", ".zip")


def format_of(name: str) -> tuple[str, str]:
    """(format, packing) by the ending of a name in any case: `T.CSV.GZ` -> (".csv", ".gz"); empty where unknown."""
    name = name.lower()
    packing = next((ending for ending in PACKINGS if name.endswith(ending)), "")
    kind = next((ending for ending in FORMATS if name.removesuffix(packing).endswith(ending)), "")
    return kind, packing


@contextlib.contextmanager
def read_table(path: Path, layout: Layout | None = None) -> Iterator[Raw]:
    """The table in a file, by the ending of its name (or of the last archive member's name)."""
    layout = layout or Layout()
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(open_file(path))
        name = path.name
        members = list(layout.members)
        if not members and name.lower().endswith(".zip"):
            members = [only_member(stream, name)]
        for name in members:
            stream = stack.enter_context(open_member(stream, name, path.name))
        kind, packing = format_of(name)
        if packing in (".gz", ".bz2"):
            stream = stack.enter_context(open_packed(stream, packing, path.stat().st_size, path.name))
        if kind in (".parquet", ".pq"):
            if members or packing:
                raise DataError(f"{path.name}: a Parquet file is packed already; take it out of its archive.")
            yield read_parquet(path, layout)
        elif kind == ".xlsx":
            yield read_xlsx(stream.read(), path.name, layout)
        elif kind == ".arff":
            yield read_arff(stream, path.name, layout)
        else:
            yield read_text(stream, path.name, layout)
