"""A store as one Parquet file, and back. The file is small enough to commit, and a run can continue from it.

One row per cell with every column of the store; its evaluations and artifacts are lists within the row, the runs are in
the file's metadata. Numbers come back bit for bit, PIT counts and options as the same JSON. Two things are left behind:
folders of the machine that ran it (in commands, messages and tracebacks), and cells of a driver that is still at work.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import tempfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from fsibench.errors import StoreError
from fsibench.harness.store import schema
from fsibench.metrics import RESERVED_KEYS

MAGIC = b"PAR1"
RUNS = b"fsibench.runs"
VERSION = b"fsibench.schema_version"
LISTS = {"evaluations": "step", "artifacts": "kind"}
# An absolute path of two parts or more; not the path of a web address.
_FOLDERS = re.compile(r"(?<![\w/:.…])(?:/[^\s/\"'\\,;:()]+)+/(?=[^\s/\"'\\,;:()])")


def is_packed(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def without_folders(text: str) -> str:
    """The same text with `…/name` for `/home/somebody/name`."""
    return _FOLDERS.sub("…/", text)


def pack(connection: sqlite3.Connection, path: Path) -> int:
    """Write the whole store to a Parquet file, replacing it at once; returns the number of cells."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = _rows(connection, "SELECT * FROM cells WHERE status != 'running' ORDER BY split, dataset, entry, id")
    known = {cell["id"] for cell in cells}
    for table, key in LISTS.items():
        rows = _rows(connection, f"SELECT * FROM {table} ORDER BY cell, {key}")
        of_cell = {cell: list(group) for cell, group in groupby(rows, lambda row: row.pop("cell")) if cell in known}
        for cell in cells:
            cell[table] = [_compact(row) for row in of_cell.get(cell["id"], [])]
    for cell in cells:
        cell |= {name: without_folders(cell[name]) for name in ("message", "traceback", "worker") if cell[name]}
    runs = _rows(connection, "SELECT * FROM runs ORDER BY id")
    for run in runs:
        run["command"] = json.dumps([without_folders(word) for word in json.loads(run["command"])])
    kept = zlib.compress(json.dumps(runs).encode(), 9)
    metadata = {RUNS: b64encode(kept), VERSION: str(schema.SCHEMA_VERSION).encode()}
    table = pa.Table.from_pylist(cells, pa.schema(_fields(connection), metadata))
    fresh = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Mantissas do not compress; set apart from them, signs and exponents do.
        split, rest = _leaves(table.schema)
        pq.write_table(
            table, fresh, compression="zstd", compression_level=9, use_byte_stream_split=split, use_dictionary=rest
        )
        fresh.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        fresh.unlink(missing_ok=True)
    return len(cells)


def unpack(path: Path, connection: sqlite3.Connection) -> None:
    """Fill an empty store from a Parquet file that `pack` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}.") from None
    metadata = table.schema.metadata or {}
    if RUNS not in metadata:
        raise StoreError(f"{path} is no packed store; `fsibench store pack` writes one.")
    if (version := metadata[VERSION].decode()) != str(schema.SCHEMA_VERSION):
        raise StoreError(f"{path} has format {version}, this fsibench reads format {schema.SCHEMA_VERSION}.")
    cells = table.to_pylist()
    looks = [{"cell": cell["id"], **_full(row)} for cell in cells for row in cell.pop("evaluations")]
    artifacts = [{"cell": cell["id"], **row} for cell in cells for row in cell.pop("artifacts")]
    schema.make_room_for(connection, {key for look in looks[:1] for key in look} - RESERVED_KEYS)
    _insert(connection, "runs", json.loads(zlib.decompress(b64decode(metadata[RUNS]))))
    _insert(connection, "cells", cells)
    _insert(connection, "evaluations", looks)
    _insert(connection, "artifacts", artifacts)
    connection.commit()


def unpacked(path: Path) -> sqlite3.Connection:
    """The store of a Parquet file, in memory."""
    connection = sqlite3.connect(":memory:")
    schema.make_tables(connection)
    unpack(path, connection)
    return connection


@contextlib.contextmanager
def as_database(path: Path) -> Iterator[Path]:
    """The path of an SQLite file with the content of a store: the store itself, or a copy of a packed one for a while."""
    if not is_packed(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "unpacked.sqlite"
        source, target = unpacked(path), sqlite3.connect(copy)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()
        yield copy


def _rows(connection: sqlite3.Connection, query: str) -> list[dict[str, Any]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    if rows:
        names = ", ".join(rows[0])
        places = ", ".join(f":{name}" for name in rows[0])
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)


def _compact(row: dict[str, Any]) -> dict[str, Any]:
    """PIT counts as numbers, not as text; a trace stays text, because methods differ in what they tell."""
    return row | {"pit": json.loads(row["pit"])} if "pit" in row else row


def _full(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"pit": json.dumps(row["pit"])}


def _fields(connection: sqlite3.Connection) -> list[Any]:
    import pyarrow as pa

    types: dict[str, Callable[[], Any]] = {"TEXT": pa.string, "INTEGER": pa.int64, "REAL": pa.float64}

    def columns(table: str) -> list[Any]:
        rows = connection.execute(f"PRAGMA table_info({table})")
        return [(row[1], types[row[2]]()) for row in rows if row[1] != "cell"]

    looks = [(name, pa.list_(pa.int64()) if name == "pit" else kind) for name, kind in columns("evaluations")]
    lists = {"evaluations": looks, "artifacts": columns("artifacts")}
    return [*columns("cells"), *((name, pa.list_(pa.struct(fields))) for name, fields in lists.items())]


def _leaves(fields: Any) -> tuple[list[str], list[str]]:
    """Paths of the columns of floats and of all others, as Parquet names them."""
    import pyarrow as pa

    floats: list[str] = []
    others: list[str] = []

    def visit(path: str, kind: Any) -> None:
        if pa.types.is_list(kind):
            visit(f"{path}.list.element", kind.value_type)
        elif pa.types.is_struct(kind):
            for child in kind:
                visit(f"{path}.{child.name}", child.type)
        else:
            (floats if pa.types.is_floating(kind) else others).append(path)

    for column in fields:
        visit(column.name, column.type)
    return floats, others
