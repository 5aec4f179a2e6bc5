"""From a split to what a cell learns from and is tested on: standardised on training rows only."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from fsibench.data.arrays import Floats, Rows, Singles, blocks_of
from fsibench.data.tables import Dataset, TableDataset
from fsibench.errors import DataError

logger = logging.getLogger(__name__)

LARGE_TABLE_VALUES = 2_000_000  # beyond this many inputs a table is prepared on disk and memory-mapped


@dataclass(frozen=True)
class Standardiser:
    """Affine map learned on training rows only; constant columns are divided by 1, and become 0 in test rows too."""

    x_mean: Floats
    x_scale: Floats
    y_mean: float
    y_scale: float
    x_constant: tuple[int, ...] = ()  # inputs that are constant in the training rows

    @classmethod
    def of(cls, x: Floats, y: Floats, rows: Rows | None = None) -> Standardiser:
        """Mean and population standard deviation of the given rows (all of them if None)."""
        rows = np.arange(len(y)) if rows is None else rows
        if len(rows) < 2:
            raise DataError(f"{len(rows)} training row is too few; a mean and a scale need at least 2.")
        x_mean, x_scale, x_constant = _mean_and_scale(x, rows)
        y_mean, y_scale, y_constant = _mean_and_scale(y[:, None], rows)
        if y_constant:
            raise DataError(f"the target is {y_mean[0]:g} in every training row, so that there is nothing to learn.")
        return cls(x_mean, x_scale, float(y_mean[0]), float(y_scale[0]), x_constant)

    def x(self, raw: Floats) -> Singles:
        standard = (raw - self.x_mean) / self.x_scale
        standard[..., list(self.x_constant)] = 0.0
        return _single(standard)

    def y(self, raw: Floats) -> Singles:
        return _single((raw - self.y_mean) / self.y_scale)


def warn_of_hidden(standardiser: Standardiser, test_x: Floats, where: str) -> None:
    """Warn of inputs that are constant in the training rows and something else in the test rows."""
    mean = standardiser.x_mean
    hidden = [column for column in standardiser.x_constant if (test_x[:, column] != mean[column]).any()]
    if hidden:
        shown = ", ".join(str(column + 1) for column in hidden)
        logger.warning("%s: input %s is constant in the training rows and not in the test rows; it counts as 0", where, shown)


def _single(values: Floats) -> Singles:
    with np.errstate(over="ignore"):
        single: Singles = values.astype(np.float32)
    if not np.isfinite(single).all():
        raise DataError(f"a value {np.nanmax(np.abs(values)):.3g} standard deviations from the mean overflows.")
    return single


def _mean_and_scale(columns: Floats, rows: Rows) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Mean, scale and which columns are constant: two passes in blocks, so that a memory-mapped table never has to fit in memory."""
    low = high = np.asarray(columns[rows[0]], dtype=np.float64)
    total = np.zeros(columns.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks_of(columns, rows):
            low, high = np.minimum(low, block.min(0)), np.maximum(high, block.max(0))
            total += block.sum(0, dtype=np.float64)
        mean = total / len(rows)
        parts = (((block - mean) ** 2).sum(0, dtype=np.float64) for block in blocks_of(columns, rows))
        scale = np.sqrt(sum(parts) / len(rows))  # population form, as the field does
    if not np.isfinite(scale).all():
        place = int(np.flatnonzero(~np.isfinite(scale))[0])
        size = max(abs(low[place]), abs(high[place]))
        raise DataError(f"column {place + 1} cannot be standardised: it has a value of size {size:.3g}.")
    constant = low == high
    return np.where(constant, low, mean), np.where(constant, 1.0, scale), tuple(np.flatnonzero(constant).tolist())


@dataclass(frozen=True)
class Prepared:
    """What a cell needs: standardised rows to learn from, and test rows with their answers in original units."""

    train_x: Singles  # [N, D], a memory map for large tables
    train_y: Singles  # [N]
    test_x: Singles  # [M, D]
    test_y: Floats  # [M], float64, original units
    standardiser: Standardiser
    test_rows: Rows | None = None  # [M], numbers of the test rows in the table, where they are known


def prepare(dataset: Dataset, scheme: str, index: int) -> Prepared:
    """Load, split, encode and standardise; no test row has any part in what is learned about the columns.

    Large tables come as memory maps of rows that were standardised once and kept in the cache folder.
    """
    if isinstance(dataset, TableDataset):
        table = dataset.rows()
        if table.x.size > LARGE_TABLE_VALUES:
            from fsibench.data.sources import memory_maps  # the cache is needed by large tables only

            key = f"{dataset.fingerprint()[:32]}-{scheme}-{index}"
            return memory_maps.mapped(
                key, table, lambda: dataset.split_rows(table, scheme, index), dataset.categories
            )
        split = dataset.split_of(table, scheme, index)
    else:
        split = dataset.split(scheme, index)
    standardiser = Standardiser.of(split.train_x, split.train_y)
    warn_of_hidden(standardiser, split.test_x, f"{dataset.name}, split {index}")
    return Prepared(
        standardiser.x(split.train_x),
        standardiser.y(split.train_y),
        standardiser.x(split.test_x),
        np.asarray(split.test_y, dtype=np.float64),
        standardiser,
        split.test_rows,
    )
