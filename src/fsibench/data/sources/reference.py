"""Tables that users name themselves: the words after the question mark."""

from __future__ import annotations

from urllib.parse import unquote

from fsibench.errors import UsageError


def query_words(query: str, reference: str, allowed: set[str]) -> dict[str, list[str]]:
    """`target=y&drop=a&drop=b` -> {"target": ["y"], "drop": ["a", "b"], ...}; a plus sign stays a plus sign."""
    words: dict[str, list[str]] = {key: [] for key in allowed}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in allowed or not equals:
            raise UsageError(f"cannot read {part!r} in {reference!r}; known are {', '.join(sorted(allowed))}.")
        words[key].append(unquote(value))
    return words
