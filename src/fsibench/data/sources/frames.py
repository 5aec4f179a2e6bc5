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
from fsibench.data.sources.raw import MISSING, Layout, Raw, number, numbers_of, require_finite, require_unique
from fsibench.errors import DataError

logger = logging.getLogger(__name__)

Column = tuple[Floats, tuple[str, ...] | None]  # values, and the labels that they are places of


def from_texts(names: tuple[str, ...], rows: Iterable[Sequence[str]], layout: Layout, origin: str) -> Raw:
    """A whole table of texts."""
    columns = list(zip(*rows, strict=True)) or [() for _ in names]
    found = [_of_texts(list(texts), name, layout, origin) for name, texts in zip(names, columns, strict=True)]
    return _raw(names, found, layout, origin)


def from_frame(frame: Any, layout: Layout, origin: str) -> Raw:
    """A pandas data frame, column by column."""
    names = require_unique(tuple(map(str, frame.columns)), origin)
    found = [_of_series(frame.iloc[:, place], name, layout, origin) for place, name in enumerate(names)]
    return _raw(names, found, layout, origin)


def _raw(names: tuple[str, ...], columns: list[Column], layout: Layout, origin: str) -> Raw:
    levels = {name: labels for name, (_, labels) in zip(names, columns, strict=True) if labels is not None}
    return Raw(names, _blocks([values for values, _ in columns], names, layout, origin), levels)


def _blocks(columns: list[Floats], names: tuple[str, ...], layout: Layout, origin: str) -> Iterator[Floats]:
    for start in range(0, len(columns[0]) if columns else 0, BLOCK_ROWS):
        block = np.stack([column[start : start + BLOCK_ROWS] for column in columns], axis=1)
        yield require_finite(block, names, start, origin, gaps=layout.gaps)


# --- one column -------------------------------------------------------------------------------------------------


def _of_texts(texts: list[str], name: str, layout: Layout, origin: str) -> Column:
    if name in layout.dates:
        return _days([_stripped(text) for text in texts], name, origin), None
    different = {text: number(text) for text in set(texts)}
    wrong = {text for text, value in different.items() if value is None and text.strip().lower() not in MISSING}
    if wrong and name in layout.times:
        return _days([_stripped(text) for text in texts], name, origin), None
    if not wrong:
        return np.array([np.nan if (value := different[text]) is None else value for text in texts]), None
    if not layout.may_be_nominal(name):
        row, text = next((row, text) for row, text in enumerate(texts, 1) if text in wrong)
        raise DataError(
            f"{origin}, row {row}, column {name!r}: {text[:40]!r} is not a number; "
            "categories=onehot reads text columns as labels."
        )
    return places([_stripped(text) for text in texts])


def _of_series(column: Any, name: str, layout: Layout, origin: str) -> Column:
    import pandas

    kind = pandas.api.types
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
        return np.append(values, np.nan)[codes], None  # code -1, a missing value, meets the nan
    if not layout.may_be_nominal(name):
        raise DataError(f"{origin}, column {name!r}: labels {', '.join(labels[:5])} are not numbers.")
    return places([None if code < 0 else labels[code] for code in codes])


def places(labels: Sequence[str | None]) -> Column:
    """The place of each label in the alphabet of those that occur; nan for none."""
    levels = tuple(sorted({label for label in labels if label is not None}))
    place = {label: float(number) for number, label in enumerate(levels)}
    return np.array([np.nan if label is None else place[label] for label in labels]), levels


def _stripped(text: str) -> str | None:
    return None if text.strip().lower() in MISSING else text.strip()


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
