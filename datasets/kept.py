"""A data frame or arrays from Python, kept in the cache folder by `fsibench.add_table`: `table:mine-1a2b3c4d?target=y`."""

from __future__ import annotations

from fsibench.data.sources import cache
from fsibench.data.sources.own import parse, split_reference
from fsibench.datasets.files import FileTable
from fsibench.errors import DataError

PREFIX = "table:"


def resolve(reference: str) -> FileTable:
    name, query = split_reference(reference, PREFIX)
    if not cache.kept_file(name).is_file():
        raise DataError(f"there is no table {name!r} here; `fsibench.add_table(frame, target)` keeps one and returns the text that names it.")
    return parse(query, reference, FileTable, {}, path=str(cache.kept_file(name)))
