"""Tables that users name themselves: the words after the question mark, and the choice of columns."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from fsibench.data import Floats
from fsibench.errors import DataError, UsageError
from fsibench.sources.reading import Raw


def query_words(query: str, reference: str, allowed: set[str]) -> dict[str, list[str]]:
    """`target=y&drop=a&drop=b` -> {"target": ["y"], "drop": ["a", "b"], ...}; a plus sign stays a plus sign."""
    words: dict[str, list[str]] = {key: [] for key in allowed}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in allowed or not equals:
            raise UsageError(f"cannot read {part!r} in {reference!r}; known are {', '.join(sorted(allowed))}.")
        words[key].append(unquote(value))
    return words


def inputs_and_target(
    raw: Raw, target: str, drop: tuple[str, ...], origin: str
) -> tuple[tuple[str, ...], Iterator[tuple[Floats, Floats]]]:
    """Input names, and blocks of inputs and target."""
    for name in (target, *drop):
        if name not in raw.names:
            raise DataError(f"{origin} has no column {name!r}; it has {', '.join(raw.names[:30])}.")
    columns = tuple(name for name in raw.names if name != target and name not in drop)
    if not columns:
        raise DataError(f"{origin} has no input column beside the target {target!r}.")
    order, last = [raw.names.index(name) for name in columns], raw.names.index(target)
    return columns, ((block[:, order], block[:, last]) for block in raw.blocks)
