"""Tables, data sets, splits and standardisation: everything between a file and a method. No torch, no pandas.

Splits are functions of a scheme, a row count and an index: split i uses the i-th draw of
`numpy.random.RandomState(1).permutation(n)`, the generator behind the index lists that the field reports on.
"""

from __future__ import annotations

import abc
import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fsibench.errors import DataError, UsageError, unknown

Floats = npt.NDArray[np.floating[Any]]
Singles = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

# scheme -> share of rows that train. `paper`: the 80/20 of the SIP paper; `standard`: the 90/10 that peers report on.
SPLIT_SHARES = {"paper": 0.8, "standard": 0.9}
# scheme -> number of rows that test. `large`: the SIP paper's rule for year and airline.
SPLIT_TEST_ROWS = {"large": 10_000}
SPLIT_SCHEMES = (*SPLIT_SHARES, *SPLIT_TEST_ROWS)
NUM_SPLITS = 20

LARGE_TABLE_VALUES = 2_000_000  # beyond this many inputs a table is prepared on disk and memory-mapped
BLOCK_ROWS = 1 << 16  # rows handled at a time wherever a table may not fit in memory


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


def split_rows(num_rows: int, scheme: str, index: int) -> tuple[Rows, Rows]:
    """Row numbers (train, test) of split `index`; every row appears exactly once."""
    num_train = _num_train(num_rows, scheme)
    if not 0 <= index < NUM_SPLITS:
        raise UsageError(f"split {index} does not exist; splits are numbered 0 to {NUM_SPLITS - 1}.")
    order = _permutation(num_rows, index)
    return order[:num_train], order[num_train:]


def _num_train(num_rows: int, scheme: str) -> int:
    if scheme in SPLIT_SHARES:
        num_train = round(SPLIT_SHARES[scheme] * num_rows)
        if not 0 < num_train < num_rows:
            raise DataError(f"{num_rows} rows are too few to split; at least 5 are needed.")
        return num_train
    if scheme in SPLIT_TEST_ROWS:
        num_test = SPLIT_TEST_ROWS[scheme]
        if num_rows <= num_test:
            raise DataError(
                f"split scheme {scheme!r} tests on {num_test} rows, and the set has only {num_rows}; use 'standard'."
            )
        return num_rows - num_test
    raise unknown("split scheme", scheme, SPLIT_SCHEMES)


@functools.lru_cache(maxsize=2)
def _permutation(num_rows: int, index: int) -> Rows:
    """Draw number `index`, counted from 0; earlier draws must be made and thrown away to get there."""
    generator = np.random.RandomState(1)
    for _ in range(index):
        generator.permutation(num_rows)
    order = generator.permutation(num_rows).astype(np.int64, copy=False)
    order.flags.writeable = False  # shared by every caller through the cache
    return order


@dataclass(frozen=True)
class Standardiser:
    """Affine map learned on training rows only; constant columns are divided by 1."""

    x_mean: Floats
    x_scale: Floats
    y_mean: float
    y_scale: float

    @classmethod
    def of(cls, x: Floats, y: Floats, rows: Rows | None = None) -> Standardiser:
        """Mean and population standard deviation of the given rows (all of them if None)."""
        rows = np.arange(len(y)) if rows is None else rows
        x_mean, x_scale = _mean_and_scale(x, rows)
        y_mean, y_scale = _mean_and_scale(y[:, None], rows)
        return cls(x_mean, x_scale, float(y_mean[0]), float(y_scale[0]))

    def x(self, raw: Floats) -> Singles:
        return ((raw - self.x_mean) / self.x_scale).astype(np.float32)

    def y(self, raw: Floats) -> Singles:
        return ((raw - self.y_mean) / self.y_scale).astype(np.float32)


def _mean_and_scale(columns: Floats, rows: Rows) -> tuple[Floats, Floats]:
    """Two passes in blocks, so that a memory-mapped table never has to fit in memory."""
    mean = sum(block.sum(0, dtype=np.float64) for block in blocks_of(columns, rows)) / len(rows)
    variance = sum(((block - mean) ** 2).sum(0, dtype=np.float64) for block in blocks_of(columns, rows)) / len(rows)
    scale = np.sqrt(variance)  # population form, as the field does
    # Rounding leaves a constant column with a scale of about 1e-16 of its size instead of zero.
    constant = scale <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return mean, np.where(constant, 1.0, scale)


def blocks_of(values: Floats, rows: Rows) -> Iterator[Floats]:
    for start in range(0, len(rows), BLOCK_ROWS):
        yield values[rows[start : start + BLOCK_ROWS]]


@dataclass(frozen=True)
class Prepared:
    """What a cell needs: standardised rows to learn from, and test rows with their answers in original units."""

    train_x: Singles  # [N, D], a memory map for large tables
    train_y: Singles  # [N]
    test_x: Singles  # [M, D]
    test_y: Floats  # [M], float64, original units
    standardiser: Standardiser


def prepare(dataset: Dataset, scheme: str, index: int) -> Prepared:
    """Load, split and standardise; no test row has any part in the standardisation.

    Large tables come as memory maps of rows that were standardised once and kept in the cache folder.
    """
    if isinstance(dataset, TableDataset):
        table = dataset.table()
        if table.x.size > LARGE_TABLE_VALUES:
            from fsibench.sources import prepared  # the cache is needed by large tables only

            key = f"{dataset.fingerprint()[:32]}-{scheme}-{index}"
            return prepared.mapped(key, table, lambda: dataset.split_rows(len(table), scheme, index))
    split = dataset.split(scheme, index)
    standardiser = Standardiser.of(split.train_x, split.train_y)
    return Prepared(
        standardiser.x(split.train_x),
        standardiser.y(split.train_y),
        standardiser.x(split.test_x),
        np.asarray(split.test_y, dtype=np.float64),
        standardiser,
    )
