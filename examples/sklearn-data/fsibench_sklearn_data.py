"""Data sets of scikit-learn under a prefix of their own: `--datasets sk:diabetes`."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import sklearn.datasets

from fsibench.data import Description, Table, TableDataset
from fsibench.errors import unknown

PREFIX = "sk:"
LOADERS = {"diabetes": sklearn.datasets.load_diabetes}


@dataclass(frozen=True)
class SklearnTable(TableDataset):
    """A table that comes with scikit-learn."""

    def describe(self) -> Description:
        table = self.table()
        return Description(
            self.name, len(table), table.x.shape[1], table.target, "scikit-learn", available=True,
            licence="BSD-3-Clause", citation="Efron et al., Least angle regression, Annals of Statistics 2004",
        )  # fmt: skip

    def table(self) -> Table:
        return _load(self.name.removeprefix(PREFIX))


@functools.cache
def _load(name: str) -> Table:
    found = LOADERS[name](scaled=False) if name == "diabetes" else LOADERS[name]()
    x, y = np.asarray(found.data, dtype=float), np.asarray(found.target, dtype=float)
    return Table(x, y, tuple(map(str, found.feature_names)), "target")


def resolve(text: str) -> SklearnTable:
    name = text.removeprefix(PREFIX)
    if name not in LOADERS:
        raise unknown("data set of scikit-learn", name, LOADERS)
    return SklearnTable(text)
