"""ARFF files: attribute lines, then rows of comma-separated values; `?` is a missing value."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import IO

from fsibench.data.sources.archives import damaged
from fsibench.data.sources.frames import from_texts
from fsibench.data.sources.raw import Layout, Raw, require_unique
from fsibench.errors import DataError

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\S+)\s+(.+)", re.IGNORECASE)


def read_arff(stream: IO[bytes], origin: str, layout: Layout) -> Raw:
    names: list[str] = []
    nominal: set[str] = set()
    lines = _lines(stream, origin)
    for line in lines:
        if line.lower().startswith("@data"):
            break
        if line.lower().startswith("@attribute"):
            match = _ATTRIBUTE.match(line)
            if match is None:
                raise DataError(f"{origin}: cannot read the line {line[:80]!r}; write @attribute NAME TYPE.")
            names.append(_unquoted(match[1]))
            if match[2].startswith("{"):
                nominal.add(names[-1])
    else:
        raise DataError(f"{origin} is not an ARFF file: it has no @data line.")
    if not names:
        raise DataError(f"{origin} names no attributes.")
    rows = _rows(lines, len(names), origin)
    return from_texts(require_unique(tuple(names), origin), rows, layout, origin, frozenset(nominal))


def _lines(stream: IO[bytes], origin: str) -> Iterator[str]:
    try:
        for raw in stream:
            line = raw.decode("utf-8-sig").strip()
            if line and not line.startswith("%"):
                yield line
    except UnicodeDecodeError as error:
        raise damaged(origin, error) from None


def _rows(lines: Iterator[str], width: int, origin: str) -> Iterator[list[str]]:
    for row, line in enumerate(lines, 1):
        if line.startswith("{"):
            raise DataError(f"{origin} is a sparse ARFF file, which is not read; save it as a dense one.")
        quote = "'" if "'" in line else '"'
        try:
            fields = next(csv.reader([line], quotechar=quote, skipinitialspace=True, escapechar="\\"))
        except csv.Error as error:
            raise DataError(f"{origin}, row {row}: {error}.") from None
        if len(fields) != width:
            raise DataError(f"{origin}, row {row}: {len(fields)} values instead of {width}.")
        yield [field.strip() for field in fields]


def _unquoted(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name[0] in "'\"" else name
