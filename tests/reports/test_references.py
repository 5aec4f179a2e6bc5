"""Citations of what a report shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from fsibench.reports import references
from fsibench.reports.analysis import results

MakeStore = Callable[..., Path]


def test_shipped_entries_are_well_formed() -> None:
    for name, entry in references.shipped_entries().items():
        assert entry.count("{") == entry.count("}")
        assert re.search(r"title = \{.+\},", entry), name
        assert name == "fsibench" or re.search(r"year = \{\d{4}\},", entry), name


def test_a_bibliography_holds_what_the_store_knows_and_names_the_rest(make_store: MakeStore) -> None:
    citations = {"boston": "Harrison, Rubinfeld: Hedonic housing prices & air, J. Environ. Econ. (1978)", "mine": "We, Us 2026"}
    path = make_store(entries=("bbb", "mine[depth=2]"), datasets={"boston": 9.0, "wine": 0.8}, splits=1, citations=citations)
    loaded = results.load(path)
    text = references.bibliography(loaded)
    assert re.findall(r"@\w+\{([^,]+),", text) == ["fsibench", "bbb", "mine", "boston"]
    assert "author = {Harrison and Rubinfeld}" in text
    assert r"Hedonic housing prices \& air" in text
    assert references.missing(loaded) == ["wine"]
