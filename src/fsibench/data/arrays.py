"""Array types, and how much of a table is handled at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Singles = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

BLOCK_ROWS = 1 << 16  # rows handled at a time wherever a table may not fit in memory


def blocks_of(values: Floats, rows: Rows) -> Iterator[Floats]:
    for start in range(0, len(rows), BLOCK_ROWS):
        yield values[rows[start : start + BLOCK_ROWS]]
