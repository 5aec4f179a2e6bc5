"""Parquet files, in batches; pandas' own note about its row names is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data import BLOCK_ROWS, Floats
from fsibench.data.sources.archives import LARGEST_EXPANSION, allowed_bytes
from fsibench.data.sources.frames import from_frame
from fsibench.data.sources.raw import Layout, Raw, first_line, require_finite, require_unique
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
    index = _index_columns(schema.metadata or {}, names)
    if layout.plain:
        for column in schema:
            if not _is_number(column.type):
                raise DataError(f"{path.name}, column {column.name!r}: {column.type} values are not numbers.")
        return Raw(names, _blocks(file, names, path.name), {}, index)
    try:
        frame = file.read(use_threads=False, use_pandas_metadata=False).to_pandas(ignore_metadata=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} is a damaged Parquet file: {first_line(error)}.") from error
    raw = from_frame(frame, layout, path.name)
    return Raw(raw.names, raw.blocks, raw.levels, index)


def _require_modest(path: Path, rows: int, columns: int) -> None:
    """A few bytes can claim billions of equal values."""
    if 8 * rows * columns > allowed_bytes(path.stat().st_size):
        raise DataError(
            f"{path.name} is refused: its {rows} rows of {columns} columns expand to more than {LARGEST_EXPANSION} "
            "times its size."
        )


def _index_columns(metadata: dict[bytes, bytes], names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that pandas stored as row names; a range index is no column."""
    try:
        noted = json.loads(metadata.get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        noted = []
    return tuple(name for name in names if name in noted or name.startswith("__index_level_"))


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _blocks(file: Any, names: tuple[str, ...], origin: str) -> Iterator[Floats]:
    import pyarrow

    done = 0
    try:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, use_threads=False):
            columns = [_as_float(batch.column(index)) for index in range(len(names))]
            yield require_finite(np.stack(columns, axis=1), names, done, origin)
            done += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{origin} is a damaged Parquet file: {first_line(error)}.") from error


def _as_float(column: Any) -> Floats:
    values: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)  # nulls become nan
    return values
