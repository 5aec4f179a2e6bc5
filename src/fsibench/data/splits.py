"""Which rows train and which rows test.

Splits are functions of a scheme, a row count and an index: split i uses the i-th draw of
`numpy.random.RandomState(1).permutation(n)`, the generator behind the index lists that the field reports on.
"""

from __future__ import annotations

import functools

import numpy as np

from fsibench.data.arrays import Rows
from fsibench.errors import DataError, UsageError, unknown

# scheme -> share of rows that train. `paper`: the 80/20 of the SIP paper; `standard`: the 90/10 that peers report on.
SPLIT_SHARES = {"paper": 0.8, "standard": 0.9}
# scheme -> number of rows that test. `large`: the SIP paper's rule for year and airline.
SPLIT_TEST_ROWS = {"large": 10_000}
SPLIT_SCHEMES = (*SPLIT_SHARES, *SPLIT_TEST_ROWS)
NUM_SPLITS = 20


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
