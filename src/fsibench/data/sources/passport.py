"""The passport of a data set: what its table must look like, where it may come from, what may be done with it.

A passport is a small TOML file. A table that does not match it is refused, with a sentence that names what differs.
"""

from __future__ import annotations

import functools
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data import BLOCK_ROWS, Floats, Table
from fsibench.data.sources.raw import Layout
from fsibench.errors import DataError

BEGINNING_ROWS = 5
MARK_LENGTH = 8  # hex digits of a column's hash: enough to name the column that differs, short enough to read


@dataclass(frozen=True)
class Source:
    """One remote place. `kind` is "openml" (`id`, `target`) or "uci" (`path`, and how to read what is there)."""

    kind: str
    id: int = 0
    target: str = ""  # the target's name in that place
    path: str = ""  # below the archive's address
    sha256: str = ""  # of the downloaded file, where it is known
    members: tuple[str, ...] = ()  # the way to the table through archives inside archives
    sheet: str = ""
    delimiter: str = ""  # empty: white space
    header: bool = True
    drop: tuple[str, ...] = ()  # columns that must not stay among the inputs, such as a second target
    target_column: int = -1  # of a file, counted from 0; -1 is the last
    drop_columns: tuple[int, ...] = ()  # likewise

    def describe(self) -> str:
        return f"OpenML {self.id}" if self.kind == "openml" else "UCI archive"


@dataclass(frozen=True)
class Passport:
    name: str
    title: str
    rows: int
    columns: tuple[str, ...]
    target: str
    target_mean: float | None = None  # None: the full table was never at hand when the passport was written
    target_sd: float | None = None
    sha256: str | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # nominal inputs and their labels, by alphabet
    missing: bool = False  # whether values are missing; they are imputed
    marks: tuple[str, ...] = ()  # short hash of each column, target last
    begins: str = ""  # without a sha256: short hash of the first rows, where at least those are known
    variants: Mapping[str, str] = field(default_factory=dict)  # sha256 of near copies in circulation, and what they are
    sources: tuple[Source, ...] = ()
    suite: str = ""  # "development": for choosing defaults, in no reported table
    twins: int | None = None  # rows that repeat another
    twin_share: float | None = None  # of test rows with an equal row in training, mean over the splits of `standard`
    licence: str = ""
    citation: str = ""
    note: str = ""
    ethics: str = ""
    recipe: str = ""  # for tables without a source of their own: how to make the file for the mirror folder
    official_train_rows: int | None = None  # where the provider fixed a split: the first rows that train

    @classmethod
    def read(cls, path: Path) -> Passport:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
        sources = tuple(Source(**_tuples(source)) for source in record.pop("source", ()))
        levels = _tuples(record.pop("levels", {}))
        return cls(name=path.stem, sources=sources, levels=levels, **_tuples(record))

    @property
    def layout(self) -> Layout:
        """What a file of this table may hold beside finite numbers."""
        return Layout(label_columns=tuple(self.levels), gaps=self.missing)

    def differences(self, table: Table) -> list[str]:
        """What is wrong with a table, in words; empty if nothing is."""
        found = []
        if len(table) != self.rows:
            found.append(f"{len(table)} rows instead of {self.rows}")
        if table.columns != self.columns:
            found.append(f"columns {', '.join(table.columns)} instead of {', '.join(self.columns)}")
        if table.target != self.target:
            found.append(f"target {table.target!r} instead of {self.target!r}")
        if dict(table.levels) != dict(self.levels):
            found.append("other labels")
        if not found and self.sha256 is not None and table.fingerprint() != self.sha256:
            found += self._different_values(table)
        if not found and self.begins and self.begins != beginning(table):
            found.append(f"its first {BEGINNING_ROWS} rows are other ones")
        return found

    def _different_values(self, table: Table) -> list[str]:
        names = (*self.columns, self.target)
        wrong = [name for name, old, new in zip(names, self.marks, marks(table), strict=True) if old != new]
        found = [f"other values in {', '.join(wrong)}"]
        if self.target in wrong:
            mean, sd = float(np.mean(table.y)), float(np.std(table.y))
            found.append(f"target mean {mean:.6g}, sd {sd:.6g} instead of {self.target_mean}, {self.target_sd}")
        return found

    def check(self, table: Table, origin: str) -> None:
        """Raise a DataError that names what differs."""
        found = self.differences(table)
        if found:
            raise DataError(f"{origin} is not the data set {self.name!r}: {'; '.join(found)}.")


@functools.cache
def passports(folder: Path) -> Mapping[str, Passport]:
    """Every passport in a folder, by name."""
    return {path.stem: Passport.read(path) for path in sorted(folder.glob("*.toml"))}


def marks(table: Table) -> tuple[str, ...]:
    """Short hash of each column, target last."""
    columns = [table.x[:, column] for column in range(table.x.shape[1])]
    return tuple(_mark(column) for column in [*columns, table.y])


def beginning(table: Table) -> str:
    """Short hash of the first rows."""
    return _mark(np.column_stack([table.x[:BEGINNING_ROWS], table.y[:BEGINNING_ROWS]]))


def _mark(values: Floats) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(values), BLOCK_ROWS):
        digest.update(np.ascontiguousarray(values[start : start + BLOCK_ROWS], dtype="<f8").tobytes())
    return digest.hexdigest()[:MARK_LENGTH]


def _tuples(record: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
