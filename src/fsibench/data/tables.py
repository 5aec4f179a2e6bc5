"""Tables and data sets: everything between a file and a split. No torch, no pandas."""

from __future__ import annotations

import abc
import hashlib
from dataclasses import dataclass

import numpy as np

from fsibench.data.arrays import BLOCK_ROWS, Floats, Rows
from fsibench.data.splits import split_rows


@dataclass(frozen=True)
class Table:
    """A regression table in original units: x [N, D], y [N], float64, possibly memory-mapped, with their names."""

    x: Floats
    y: Floats
    columns: tuple[str, ...]
    target: str

    def __len__(self) -> int:
        return len(self.y)

    def fingerprint(self) -> str:
        """sha256 of names and values: equal tables, equal fingerprints, on every machine."""
        digest = hashlib.sha256(repr((self.columns, self.target, self.x.shape)).encode())
        for values in (self.x, self.y):
            for start in range(0, len(values), BLOCK_ROWS):
                digest.update(np.ascontiguousarray(values[start : start + BLOCK_ROWS], dtype="<f8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Split:
    """One train/test division in original units."""

    train_x: Floats
    train_y: Floats
    test_x: Floats
    test_y: Floats


@dataclass(frozen=True)
class Description:
    """What `fsibench list datasets` shows: `source` is where the data would come from, `available` if it is here."""

    name: str
    rows: int
    inputs: int
    target: str
    source: str
    available: bool
    licence: str = ""
    citation: str = ""
    note: str = ""


@dataclass(frozen=True)
class Dataset(abc.ABC):
    """A named data set. Subclasses are frozen dataclasses; further fields are options (`bimodal[num_train=500]`)."""

    name: str

    @abc.abstractmethod
    def describe(self) -> Description:
        """Rows, inputs and provenance, without loading or downloading anything."""

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Identity of the data, part of every cell's identity; cheap for known sets."""

    @abc.abstractmethod
    def split(self, scheme: str, index: int) -> Split:
        """The index-th train/test division under a scheme of `SPLIT_SCHEMES`."""

    def fetch(self) -> None:  # noqa: B027 (nothing to do unless the data lie elsewhere)
        """Bring the data onto this machine; a DataError says how to help if that cannot be done."""

    def verify(self) -> list[tuple[str, str]]:
        """Each copy on this machine, every value checked: (where it is, what is wrong or nothing)."""
        return []

    def location(self) -> str | None:
        """The file or folder that would be read; None if there is none on this machine."""
        return self.describe().source


@dataclass(frozen=True)
class TableDataset(Dataset):
    """A data set that is one table; a split is a choice of rows."""

    @abc.abstractmethod
    def table(self) -> Table:
        """The verified table."""

    def split_rows(self, num_rows: int, scheme: str, index: int) -> tuple[Rows, Rows]:
        """Row numbers (train, test)."""
        return split_rows(num_rows, scheme, index)

    def split(self, scheme: str, index: int) -> Split:
        table = self.table()
        train, test = self.split_rows(len(table), scheme, index)
        return Split(table.x[train], table.y[train], table.x[test], table.y[test])

    def fetch(self) -> None:
        self.table()
