"""Nominal columns and missing values as numbers; everything is learned on training rows only.

    number    a missing value becomes the training mean; if training rows have missing ones, a column of 0 and 1 says where
    one-hot   one column of 0 and 1 for each label seen in training (a missing value is a label); an unknown label is all 0
    ordinal   the place of the label among those seen in training; an unknown or missing label gets the mean place
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fsibench.data.arrays import Floats, Rows, blocks_of
from fsibench.errors import DataError

MOST_LABELS = 500  # one-hot columns that a single nominal column may become
MISSING = -1.0  # the label number of a missing value

Part = Callable[[Floats], Floats]  # [N] -> [N, K]


@dataclass(frozen=True)
class Encoder:
    """`encoder(x)` gives numbers without gaps; `columns` are their names."""

    columns: tuple[str, ...]
    parts: tuple[Part, ...] = ()  # empty: the columns are numbers already

    @classmethod
    def of(
        cls, x: Floats, columns: tuple[str, ...], levels: Mapping[str, tuple[str, ...]], rows: Rows, categories: str
    ) -> Encoder:
        """Learned on `rows` of x."""
        if not levels and not _has_gaps(x):
            return cls(columns)
        names: list[str] = []
        parts: list[Part] = []
        for place, name in enumerate(columns):
            column = np.asarray(x[rows, place], dtype=np.float64)
            if name not in levels:
                made, part = _number(name, column)
            elif categories == "ordinal":
                made, part = _ordinal(name, column)
            else:
                made, part = _one_hot(name, column, levels[name])
            names += made
            parts.append(part)
        return cls(tuple(names), tuple(parts))

    def __call__(self, x: Floats) -> Floats:
        if not self.parts:
            return x
        return np.concatenate([part(x[:, place]) for place, part in enumerate(self.parts)], axis=1)


def _has_gaps(x: Floats) -> bool:
    return any(bool(np.isnan(block).any()) for block in blocks_of(x, np.arange(len(x))))


def _number(name: str, column: Floats) -> tuple[list[str], Part]:
    gaps = np.isnan(column)
    if gaps.all():
        raise DataError(f"column {name!r} has no value in any training row; leave it out with drop={name}.")
    fill = float(np.mean(column[~gaps]))
    if not gaps.any():
        return [name], lambda values: np.nan_to_num(values, nan=fill)[:, None]
    return [name, f"{name} is missing"], lambda values: np.stack(
        [np.nan_to_num(values, nan=fill), np.isnan(values).astype(np.float64)], axis=1
    )


def _one_hot(name: str, column: Floats, labels: tuple[str, ...]) -> tuple[list[str], Part]:
    seen = np.unique(np.nan_to_num(column, nan=MISSING))
    if len(seen) > MOST_LABELS:
        raise DataError(
            f"column {name!r} has {len(seen)} labels, too many for one column each; "
            f"leave it out with drop={name} or number them with categories=ordinal."
        )
    names = [f"{name}={labels[int(code)] if code != MISSING else 'missing'}" for code in seen]
    return names, lambda values: (np.nan_to_num(values, nan=MISSING)[:, None] == seen).astype(np.float64)


def _ordinal(name: str, column: Floats) -> tuple[list[str], Part]:
    seen = np.unique(column[~np.isnan(column)])
    mean = float(np.mean(np.searchsorted(seen, column[~np.isnan(column)]))) if len(seen) else 0.0

    def place(values: Floats) -> Floats:
        found = np.searchsorted(seen, values)
        known = np.isin(values, seen)
        return np.where(known, found, mean)[:, None].astype(np.float64)

    return [name], place
