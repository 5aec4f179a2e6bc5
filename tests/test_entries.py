"""Every entry that the documentation writes can be built: its method and its options exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fsibench import registry

ROOT = Path(__file__).parents[1]
FILES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "methods" / "README.md", ROOT / "leaderboard" / "README.md",
    *sorted((ROOT / "leaderboard").glob("*.toml")), *sorted((ROOT / "docs").glob("*.md")),
]  # fmt: skip
# name[option=value,...], where a value may be such an entry itself
ENTRY = re.compile(r"(?<![\w:/.-])[A-Za-z_]\w*\[[a-z_]+=(?:[^\[\]\s]|\[[^\[\]\s]*\])*\]")
# Defined by the page that writes them.
OWN = ("mine[", "features[", "sip[prior=lines]")
# Explains published scores and names an option that is gone.


def written() -> list[Any]:
    """Each entry of each file once, placeholders left out."""
    pairs = dict.fromkeys((path, entry) for path in FILES for entry in ENTRY.findall(path.read_text(encoding="utf-8")))
    return [
        pytest.param(entry, id=f"{path.relative_to(ROOT)} {entry}")
        for path, entry in pairs
        if not entry.startswith(OWN) and "..." not in entry
    ]


@pytest.mark.parametrize("entry", written())
def test_an_entry_of_the_documentation_can_be_built(entry: str) -> None:
    name = entry.partition("[")[0]
    if name in registry.datasets().items:
        registry.dataset(entry)
    else:
        registry.entry(entry)


def test_entries_are_found_with_those_inside_them() -> None:
    text = "`sip[prior=ns]`, tuned[of=bbb[num_draws=2],members=5], `./file.py:Mine[a=1]`, x[0], `board[\"a\"]`"
    assert ENTRY.findall(text) == ["sip[prior=ns]", "tuned[of=bbb[num_draws=2],members=5]"]
