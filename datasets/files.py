"""A table of the user's own: `file:path.csv?target=y`.

CSV (also gzipped) with a header line, or Parquet. Every column but the target is an input. Further words after the
question mark, joined by `&`: `drop=NAME` (may be repeated) and `delimiter=;` (or `tab`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fsibench.data import Description, Table, TableDataset
from fsibench.data.sources import cache, lookup
from fsibench.data.sources.columns import inputs_and_target
from fsibench.data.sources.reading import read_table
from fsibench.data.sources.reference import query_words
from fsibench.errors import DataError, UsageError

PREFIX = "file:"
ENDINGS = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".pq")


@dataclass(frozen=True)
class FileTable(TableDataset):
    path: str = ""
    target: str = ""
    drop: tuple[str, ...] = ()
    delimiter: str = ","

    def describe(self) -> Description:
        record = cache.record_of(self._key)
        known = record is not None and record["origin"] == self._origin
        return Description(
            name=self.name,
            rows=record["rows"] if record is not None and known else 0,
            inputs=len(record["columns"]) if record is not None and known else 0,
            target=self.target,
            source="your own file",
            available=Path(self.path).is_file(),
            note="" if known else "not read yet",
        )

    def fingerprint(self) -> str:
        self.table()
        record = cache.record_of(self._key)
        assert record is not None, "the table was just read"
        return str(record["sha256"])

    def table(self) -> Table:
        if not Path(self.path).is_file():
            raise DataError(f"there is no file {self.path}; write file:PATH?target=NAME.")
        return lookup.converted(self._key, self._origin, self._convert)

    def verify(self) -> list[tuple[str, str]]:
        return lookup.verify_cached(self._key)

    def location(self) -> str | None:
        return self.path if Path(self.path).is_file() else None

    def _convert(self, staging: Path) -> None:
        with read_table(Path(self.path), delimiter=self.delimiter) as raw:
            columns, blocks = inputs_and_target(raw, self.target, self.drop, self.path)
            cache.write_table(staging, columns, self.target, blocks, self._origin)

    @property
    def _key(self) -> str:
        words = (str(Path(self.path).resolve()), self.target, self.drop, self.delimiter)
        return f"file-{hashlib.sha256(repr(words).encode()).hexdigest()[:24]}"

    @property
    def _origin(self) -> str:
        """Another size or time of change makes another origin: an edited file is read again."""
        if not Path(self.path).exists():
            return self.path
        status = Path(self.path).stat()
        return f"{self.path} ({status.st_size} bytes, {status.st_mtime_ns} ns)"


def resolve(reference: str) -> FileTable:
    """`file:path.csv?target=y&drop=id` as a data set; the file is not opened yet."""
    path, _, query = reference.removeprefix(PREFIX).partition("?")
    words = query_words(query, reference, {"target", "drop", "delimiter"})
    if not path.lower().endswith(ENDINGS):
        raise UsageError(f"cannot tell the format of {path!r}; its name should end in {', '.join(ENDINGS)}.")
    if len(words["target"]) != 1:
        raise UsageError(f"{reference!r} must name one target column: {PREFIX}{path}?target=NAME.")
    usual = "\t" if path.lower().endswith(".tsv") else ","
    delimiter = (words["delimiter"] or [usual])[-1].replace("tab", "\t")
    if len(delimiter) != 1:
        raise UsageError(f"the delimiter in {reference!r} must be one character or the word tab.")
    return FileTable(reference, str(Path(path).expanduser()), words["target"][0], tuple(words["drop"]), delimiter)
