"""The result store: one SQLite file, written by one driver, readable by anything that reads SQLite."""

from fsibench.harness.store.database import (
    COORDINATES,
    CURVE_COLUMNS,
    DEFAULT_STORE,
    EXPORT_COLUMNS,
    FINAL_STATUSES,
    STATUSES,
    Store,
)
from fsibench.harness.store.schema import SCHEMA_VERSION

__all__ = [
    "COORDINATES",
    "CURVE_COLUMNS",
    "DEFAULT_STORE",
    "EXPORT_COLUMNS",
    "FINAL_STATUSES",
    "SCHEMA_VERSION",
    "STATUSES",
    "Store",
]
