"""Which rows train and which rows test.

Random schemes are functions of a row count and an index: split i uses the i-th draw of
`numpy.random.RandomState(1).permutation(n)`, which also made the published index lists. The others
look at the table: `twins` keeps equal rows together, `gap` cuts out the middle third of one input, and a table with a
time, group or fold column of its own is divided by that column.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from fsibench.data.arrays import Floats, Rows
from fsibench.errors import DataError, UsageError, unknown

# scheme -> share of rows that train. `paper`: the 80/20 of the SIP paper; `standard`: the 90/10 that peers report on;
# `twins`: as `standard`, but rows that are equal are never on both sides; `gap`: the outer thirds of one input.
SPLIT_SHARES = {"paper": 0.8, "standard": 0.9, "twins": 0.9, "gap": 2 / 3}
# scheme -> number of rows that test. `large`: the SIP paper's rule for year and airline.
SPLIT_TEST_ROWS = {"large": 10_000}
SPLIT_SCHEMES = (*SPLIT_SHARES, *SPLIT_TEST_ROWS)
NUM_SPLITS = 20
MOST_SPLITS = 10_000  # a larger number is taken for a typing error

_RANGE = re.compile(r"^\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?$")


def parse_splits(value: int | str) -> tuple[int, ...]:
    """`5`: the first five; `15-19`: those five; `3,7`: those two; `3-3`: the one."""
    text = str(value)
    if re.fullmatch(r"\s*[-+]?\d{1,5}\s*", text):
        if not 1 <= int(text) <= MOST_SPLITS:
            raise UsageError(f"the number of splits must be at least 1; got {text.strip()}.")
        return tuple(range(int(text)))
    parts = [_RANGE.match(part) for part in text.split(",")]
    if isinstance(value, bool) or not all(parts):
        raise UsageError(f"cannot read the splits {text!r}; write 5 (the first five), 15-19 or 3,7.")
    ranges = [(int(part[1]), int(part[2] or part[1])) for part in parts if part is not None]
    if any(last < first for first, last in ranges):
        raise UsageError(f"cannot read the splits {text!r}; a range goes from the smaller to the larger number.")
    return tuple(dict.fromkeys(index for first, last in ranges for index in range(first, last + 1)))


def show_splits(splits: tuple[int, ...]) -> str:
    """The spelling that `parse_splits` reads: `5`, `15-19`, `3,7`."""
    if splits == tuple(range(len(splits))):
        return str(len(splits))
    if len(splits) > 2 and splits == tuple(range(splits[0], splits[-1] + 1)):
        return f"{splits[0]}-{splits[-1]}"
    return ",".join(map(str, splits)) if len(splits) > 1 else f"{splits[0]}-{splits[0]}"


def require_split(index: int, count: int) -> None:
    if not 0 <= index < count:
        raise UsageError(f"split {index} does not exist; splits are numbered 0 to {count - 1}.")


# --- random rows ------------------------------------------------------------------------------------------------


def split_rows(num_rows: int, scheme: str, index: int) -> tuple[Rows, Rows]:
    """Row numbers (train, test) of split `index`; every row appears exactly once."""
    num_train = num_train_rows(num_rows, scheme)
    require_split(index, NUM_SPLITS)
    order = _permutation(num_rows, index)
    return order[:num_train], order[num_train:]


def num_train_rows(num_rows: int, scheme: str) -> int:
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


# --- rows that belong together, rows in a gap, rows in time ---------------------------------------------------------


def grouped_rows(groups: Rows, scheme: str, index: int) -> tuple[Rows, Rows]:
    """As `split_rows`, with whole groups: they come in the order in which the permutation first meets them.

    Where every group has one row, the split is the one of `split_rows`.
    """
    num_train = num_train_rows(len(groups), scheme)
    require_split(index, NUM_SPLITS)
    order = _permutation(len(groups), index)
    _, place, member, size = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    by_place = np.argsort(place)
    rank = np.empty_like(by_place)
    rank[by_place] = np.arange(len(by_place))  # of each group, by first appearance
    order = order[np.argsort(rank[member.reshape(-1)], kind="stable")]
    ends = np.cumsum(size[by_place])
    cut = ends[np.searchsorted(ends, num_train)]  # the first group boundary at or after the share
    if cut == len(groups):
        cut = ends[-2] if len(ends) > 1 else 0
    if cut == 0:
        raise DataError("all rows belong to one group, so that none is left to test on.")
    return order[:cut], order[cut:]


def gap_rows(column: Floats) -> tuple[Rows, Rows]:
    """The middle third of one input tests, the outer thirds train (Foong et al. 2019).

    Ties are broken as in the published lists, which were made with numpy's plain introsort. Its vectorised successor
    orders equal values otherwise, but is not used for long doubles.
    """
    order = np.argsort(np.asarray(column, dtype=np.longdouble), kind="quicksort").astype(np.int64)
    low, high = round(len(order) / 3), round(2 * len(order) / 3)
    if not 0 < low < high:
        raise DataError(f"{len(order)} rows are too few for a gap; at least 3 are needed.")
    return np.concatenate([order[:low], order[high:]]), order[low:high]


def num_time_splits(scheme: str) -> int:
    share = SPLIT_SHARES.get(scheme)
    return 1 if share is None else round(share / (1 - share))


def time_rows(times: Floats, scheme: str, index: int) -> tuple[Rows, Rows]:
    """Split 0 tests on the latest rows and trains on all earlier ones; split i ends i test blocks earlier.

    Rows of one instant are never on both sides: the first instant of a test block belongs to it as a whole.
    """
    require_split(index, num_time_splits(scheme))
    order = np.argsort(times, kind="stable").astype(np.int64)
    num_test = len(times) - num_train_rows(len(times), scheme)
    ordered = times[order]
    high = len(order) - index * num_test
    low = high - num_test
    if index:
        high = int(np.searchsorted(ordered, ordered[high]))
    low = int(np.searchsorted(ordered, ordered[max(low, 0)]))
    if not 0 < low < high:
        raise DataError(f"split {index} by time has no rows to train or test on: too many rows share one instant.")
    return order[:low], order[low:high]


def fold_rows(folds: Floats, index: int) -> tuple[Rows, Rows]:
    """Split i tests on the rows of the i-th fold, in the order of the fold numbers; rows without a fold always train."""
    values = np.unique(folds[~np.isnan(folds)])
    require_split(index, len(values))
    chosen = folds == values[index]
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
