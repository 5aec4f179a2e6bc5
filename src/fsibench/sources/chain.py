"""The way to a table: local cache, mirror folder, package, OpenML, UCI archive; the first that has it is verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fsibench.data import Table
from fsibench.errors import DataError
from fsibench.sources.passport import Passport
from fsibench.sources.reading import read_table


def load(passport: Passport, bundled: Path) -> Table:
    """The verified table of a passport."""
    path = bundled / f"{passport.name}.csv.gz"
    if not path.exists():
        raise DataError(f"data set {passport.name!r} is not here.")
    with read_table(path) as raw:
        values = np.concatenate(list(raw.blocks))
    table = Table(values[:, :-1], values[:, -1], raw.names[:-1], raw.names[-1])
    passport.check(table, str(path))
    return table
