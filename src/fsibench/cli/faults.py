"""What is wrong with plugins, for the end of `fsibench list`: heavy packages are imported only where a plugin needs them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import Any

from fsibench import registry
from fsibench.errors import UsageError, told

MARKS = ("BROKEN: ", "OFFERED TWICE: ")
# The columns of a list that may hold a mark.
COLUMNS = ("what", "note", "title", "meaning")


def of_row(row: Mapping[str, Any]) -> str:
    """The error of a row of a list; empty where it is in order."""
    for text in (str(row.get(column, "")) for column in COLUMNS):
        if text.startswith(MARKS):
            return text.removeprefix("BROKEN: ").replace("OFFERED TWICE: ", "offered twice: ")
    return ""


def of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {str(row.get("name", row.get("key"))): error for row in rows if (error := of_row(row))}


def of_pages() -> dict[str, str]:
    """Pages of installed packages that cannot be loaded."""
    if not importlib.metadata.entry_points(group="fsibench.pages"):
        return {}
    from fsibench.reports.pages import plugin_pages

    broken: dict[str, str] = plugin_pages()[1]
    return broken


def of_priors() -> dict[str, str]:
    """Priors of installed packages that cannot be loaded; imports torch where there are any."""
    names = [point.name for point in importlib.metadata.entry_points(group="fsibench.priors")]
    return {name: fault for name in names if (fault := _fault_of_prior(name))}


def _fault_of_prior(name: str) -> str:
    from fsibench.blocks.priors import prior_class

    try:
        prior_class(name)
    except UsageError as error:
        return str(error)
    except registry.PLUGIN_FAILURES as error:
        return told(error)
    return ""


def told_all(faults: Mapping[str, Mapping[str, str]]) -> list[str]:
    """`page ranks: ImportError: ...`, one line each."""
    return [f"{kind} {name}: {' '.join(error.split())}" for kind, found in faults.items() for name, error in found.items()]
