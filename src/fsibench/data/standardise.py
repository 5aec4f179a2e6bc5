"""From a split to what a cell learns from and is tested on: standardised on training rows only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsibench.data.arrays import Floats, Rows, Singles, blocks_of
from fsibench.data.tables import Dataset, TableDataset

LARGE_TABLE_VALUES = 2_000_000  # beyond this many inputs a table is prepared on disk and memory-mapped


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
            from fsibench.data.sources import memory_maps  # the cache is needed by large tables only

            key = f"{dataset.fingerprint()[:32]}-{scheme}-{index}"
            return memory_maps.mapped(key, table, lambda: dataset.split_rows(len(table), scheme, index))
    split = dataset.split(scheme, index)
    standardiser = Standardiser.of(split.train_x, split.train_y)
    return Prepared(
        standardiser.x(split.train_x),
        standardiser.y(split.train_y),
        standardiser.x(split.test_x),
        np.asarray(split.test_y, dtype=np.float64),
        standardiser,
    )
