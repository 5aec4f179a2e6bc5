"""Rows of a query as a data frame, in little more memory than the frame itself.

A list of a hundred thousand Python objects for every column takes several times what the column takes. Rows are read
some at a time, and their numbers become arrays and their texts numbers of distinct texts at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_A_TIME = 5_000
NOTHING = frozenset({type(None)})


def read(cursor: sqlite3.Cursor, categories: Collection[str] = ()) -> pd.DataFrame:
    """All rows of a query that was executed; texts in the columns `categories` become categories, by the alphabet."""
    import pandas as pd

    names = [column[0] for column in cursor.description]
    columns = [_Column() for _ in names]
    while rows := cursor.fetchmany(ROWS_AT_A_TIME):
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(values)
    found = {name: column.finished(name in categories) for name, column in zip(names, columns, strict=True)}
    return pd.DataFrame(found, columns=names)


class _Column:
    """Values of one column: whole numbers, numbers, texts, nothing at all, or Python objects where kinds are mixed."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        self._texts: dict[str, int] = {}  # distinct texts and their numbers
        self._pieces: list[npt.NDArray[Any]] = []  # of texts: their numbers, -1 for none

    def extend(self, values: tuple[Any, ...]) -> None:
        kinds = set(map(type, values))
        if not (self._kinds | kinds) - NOTHING <= {str} and not (self._kinds | kinds) - NOTHING <= {int, float}:
            self._pieces = [np.array(self._objects(), dtype=object), np.array(values, dtype=object)]
        elif str in kinds:
            number = self._texts.setdefault
            numbers = (-1 if text is None else number(text, len(self._texts)) for text in values)
            self._pieces.append(np.fromiter(numbers, np.int32, len(values)))
        else:
            self._pieces.append(np.array(values, dtype=np.int64 if kinds == {int} else np.float64))
        self._kinds |= kinds

    @property
    def _is_text(self) -> bool:
        return str in self._kinds and self._kinds <= {str, type(None)}

    def _numbers_of_texts(self) -> npt.NDArray[np.int32]:
        """A piece without any text is a piece of missing numbers."""
        return np.concatenate([np.where(np.isnan(piece), -1, piece).astype(np.int32) for piece in self._pieces])

    def _objects(self) -> list[Any]:
        """Everything so far as the database had it."""
        if self._is_text:
            texts = [*self._texts, None]
            return [texts[number] for number in self._numbers_of_texts()]
        values = [value for piece in self._pieces for value in piece.tolist()]
        return [None if isinstance(value, float) and np.isnan(value) else value for value in values]

    def finished(self, as_category: bool) -> Any:
        import pandas as pd

        if not self._pieces:
            return []
        if self._is_text and as_category:
            texts = sorted(self._texts)
            place = np.empty(len(texts) + 1, dtype=np.int32)
            place[[self._texts[text] for text in texts]] = np.arange(len(texts), dtype=np.int32)
            place[-1] = -1
            return pd.Categorical.from_codes(place[self._numbers_of_texts()], texts)
        if self._is_text:
            return pd.array(list(self._texts), dtype="str").take(self._numbers_of_texts(), allow_fill=True)
        if self._kinds <= NOTHING:
            return np.full(sum(map(len, self._pieces)), None, dtype=object)
        return np.concatenate(self._pieces)
