"""Columns of texts, of a data frame or of Arrow arrays as numbers: strictly numbers, labels, dates, or refused.

The same values give the same numbers wherever they come from: labels are ordered by the alphabet, not by the order in
which a file or a provider happens to list them.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fsibench.data import BLOCK_ROWS, Floats
from fsibench.data.sources.raw import (
    MISSING,
    Layout,
    Raw,
    kept_places,
    number,
    numbers_of,
    require_finite,
    require_unique,
)
from fsibench.errors import DataError

logger = logging.getLogger(__name__)

Column = tuple[Floats, tuple[str, ...] | None]  # values, and the labels that they are places of


MOST_NUMBERS = 20  # a text beside more distinct numbers than this is taken for a typing error, not for a label


def from_texts(
    names: tuple[str, ...],
    rows: Iterable[Sequence[str]],
    layout: Layout,
    origin: str,
    nominal: frozenset[str] = frozenset(),
) -> Raw:
    """A whole table of texts."""
    columns = list(zip(*rows, strict=True)) or [() for _ in names]
    kept = kept_places(names, layout, origin)
    found = [_of_texts(list(columns[place]), names[place], layout, origin) for place in kept]
    return _raw(tuple(names[place] for place in kept), found, layout, origin, nominal)


def from_frame(frame: Any, layout: Layout, origin: str) -> Raw:
    """A pandas data frame, column by column."""
    names = require_unique(tuple(map(str, frame.columns)), origin)
    kept = kept_places(names, layout, origin)
    found = [_of_series(frame.iloc[:, place], names[place], layout, origin) for place in kept]
    nominal = frozenset(name for name, kind in zip(names, frame.dtypes, strict=True) if _is_nominal(kind))
    return _raw(tuple(names[place] for place in kept), found, layout, origin, nominal)


def _is_nominal(kind: Any) -> bool:
    import pandas

    return isinstance(kind, pandas.CategoricalDtype) or bool(pandas.api.types.is_bool_dtype(kind))


def _raw(
    names: tuple[str, ...], columns: list[Column], layout: Layout, origin: str, nominal: frozenset[str]
) -> Raw:
    levels = {name: labels for name, (_, labels) in zip(names, columns, strict=True) if labels is not None}
    blocks = _blocks([values for values, _ in columns], names, layout, origin)
    return Raw(names, blocks, levels, nominal=nominal)


def _blocks(columns: list[Floats], names: tuple[str, ...], layout: Layout, origin: str) -> Iterator[Floats]:
    for start in range(0, len(columns[0]) if columns else 0, BLOCK_ROWS):
        block = np.stack([column[start : start + BLOCK_ROWS] for column in columns], axis=1)
        yield require_finite(block, names, start, origin, gaps=layout.gaps)


# --- one column -------------------------------------------------------------------------------------------------


def _of_texts(texts: list[str], name: str, layout: Layout, origin: str) -> Column:
    if name in layout.dates:
        return _days([_stripped(text) for text in texts], name, origin), None
    if name in layout.nominal:
        return places([_stripped(text) for text in texts])
    different = {text: number(text) for text in set(texts)}
    wrong = {text for text, value in different.items() if value is None and text.strip().lower() not in MISSING}
    if wrong and name in layout.times:
        return _days([_stripped(text) for text in texts], name, origin), None
    if not wrong:
        return np.array([np.nan if (value := different[text]) is None else value for text in texts]), None
    if not layout.may_be_nominal(name):
        row, text = next((row, text) for row, text in enumerate(texts, 1) if text in wrong)
        cure = f"date={name} reads dates as days" if _is_date(text) else "categories=onehot reads text columns as labels"
        raise DataError(f"{origin}, row {row}, column {name!r}: {text[:40]!r} is not a number; {cure}.")
    if layout.labels:
        _refuse_typing_errors(texts, wrong, len(different) - len(wrong), name, origin)
    return places([_stripped(text) for text in texts])


def _refuse_typing_errors(texts: list[str], wrong: set[str], num_numbers: int, name: str, origin: str) -> None:
    """One text in a column of measurements would make every measurement a label."""
    if num_numbers > MOST_NUMBERS:
        row, text = next((row, text) for row, text in enumerate(texts, 1) if text in wrong)
        raise DataError(
            f"{origin}, row {row}, column {name!r}: {text[:40]!r} stands among {num_numbers} different numbers; correct "
            f"it, leave the column out with drop={name}, or write label={name} if its numbers are labels too."
        )


def _of_series(column: Any, name: str, layout: Layout, origin: str) -> Column:
    import pandas

    kind = pandas.api.types
    if name in layout.nominal:
        return places([None if pandas.isna(value) else _label(value) for value in column])
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return _of_categories(column, name, layout, origin)
    if kind.is_datetime64_any_dtype(column.dtype):
        if name not in (*layout.dates, *layout.times):
            raise DataError(f"{origin}, column {name!r}: dates are not numbers; date={name} reads them as days.")
        return _days([None if pandas.isna(value) else str(value) for value in column], name, origin), None
    if kind.is_numeric_dtype(column.dtype) or kind.is_bool_dtype(column.dtype):
        # float64 at once: small whole numbers arrive as uint8, where a difference would wrap round
        return column.to_numpy(dtype=np.float64, na_value=np.nan), None
    return _of_texts(["" if pandas.isna(value) else str(value) for value in column], name, layout, origin)


def _of_categories(column: Any, name: str, layout: Layout, origin: str) -> Column:
    """Labels that are numbers become those numbers; others are places in the alphabet."""
    labels = tuple(map(str, column.cat.categories))
    values = numbers_of(labels)
    codes = column.cat.codes.to_numpy()
    if values is not None:
        return np.append(values, np.nan)[codes], None  # code -1, a missing value, is the nan at the end
    if not layout.may_be_nominal(name):
        raise DataError(f"{origin}, column {name!r}: labels {', '.join(labels[:5])} are not numbers.")
    return places([None if code < 0 else labels[code] for code in codes])


def _label(value: Any) -> str:
    """2.0 and 2 are one label: a missing value elsewhere in a column of whole numbers makes them all fractions."""
    return f"{value:g}" if isinstance(value, float) and value == round(value) else str(value).strip()


def places(labels: Sequence[str | None]) -> Column:
    """The place of each label among those that occur, by the alphabet or by size if all are numbers; nan for none."""
    levels = tuple(sorted({label for label in labels if label is not None}))
    sizes = numbers_of(levels)
    if sizes is not None:
        levels = tuple(levels[place] for place in np.argsort(sizes, kind="stable"))
    place = {label: float(number) for number, label in enumerate(levels)}
    return np.array([np.nan if label is None else place[label] for label in labels]), levels


def _stripped(text: str) -> str | None:
    return None if text.strip().lower() in MISSING else text.strip()


def _is_date(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return False
    return True


def _days(texts: Sequence[str | None], name: str, origin: str) -> Floats:
    """ISO dates, with or without a time, as days since 1970."""
    values = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text is None:
            continue
        try:
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise DataError(
                f"{origin}, row {row + 1}, column {name!r}: {text[:40]!r} is not a date such as 2024-05-31."
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        values[row] = moment.timestamp() / 86400
    return values
