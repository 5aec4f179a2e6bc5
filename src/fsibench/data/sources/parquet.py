"""Parquet files, in batches; pandas' own note about its row names is read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data import BLOCK_ROWS, Floats
from fsibench.data.sources.archives import LARGEST_EXPANSION, allowed_bytes
from fsibench.data.sources.frames import from_frame
from fsibench.data.sources.raw import Layout, Raw, first_line, kept_places, require_finite, require_unique
from fsibench.errors import DataError


def read_parquet(path: Path, layout: Layout) -> Raw:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        schema = file.schema_arrow
        names = tuple(schema.names)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is not a readable Parquet file: {first_line(error)}.") from error
    require_unique(names, path.name)
    _require_modest(path, file.metadata.num_rows, len(names))
    noted = _pandas_note(schema.metadata or {})
    index = _index_columns(noted, names)
    nominal = _nominal_columns(noted, schema)
    if layout.plain:
        names = tuple(names[place] for place in kept_places(names, layout, path.name))
        for name in names:
            if not _is_number(kind := schema.field(name).type):
                raise DataError(f"{path.name}, column {name!r}: {kind} values are not numbers.")
        return Raw(names, _blocks(file, names, path.name), {}, index, nominal)
    try:
        frame = file.read(use_threads=False, use_pandas_metadata=False).to_pandas(ignore_metadata=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} is a damaged Parquet file: {first_line(error)}.") from error
    raw = from_frame(frame, layout, path.name)
    return dataclasses.replace(raw, index=index, nominal=raw.nominal | nominal)


def _require_modest(path: Path, rows: int, columns: int) -> None:
    """A small file can state billions of equal values, which would fill the memory."""
    if 8 * rows * columns > allowed_bytes(path.stat().st_size):
        raise DataError(
            f"{path.name} is refused: its {rows} rows of {columns} columns expand to more than {LARGEST_EXPANSION} "
            "times its size."
        )


def _pandas_note(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """What pandas wrote about its columns; empty if another program wrote the file."""
    try:
        noted = json.loads(metadata.get(b"pandas", b"{}"))
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


def _index_columns(noted: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that pandas stored as row names; a range index is no column."""
    index = noted.get("index_columns", [])
    return tuple(name for name in names if name in index or name.startswith("__index_level_"))


def _nominal_columns(noted: dict[str, Any], schema: Any) -> frozenset[str]:
    """Truth values, dictionaries, and what pandas calls categorical: Parquet stores categories of numbers as numbers."""
    from pyarrow import types

    columns = [column for column in noted.get("columns", []) if isinstance(column, dict)]
    categorical = {column.get("field_name") for column in columns if column.get("pandas_type") == "categorical"}
    return frozenset(
        column.name
        for column in schema
        if column.name in categorical or types.is_boolean(column.type) or types.is_dictionary(column.type)
    )


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _blocks(file: Any, names: tuple[str, ...], origin: str) -> Iterator[Floats]:
    import pyarrow

    done = 0
    try:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, use_threads=False):
            columns = [_as_float(batch.column(name)) for name in names]
            yield require_finite(np.stack(columns, axis=1), names, done, origin)
            done += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{origin} is a damaged Parquet file: {first_line(error)}.") from error


def _as_float(column: Any) -> Floats:
    values: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)  # nulls become nan
    return values
