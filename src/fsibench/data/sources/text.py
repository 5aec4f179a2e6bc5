"""Delimited text to numbers, in blocks; delimiter and decimal sign are found out if they are not given."""

from __future__ import annotations

import contextlib
import csv
import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np

from fsibench.data import Floats
from fsibench.data.sources.archives import BLOCK_BYTES
from fsibench.data.sources.frames import from_texts
from fsibench.data.sources.raw import Layout, Raw, column_name, kept_places, number, require_finite, require_unique
from fsibench.errors import DataError

logger = logging.getLogger(__name__)

LONGEST_LINE = 1 << 24
SNIFFED_LINES = 20
_COMMA_NUMBER = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
_POINT_NUMBER = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


def read_text(stream: IO[bytes], origin: str, layout: Layout) -> Raw:
    """The table in a stream of lines."""
    blocks = filter(None, _lines(stream, origin))
    first = next(blocks, [])
    delimiter, decimal = _dialect(first[:SNIFFED_LINES], layout, origin)
    names: tuple[str, ...] = ()
    if layout.header:
        names = _header(first[0] if first else "", origin, delimiter)
        first = first[1:]
    elif first:
        names = tuple(f"c{place + 1}" for place in range(len(_fields(first[0], delimiter))))
    rest: Iterator[list[str]] = itertools.chain([first], blocks)
    if decimal == ",":
        rest = ([_with_points(line, delimiter) for line in lines] for lines in rest)
    if layout.plain:
        kept = kept_places(names, layout, origin)
        return Raw(tuple(names[place] for place in kept), _text_blocks(rest, origin, delimiter, names, kept))
    rows = _rows(itertools.chain.from_iterable(rest), origin, delimiter, len(names))
    return from_texts(names, rows, layout, origin)


# --- lines ------------------------------------------------------------------------------------------------------


def _lines(stream: IO[bytes], origin: str) -> Iterator[list[str]]:
    """Lines that are not blank, a few megabytes at a time; a gigabyte without a line end is not read whole."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        whole, end, rest = (rest + chunk).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            raise DataError(f"{origin} is not a table of text: it holds binary data or endless lines.")
        yield _decoded(whole + end, origin)
    yield _decoded(rest, origin)


def _decoded(raw: bytes, origin: str) -> list[str]:
    if b"\0" in raw:
        raise DataError(f"{origin} is not a table of text: it holds binary data or endless lines.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{origin} is not a table of text: it is not UTF-8.") from None
    return [line for line in text.split("\n") if line.strip()]


def _fields(line: str, delimiter: str) -> list[str]:
    if not delimiter:
        return line.split()
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [""])
    except csv.Error:  # a stray carriage return or an unclosed quote: return one field, and the caller reports too few
        return [line]


def _rows(lines: Iterable[str], origin: str, delimiter: str, width: int) -> Iterator[list[str]]:
    for row, line in enumerate(lines, 1):
        fields = _fields(line, delimiter)
        if len(fields) != width:
            raise DataError(f"{origin}, row {row}: {len(fields)} fields instead of {width}.")
        yield fields


def _header(line: str, origin: str, delimiter: str) -> tuple[str, ...]:
    if not line.strip():
        raise DataError(f"{origin} is empty; its first line should name the columns.")
    names = tuple(name.strip() for name in _fields(line, delimiter))
    if len(names) == 1:
        other = next((mark for mark in ",;\t|" if mark != delimiter and mark in line), None)
        if other is not None:
            found = f"has one column when split at {delimiter!r}; its delimiter seems to be {other!r}"
            raise DataError(f"{origin} {found}.")
    return require_unique(names, origin)


# --- what the file does not say -----------------------------------------------------------------------------------


def _dialect(lines: list[str], layout: Layout, origin: str) -> tuple[str, str]:
    """Delimiter and decimal sign: as given, or the ones that fit the first lines, with a sentence if not the usual."""
    delimiter = _likely_delimiter(lines) if layout.delimiter is None else layout.delimiter
    decimal = _likely_decimal(lines[1:], delimiter) if layout.decimal is None else layout.decimal
    assumed = [f"delimiter {delimiter!r}" if delimiter else "columns divided by white space"]
    assumed = assumed if layout.delimiter is None and delimiter != "," else []
    assumed += ["a decimal comma"] if layout.decimal is None and decimal == "," else []
    if assumed:
        logger.warning("%s: read with %s; delimiter= and decimal= choose otherwise", origin, " and ".join(assumed))
    return delimiter, decimal


def _likely_delimiter(lines: list[str]) -> str:
    """The one that gives every line the same number of fields, and most of them; a comma if none does."""
    best, most = ",", 1
    for mark in (";", "\t", "|", ",", ""):
        counts = {len(_fields(line, mark)) for line in lines}
        if len(counts) == 1 and (count := counts.pop()) > most:
            best, most = mark, count
    return best


def _likely_decimal(lines: list[str], delimiter: str) -> str:
    if delimiter == ",":
        return "."
    fields = [field for line in lines for field in _fields(line, delimiter)]
    commas = any(_COMMA_NUMBER.fullmatch(field) for field in fields)
    return "," if commas and not any(_POINT_NUMBER.fullmatch(field) for field in fields) else "."


def _with_points(line: str, delimiter: str) -> str:
    fields = [f.replace(",", ".") if _COMMA_NUMBER.fullmatch(f) else f for f in _fields(line, delimiter)]
    return (delimiter or " ").join(f'"{f}"' if delimiter and delimiter in f else f for f in fields)


# --- numbers ----------------------------------------------------------------------------------------------------


def _text_blocks(
    blocks: Iterable[list[str]], origin: str, delimiter: str, names: tuple[str, ...], kept: list[int]
) -> Iterator[Floats]:
    done, kept_names = 0, tuple(names[place] for place in kept)
    for lines in filter(None, blocks):  # nothing may be left beside the header
        values = _parse(lines, delimiter)
        if values is not None and values.shape == (len(lines), len(names)):
            values = values[:, kept]
        else:
            values = _parse_kept(lines, delimiter, len(names), kept) if len(kept) < len(names) else None
        if values is None:
            raise _explained(lines, done, origin, delimiter, names, kept)
        yield require_finite(values, kept_names, done, origin)
        done += len(lines)


def _parse(lines: list[str], delimiter: str) -> Floats | None:
    with contextlib.suppress(ValueError):  # the caller looks for the first bad field and names it
        return np.loadtxt(lines, delimiter=delimiter or None, comments=None, quotechar='"', ndmin=2)
    return None


def _parse_kept(lines: list[str], delimiter: str, width: int, kept: list[int]) -> Floats | None:
    """For lines with text in a column that is left out."""
    rows = [_fields(line, delimiter) for line in lines]
    if any(len(row) != width for row in rows):
        return None
    values = [[number(row[place]) for place in kept] for row in rows]
    return None if any(None in row for row in values) else np.array(values, dtype=np.float64)


def _explained(
    lines: list[str], done: int, origin: str, delimiter: str, names: tuple[str, ...], kept: list[int]
) -> DataError:
    for row, line in enumerate(lines, done + 1):
        fields = _fields(line, delimiter)
        if len(fields) != len(names):
            return DataError(f"{origin}, row {row}: {len(fields)} fields instead of {len(names)}.")
        for column, text in ((place, fields[place]) for place in kept):
            if number(text) is None and text.strip().lower() not in {"nan", "inf", "-inf", "+inf", "infinity"}:
                where = f"{origin}, row {row}, column {column_name(names, column)}"
                if not text.strip():
                    return DataError(f"{where}: an empty field is not a number; write missing=impute to allow it.")
                return DataError(f"{where}: {text[:40]!r} is not a number; categories=onehot reads text columns.")
    return DataError(f"{origin}: rows {done + 1} to {done + len(lines)} cannot be read as numbers.")
