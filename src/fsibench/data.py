"""Tables, data sets, splits and standardisation: everything between a file and a method. No torch, no pandas.

Splits are functions of a scheme, a row count and an index: split i uses the i-th draw of
`numpy.random.RandomState(1).permutation(n)`, the generator behind the index lists that the field reports on.
"""

from __future__ import annotations

import abc
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fsibench.errors import UsageError, unknown

Floats = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.int64]

# scheme -> share of rows that train. `paper`: the 80/20 of the SIP paper; `standard`: the 90/10 that peers report on.
SPLIT_SCHEMES = {"paper": 0.8, "standard": 0.9}
NUM_SPLITS = 20


@dataclass(frozen=True)
class Table:
    """A regression table in original units: x [N, D], y [N], both float64, with their names."""

    x: Floats
    y: Floats
    columns: tuple[str, ...]
    target: str

    def fingerprint(self) -> str:
        """sha256 of names and values: equal tables, equal fingerprints, on every machine."""
        digest = hashlib.sha256()
        digest.update(repr((self.columns, self.target, self.x.shape)).encode())
        digest.update(np.ascontiguousarray(self.x, dtype="<f8").tobytes())
        digest.update(np.ascontiguousarray(self.y, dtype="<f8").tobytes())
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
    """What `fsibench list datasets` shows."""

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


def split_rows(num_rows: int, scheme: str, index: int) -> tuple[Rows, Rows]:
    """Row numbers (train, test) of split `index`; every row appears exactly once."""
    if scheme not in SPLIT_SCHEMES:
        raise unknown("split scheme", scheme, SPLIT_SCHEMES)
    if not 0 <= index < NUM_SPLITS:
        raise UsageError(f"split {index} does not exist; splits are numbered 0 to {NUM_SPLITS - 1}.")
    generator = np.random.RandomState(1)
    for _ in range(index):
        generator.permutation(num_rows)
    order = generator.permutation(num_rows)
    num_train = round(SPLIT_SCHEMES[scheme] * num_rows)
    if not 0 < num_train < num_rows:
        raise UsageError(f"{num_rows} rows are too few to split; at least 5 are needed.")
    return order[:num_train], order[num_train:]


def split_table(table: Table, scheme: str, index: int) -> Split:
    train, test = split_rows(len(table.y), scheme, index)
    return Split(table.x[train], table.y[train], table.x[test], table.y[test])


@dataclass(frozen=True)
class Standardiser:
    """Affine map learned on training rows only; constant columns are divided by 1."""

    x_mean: Floats
    x_scale: Floats
    y_mean: float
    y_scale: float

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Standardiser:
        y_mean, y_scale = _mean_and_scale(y[:, None])
        x_mean, x_scale = _mean_and_scale(x)
        return cls(x_mean, x_scale, float(y_mean[0]), float(y_scale[0]))

    def x(self, raw: Floats) -> npt.NDArray[np.float32]:
        return ((raw - self.x_mean) / self.x_scale).astype(np.float32)

    def y(self, raw: Floats) -> npt.NDArray[np.float32]:
        return ((raw - self.y_mean) / self.y_scale).astype(np.float32)


def _mean_and_scale(columns: Floats) -> tuple[Floats, Floats]:
    mean = columns.mean(0, dtype=np.float64)
    scale = columns.std(0, dtype=np.float64)  # population form, as the field does
    # Rounding leaves a constant column with a scale of about 1e-16 of its size instead of zero.
    constant = scale <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return mean, np.where(constant, 1.0, scale)
