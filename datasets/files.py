"""A table of the user's own: `file:path.csv?target=y`.

Text (.csv, .tsv, .txt, .data), .arff, .xlsx and .parquet; text and ARFF also as .gz, .bz2 or .zip. Every column but the
target is an input. Words after the question mark: those of `fsibench.data.sources.own`, and

    delimiter=;      or tab, or space; found out if it is not given
    decimal=,        found out if it is not given
    header=false     the file has no column names; they are c1, c2, ...
    sheet=NAME       of a spreadsheet
    member=NAME      of an archive with several files

A path with characters that mean something else in a reference can be written with percent signs (`%3F`, `%2C`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from fsibench.data import Description
from fsibench.data.sources.own import OwnTable, parse, split_reference
from fsibench.data.sources.reading import FORMATS, PACKINGS, format_of, read_table
from fsibench.errors import DataError, UsageError

PREFIX = "file:"
_DELIMITERS = {"tab": "\t", "space": ""}


@dataclass(frozen=True)
class FileTable(OwnTable):
    path: str = ""
    delimiter: str | None = None
    decimal: Literal[".", ","] | None = None
    header: bool = True
    sheet: str = ""
    member: str = ""
    categories: Literal["onehot", "ordinal", "refuse"] = field(default="refuse", kw_only=True)

    def place(self) -> tuple[Any, ...]:
        return (str(Path(self.path).resolve()), self.delimiter, self.decimal, self.header, self.sheet, self.member)

    def origin(self) -> str:
        """Another size or time of change makes another origin: an edited file is read again."""
        if not Path(self.path).is_file():
            return self.path
        status = Path(self.path).stat()
        return f"{self.path} ({status.st_size} bytes, {status.st_mtime_ns} ns)"

    def shown(self) -> str:
        return Path(self.path).name

    def convert(self, staging: Path) -> None:
        if not Path(self.path).is_file():
            raise DataError(f"there is no file {self.path}; write file:PATH?target=NAME.")
        layout = self.layout(
            delimiter=self.delimiter,
            decimal=self.decimal,
            header=self.header,
            sheet=self.sheet,
            members=(self.member,) if self.member else (),
        )
        with read_table(Path(self.path), layout) as raw:
            self.write(staging, raw, self.target, self.origin())

    def describe(self) -> Description:
        return dataclasses.replace(super().describe(), source="your own file", available=Path(self.path).is_file())

    def location(self) -> str | None:
        return self.path if Path(self.path).is_file() else None


def resolve(reference: str) -> FileTable:
    """`file:path.csv?target=y&drop=id` as a data set; the file is not opened yet."""
    text, query = split_reference(reference, PREFIX)
    path = Path(text).expanduser()
    if not path.exists():
        path = Path(unquote(text)).expanduser()
    extra = {word: word for word in ("delimiter", "decimal", "header", "sheet", "member")}
    table = parse(query, reference, FileTable, extra, path=str(path))
    kind, packing = format_of(path.name)
    if not kind and packing != ".zip":
        endings = f"{', '.join(FORMATS)}, also with {', '.join(PACKINGS)}"
        raise UsageError(f"cannot tell the format of {str(path)!r}; its name should end in {endings}.")
    if not table.target:
        raise UsageError(f"{reference!r} must name one target column: {PREFIX}{text}?target=NAME.")
    return _with_delimiter(table, reference, kind)


def _with_delimiter(table: FileTable, reference: str, kind: str) -> FileTable:
    given = table.delimiter if table.delimiter is not None else ("\t" if kind == ".tsv" else None)
    delimiter = _DELIMITERS.get(given, given) if given is not None else None
    if delimiter is not None and len(delimiter) > 1:
        raise UsageError(f"the delimiter in {reference!r} must be one character or the word tab or space.")
    return dataclasses.replace(table, delimiter=delimiter)
