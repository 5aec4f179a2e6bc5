"""Tables and data sets: everything between a file and a split. No torch, no pandas."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from fsibench.data import splits
from fsibench.data.arrays import BLOCK_ROWS, Floats, Rows
from fsibench.data.encode import Encoder
from fsibench.errors import DataError, FsibenchError, UsageError, told

if TYPE_CHECKING:
    from fsibench.references import Reference


@dataclass(frozen=True)
class Table:
    """A regression table in original units: x [N, D], y [N], float64, possibly memory-mapped, with their names.

    A nominal column of x holds the place of each label in `levels[column]`; a missing value is nan. `keys` are columns
    that decide about splits and are no inputs: `time`, `group` or `fold`, each [N].
    """

    x: Floats
    y: Floats
    columns: tuple[str, ...]
    target: str
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values, dimensions in (("x", self.x, 2), ("y", self.y, 1), *((k, v, 1) for k, v in self.keys.items())):
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
                kind = f"{values.dtype} values" if isinstance(values, np.ndarray) else type(values).__name__
                raise DataError(f"{name} of a Table must be a numpy array of numbers; got {kind}.")
            if values.ndim != dimensions:
                expected = "[rows, inputs]" if dimensions == 2 else "[rows]"
                raise DataError(f"{name} of a Table must have the shape {expected}; got {values.shape}.")
            if len(values) != len(self.y):
                raise DataError(f"{name} of a Table has {len(values)} rows and y has {len(self.y)}.")
        if len(self.columns) != self.x.shape[1]:
            raise DataError(f"a Table names {len(self.columns)} columns {self.columns}, but x has {self.x.shape[1]}.")

    def __len__(self) -> int:
        return len(self.y)

    def fingerprint(self) -> str:
        """sha256 of names and values: equal tables, equal fingerprints, on every machine."""
        digest = hashlib.sha256(repr((self.columns, self.target, self.x.shape)).encode())
        if self.levels or self.keys:
            digest.update(repr((sorted(self.levels.items()), sorted(self.keys))).encode())
        for values in (self.x, self.y, *(self.keys[name] for name in sorted(self.keys))):
            for start in range(0, len(values), BLOCK_ROWS):
                digest.update(np.ascontiguousarray(values[start : start + BLOCK_ROWS], dtype="<f8").tobytes())
        return digest.hexdigest()

    def rows(self, chosen: Rows) -> Table:
        keys = {name: values[chosen] for name, values in self.keys.items()}
        return dataclasses.replace(self, x=self.x[chosen], y=self.y[chosen], keys=keys)


def twin_groups(table: Table) -> Rows:
    """A number for each row; rows that are equal in all inputs and the target share it."""
    values = np.column_stack([table.x, table.y]) + 0.0  # no negative zeros
    packed = np.ascontiguousarray(values).view([("", f"V{8 * values.shape[1]}")]).reshape(-1)
    return np.unique(packed, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class Split:
    """One train/test division in original units; nominal columns and missing values are encoded."""

    train_x: Floats
    train_y: Floats
    test_x: Floats
    test_y: Floats
    test_rows: Rows | None = None  # their numbers in the table, where there is one


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
    suite: str = ""
    twins: int | None = None  # rows that repeat another, where they were counted
    twin_share: float | None = None  # of test rows (90/10) with an equal row in training, where it is known


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

    def num_splits(self, scheme: str) -> int:
        """How many different splits there are under a scheme."""
        return splits.NUM_SPLITS

    def reference(self) -> Reference | None:
        """The exact posterior at the test rows of its one split, where it is known."""
        return None

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
    """A data set that is one table; a split is a choice of rows. These options are common to all of them.

    dedupe      keep one of each set of equal rows
    train_rows  train on this many rows of a split at most, the same first ones for every larger number
    categories  how nominal columns become numbers: `onehot` or `ordinal`
    splits      a JSON file with splits of one's own: a list of lists of test rows
    """

    dedupe: bool = field(default=False, kw_only=True)
    train_rows: int | None = field(default=None, kw_only=True)
    categories: Literal["onehot", "ordinal", "refuse"] = field(default="onehot", kw_only=True)
    splits: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.train_rows is not None and self.train_rows < 2:
            raise ValueError(f"train_rows must be at least 2; got {self.train_rows}")

    @abc.abstractmethod
    def table(self) -> Table:
        """The verified table as it is stored."""

    def content_hash(self) -> str:
        """The fingerprint of the stored table, from a record where there is one."""
        return self._table().fingerprint()

    def _table(self) -> Table:
        """What `table` gives, if it is one."""
        try:
            table = self.table()
        except Exception as error:
            if isinstance(error, FsibenchError) or type(self).__module__.startswith("fsibench."):
                raise
            raise DataError(f"`table` of {self.name} failed: {told(error)}.") from error
        if not isinstance(table, Table):
            raise DataError(f"`table` of {self.name} returned an object of type {type(table).__name__}; it must return a Table.")
        if not np.isfinite(table.y).all():
            row = int(np.flatnonzero(~np.isfinite(table.y))[0])
            raise DataError(f"the target of {self.name} is {table.y[row]} in row {row}; leave out rows without an answer.")
        return table

    def fingerprint(self) -> str:
        """The stored table, and every option that changes what a split holds."""
        choices = (self.dedupe, self.train_rows, self.categories == "ordinal", self.own_splits())
        if choices == (False, None, False, ()):
            return self.content_hash()
        return hashlib.sha256(f"{self.content_hash()} {choices}".encode()).hexdigest()

    def rows(self) -> Table:
        """The table whose rows are divided: without twins if `dedupe`."""
        table = self._table()
        if not self.dedupe:
            return table
        return table.rows(np.sort(np.unique(twin_groups(table), return_index=True)[1]))

    def num_splits(self, scheme: str) -> int:
        if own := self.own_splits():
            return len(own)
        if scheme == "gap":
            return self.describe().inputs or len(self.table().columns)
        return splits.NUM_SPLITS

    def split_rows(self, table: Table, scheme: str, index: int) -> tuple[Rows, Rows]:
        """Row numbers (train, test): by a file or a column of the table's own if it has one, else by the scheme."""
        train, test = self._divided(table, scheme, index)
        if self.train_rows is None:
            return train, test
        if self.train_rows > len(train):
            raise DataError(f"{self.name} has {len(train)} training rows in a split, not {self.train_rows}.")
        return np.random.RandomState(1).permutation(train)[: self.train_rows], test

    def _divided(self, table: Table, scheme: str, index: int) -> tuple[Rows, Rows]:
        if own := self.own_splits():
            return _listed_rows(own, len(table), index, self.splits or self.name)
        if "fold" in table.keys:
            return splits.fold_rows(table.keys["fold"], index)
        if "time" in table.keys:
            return splits.time_rows(table.keys["time"], scheme, index)
        if "group" in table.keys:
            return splits.grouped_rows(table.keys["group"].astype(np.int64), scheme, index)
        if scheme == "twins":
            return splits.grouped_rows(twin_groups(table), scheme, index)
        if scheme == "gap":
            splits.require_split(index, table.x.shape[1])
            return splits.gap_rows(table.x[:, index])
        return splits.split_rows(len(table), scheme, index)

    def own_splits(self) -> Sequence[Sequence[int]]:
        """Test rows of each split, where a file or a provider lists them; empty otherwise."""
        if not self.splits:
            return ()
        if not Path(self.splits).is_file():
            raise DataError(f"there is no file {self.splits} with the splits of {self.name}.")
        return split_file(Path(self.splits))

    def split(self, scheme: str, index: int) -> Split:
        return self.split_of(self.rows(), scheme, index)

    def split_of(self, table: Table, scheme: str, index: int) -> Split:
        """A split of a table that is loaded already; `table` is what `rows` gives."""
        train, test = self.split_rows(table, scheme, index)
        encode = Encoder.of(table.x, table.columns, table.levels, train, self.categories)
        return Split(encode(table.x[train]), table.y[train], encode(table.x[test]), table.y[test], test)

    def fetch(self) -> None:
        self._table()


def split_file(path: Path) -> Sequence[Sequence[int]]:
    """The lists of test rows in a JSON file."""
    return _split_file(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _split_file(path: Path, _changed: int) -> tuple[tuple[int, ...], ...]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        lists = tuple(tuple(rows) for rows in content)
        if not lists or not all(type(row) is int for rows in lists for row in rows):
            raise ValueError
    except (OSError, ValueError, TypeError):
        raise UsageError(f"{path} is not a JSON list of lists of test rows, such as [[0, 3], [1, 2]].") from None
    return lists


def _listed_rows(lists: Sequence[Sequence[int]], num_rows: int, index: int, origin: str) -> tuple[Rows, Rows]:
    splits.require_split(index, len(lists))
    test = np.array(lists[index], dtype=np.int64)
    if len(test) == 0 or test.min() < 0 or test.max() >= num_rows or len(np.unique(test)) in {num_rows, 0}:
        raise DataError(f"{origin}, split {index}: test rows must be some, but not all, of 0 to {num_rows - 1}.")
    if len(np.unique(test)) != len(test):
        raise DataError(f"{origin}, split {index}: a test row is listed twice.")
    return np.setdiff1d(np.arange(num_rows), test), test
