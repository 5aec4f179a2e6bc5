"""What a reader returns, names and blocks of numbers, and what it is told, the layout of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fsibench.data import Floats
from fsibench.errors import DataError

# Stricter than `float`, which also accepts 1_0 and "infinity".
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TRUTH = {"true": 1.0, "false": 0.0}
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class Raw:
    """Columns as found: their names (empty if the file has none) and float64 blocks [n, C].

    A nominal column holds places in `levels[name]`, its labels in order; a missing value is nan, and both occur only if
    the layout allows them. `index` names columns that the writer marked as row names, `nominal` those that it declared
    to be categories or truth values: labels even where they are numbers. Columns that the layout drops are not there.
    """

    names: tuple[str, ...]
    blocks: Iterator[Floats]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    index: tuple[str, ...] = ()
    nominal: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Layout:
    """How to read a file, and what beside finite numbers it may hold."""

    delimiter: str | None = ","  # empty: white space; None: to be found out
    decimal: str | None = "."  # None: to be found out
    header: bool = True
    members: tuple[str, ...] = ()  # the way to the table through archives inside archives
    sheet: str = ""
    drop: tuple[str, ...] = ()  # columns that are not read
    labels: bool = False  # text columns are nominal
    label_columns: tuple[str, ...] = ()  # these may be, whatever the others are
    nominal: tuple[str, ...] = ()  # these are, even if their labels are numbers
    gaps: bool = False  # values may be missing
    dates: tuple[str, ...] = ()  # columns of dates, read as days since 1970
    times: tuple[str, ...] = ()  # columns of dates or numbers

    @property
    def plain(self) -> bool:
        """Finite numbers only."""
        return not (self.labels or self.label_columns or self.nominal or self.gaps or self.dates or self.times)

    def may_be_nominal(self, name: str) -> bool:
        return self.labels or name in self.label_columns or name in self.nominal


def number(text: str) -> float | None:
    """The number that a text is, or None."""
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def numbers_of(labels: tuple[str, ...]) -> Floats | None:
    """Labels that are all numbers, or all true and false, as numbers; else None."""
    found = [number(label) for label in labels]
    if None not in found:
        return np.array(found, dtype=np.float64)
    truth = [_TRUTH.get(label.strip().lower()) for label in labels]
    return np.array(truth, dtype=np.float64) if None not in truth else None


def require_unique(names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    seen: set[str] = set()
    repeated = {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
    if repeated:
        raise DataError(f"{origin} has more than one column named {', '.join(map(repr, sorted(repeated)[:10]))}.")
    return names


def require_columns(wanted: Iterable[str], names: tuple[str, ...], origin: str) -> None:
    for name in wanted:
        if name not in names:
            raise DataError(f"{origin} has no column {name!r}; it has {', '.join(map(repr, names[:30]))}.")


def kept_places(names: tuple[str, ...], layout: Layout, origin: str) -> list[int]:
    """Which columns are read: all but the dropped ones, which must exist."""
    require_columns(layout.drop, names, origin)
    return [place for place, name in enumerate(names) if name not in layout.drop]


def column_name(names: tuple[str, ...], column: int) -> str:
    return repr(names[column]) if names else str(column + 1)


def require_finite(values: Floats, names: tuple[str, ...], done: int, origin: str, *, gaps: bool = False) -> Floats:
    """`values` unchanged; or an error that names the first place that is not a finite number."""
    wrong = np.isinf(values) if gaps else ~np.isfinite(values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        where = f"{origin}, row {done + row + 1}, column {column_name(names, column)}"
        if np.isnan(values[row, column]):
            raise DataError(f"{where}: the value is missing; write missing=impute or leave the column out.")
        raise DataError(f"{where}: {values[row, column]} is not a finite number.")
    return values


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
