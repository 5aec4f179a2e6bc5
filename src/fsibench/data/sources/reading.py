"""Files to numbers: delimited text, Parquet, spreadsheets, archives; in blocks, with an error that says what and where.

Nothing here trusts the file: text in numeric columns, missing and infinite values, ragged lines, repeated names,
binary garbage, archives that expand without end or reach outside themselves are refused in one sentence.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np

from fsibench.data import BLOCK_ROWS, Floats
from fsibench.errors import DataError

BLOCK_BYTES = 1 << 22  # of text parsed at a time
LONGEST_LINE = 1 << 20
LARGEST_TABLE_BYTES = 1 << 36  # as float64; beyond it a Parquet header is a bomb or a mistake
# Tables of numbers pack to a half or a fiftieth; bombs to a thousandth. Small files may pack as they like.
LARGEST_EXPANSION = 200
FREE_EXPANSION_BYTES = 1 << 26

# What the standard library raises on damaged archives, all of it seen: wrong versions and methods, passwords, seeks
# before the beginning, names that are not text, members that are not there.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ElementTree.ParseError),
    *(EOFError, OSError, ValueError, LookupError, NotImplementedError, RuntimeError),
)


@dataclass(frozen=True)
class Raw:
    """Columns as found: their names (empty if the file has none) and float64 blocks [n, C], finite."""

    names: tuple[str, ...]
    blocks: Iterator[Floats]


@contextlib.contextmanager
def read_table(
    path: Path, *, delimiter: str = ",", header: bool = True, members: Sequence[str] = (), sheet: str = ""
) -> Iterator[Raw]:
    """The table in a file, by the ending of its name (or of the last archive member's name)."""
    last = members[-1] if members else path.name
    with contextlib.ExitStack() as stack:
        if last.endswith((".parquet", ".pq")):
            yield read_parquet(path)
            return
        stream: IO[bytes] = stack.enter_context(_open(path))
        for member in members:
            stream = stack.enter_context(open_member(stream, member, path.name))
        if last.endswith(".xlsx"):
            names, values = read_xlsx(stream.read(), sheet, header=header)
            yield Raw(names, iter([require_finite(values, names, 0, path.name)]))
            return
        if last.endswith(".gz"):
            stream = _guarded(gzip.GzipFile(fileobj=stream), path.stat().st_size, path.name)
        yield read_text(stream, path.name, delimiter=delimiter, header=header)


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


# --- archives ---------------------------------------------------------------------------------------------------


def open_member(archive: IO[bytes], member: str, origin: str) -> IO[bytes]:
    """One member of a zip archive as a stream; the archive is never unpacked to disk."""
    try:
        opened = zipfile.ZipFile(archive)
        names = opened.namelist()
    except _DAMAGE as error:
        raise _damaged(origin, error) from error
    for name in names:
        if _escapes(name):
            raise DataError(f"{origin} is refused: its member {name!r} would be written outside the archive's folder.")
    if member not in names:
        raise DataError(f"{origin} has no member {member!r}; it holds {', '.join(names[:10])}.")
    try:
        stream = opened.open(member)
    except _DAMAGE as error:
        raise _damaged(origin, error) from error
    guarded = _guarded(stream, opened.getinfo(member).compress_size, origin)
    return io.BytesIO(guarded.read()) if member.endswith((".zip", ".xlsx")) else guarded  # these are read by seeking


def _damaged(origin: str, error: Exception) -> DataError:
    return DataError(f"{origin} is damaged or not what its name says: {_first_line(error)}.")


def _escapes(name: str) -> bool:
    parts = PurePosixPath(name).parts + PureWindowsPath(name).parts
    return ".." in parts or PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).anchor)


class _Expanding(io.RawIOBase):
    """Counts what comes out of a decompressor and stops at an expansion that no table of numbers has."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, packed_bytes: int, origin: str) -> None:
        self._stream, self._origin = stream, origin
        self._allowed = max(FREE_EXPANSION_BYTES, LARGEST_EXPANSION * packed_bytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self._stream.read(len(buffer))
        except _DAMAGE as error:
            raise _damaged(self._origin, error) from error
        self._allowed -= len(chunk)
        if self._allowed < 0:
            raise DataError(f"{self._origin} is refused: it expands to more than {LARGEST_EXPANSION} times its size.")
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _guarded(stream: IO[bytes] | gzip.GzipFile, packed_bytes: int, origin: str) -> IO[bytes]:
    return io.BufferedReader(_Expanding(stream, packed_bytes, origin), BLOCK_BYTES)


# --- delimited text ---------------------------------------------------------------------------------------------


def read_text(stream: IO[bytes], origin: str, *, delimiter: str = ",", header: bool = True) -> Raw:
    """Numbers in lines; an empty delimiter means white space."""
    lines = filter(None, _lines(stream, origin))
    if not header:
        return Raw((), _text_blocks(lines, origin, delimiter, ()))
    first, *rest = next(lines, [""])
    names = _header(first, origin, delimiter)
    return Raw(names, _text_blocks(itertools.chain([rest], lines), origin, delimiter, names))


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


def _header(line: str, origin: str, delimiter: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in _fields(line, delimiter))
    if not line.strip():
        raise DataError(f"{origin} is empty; its first line should name the columns.")
    if len(names) == 1:
        other = next((mark for mark in ",;\t|" if mark != delimiter and mark in line), None)
        if other is not None:
            found = f"has one column when split at {delimiter!r}; its delimiter seems to be {other!r}"
            raise DataError(f"{origin} {found}.")
    return require_unique(names, origin)


def require_unique(names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{origin} has more than one column named {', '.join(map(repr, repeated))}.")
    return names


def _fields(line: str, delimiter: str) -> list[str]:
    if not delimiter:
        return line.split()
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [""])
    except csv.Error:  # a stray carriage return, a field without end: one field, and the caller sees too few
        return [line]


def _text_blocks(
    blocks: Iterable[list[str]], origin: str, delimiter: str, names: tuple[str, ...]
) -> Iterator[Floats]:
    done, width = 0, len(names)
    for lines in filter(None, blocks):  # nothing may be left beside the header
        width = width or len(_fields(lines[0], delimiter))
        values = _parse(lines, delimiter)
        if values is None or values.shape != (len(lines), width):
            raise _explained(lines, done, origin, delimiter, names, width)
        yield require_finite(values, names, done, origin)
        done += len(lines)


def _parse(lines: list[str], delimiter: str) -> Floats | None:
    try:
        return np.loadtxt(lines, delimiter=delimiter or None, comments=None, quotechar='"', ndmin=2)
    except ValueError:
        return None  # the caller looks for the first bad field and names it


def _explained(
    lines: list[str], done: int, origin: str, delimiter: str, names: tuple[str, ...], width: int
) -> DataError:
    for row, line in enumerate(lines, done + 1):
        fields = _fields(line, delimiter)
        if len(fields) != width:
            return DataError(f"{origin}, row {row}: {len(fields)} fields instead of {width}.")
        for column, text in enumerate(fields):
            try:
                float(text)
            except ValueError:
                shown = repr(text[:40]) if text.strip() else "an empty field"
                return DataError(f"{origin}, row {row}, column {_name(names, column)}: {shown} is not a number.")
    return DataError(f"{origin}: rows {done + 1} to {done + len(lines)} cannot be read as numbers.")


def _name(names: tuple[str, ...], column: int) -> str:
    return repr(names[column]) if names else str(column + 1)


def require_finite(values: Floats, names: tuple[str, ...], done: int, origin: str) -> Floats:
    """`values` unchanged; or an error that names the first place that is not a finite number."""
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        where = f"{origin}, row {done + row + 1}, column {_name(names, column)}"
        raise DataError(f"{where}: {values[row, column]} is not a finite number.")
    return values


# --- Parquet ----------------------------------------------------------------------------------------------------


def read_parquet(path: Path) -> Raw:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        schema = file.schema_arrow
        names = tuple(schema.names)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is not a readable Parquet file: {_first_line(error)}.") from error
    require_unique(names, path.name)
    if file.metadata.num_rows * len(names) * 8 > LARGEST_TABLE_BYTES:
        raise DataError(f"{path.name} is refused: it claims {file.metadata.num_rows} rows of {len(names)} columns.")
    for column in schema:
        kind = pyarrow.types
        if not (kind.is_integer(column.type) or kind.is_floating(column.type) or kind.is_boolean(column.type)):
            raise DataError(f"{path.name}, column {column.name!r}: {column.type} values are not numbers.")
    return Raw(names, _parquet_blocks(file, names, path.name))


def _parquet_blocks(file: Any, names: tuple[str, ...], origin: str) -> Iterator[Floats]:
    import pyarrow

    done = 0
    try:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, use_threads=False):
            columns = [_as_float(batch.column(index)) for index in range(len(names))]
            yield require_finite(np.stack(columns, axis=1), names, done, origin)
            done += len(batch)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{origin} is a damaged Parquet file: {_first_line(error)}.") from error


def _as_float(column: Any) -> Floats:
    values: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)  # nulls become nan
    return values


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


# --- spreadsheets -----------------------------------------------------------------------------------------------

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_PACKAGE = "{http://schemas.openxmlformats.org/package/2006/relationships}"


def read_xlsx(content: bytes, sheet: str, *, header: bool) -> tuple[tuple[str, ...], Floats]:
    """Names and numbers of one sheet, by its name (the first sheet if empty); blank rows are left out.

    An .xlsx file is a zip archive of XML, and the archive's tables need no more of it than this.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            texts = _shared_texts(book)
            rows = [row for row in _sheet_rows(book, _sheet_path(book, sheet), texts) if any(row)]
    except _DAMAGE as error:
        raise _damaged("the spreadsheet", error) from error
    if not rows:
        raise DataError(f"the spreadsheet's sheet {sheet!r} is empty.")
    names = tuple(rows.pop(0)) if header else ()
    try:
        values = np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64).reshape(len(rows), -1)
    except ValueError as error:
        raise DataError(f"the spreadsheet's sheet {sheet!r} is not a full table of numbers: {error}.") from None
    if names and values.shape[1] != len(names):
        raise DataError(f"the spreadsheet's sheet {sheet!r} has {len(names)} names for {values.shape[1]} columns.")
    return names, values


def _xml(book: zipfile.ZipFile, path: str) -> ElementTree.Element:
    with book.open(path) as stream:
        packed = book.getinfo(path).compress_size
        return ElementTree.fromstring(_guarded(stream, packed, path).read())


def _shared_texts(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    items = _xml(book, "xl/sharedStrings.xml").iter(f"{_MAIN}si")
    return ["".join(part.text or "" for part in item.iter(f"{_MAIN}t")) for item in items]


def _sheet_path(book: zipfile.ZipFile, sheet: str) -> str:
    sheets = {item.get("name"): item.get(_LINK) for item in _xml(book, "xl/workbook.xml").iter(f"{_MAIN}sheet")}
    if sheet and sheet not in sheets:
        raise DataError(f"the spreadsheet has no sheet {sheet!r}; it has {', '.join(map(str, sheets))}.")
    link = sheets[sheet] if sheet else next(iter(sheets.values()), None)
    links = _xml(book, "xl/_rels/workbook.xml.rels").iter(f"{_PACKAGE}Relationship")
    targets = {item.get("Id"): str(item.get("Target")) for item in links}
    target = targets[link]
    return target.lstrip("/") if target.startswith("/") else f"xl/{target}"


def _sheet_rows(book: zipfile.ZipFile, path: str, texts: list[str]) -> Iterator[list[str]]:
    for row in _xml(book, path).iter(f"{_MAIN}row"):
        cells = [_cell(cell, texts) for cell in row.iter(f"{_MAIN}c")]
        while cells and not cells[-1]:  # formatted but empty cells at the right edge
            cells.pop()
        yield cells


def _cell(cell: ElementTree.Element, texts: list[str]) -> str:
    value = cell.findtext(f"{_MAIN}v") or ""
    return texts[int(value)] if cell.get("t") == "s" and value else value
