"""The reference pages of the site, written from the registries: they say what the source says."""

from __future__ import annotations

import dataclasses
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fsibench import registry

EXTENSION = Path(__file__).parents[1] / "docs" / "_ext"
SOURCE = '''
@dataclass
class Mine:
    """One."""

    # two lines
    # above
    above: int = 1
    beside: float = 2.0  # at its side
    bare: int = 3
    # The rest ------------------------------------
    long: tuple[int, int] = (
        4, 5,
    )  # fmt: skip
    text: str = "# none"  # of words
'''


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXTENSION))
    return importlib.import_module("reference_pages")


def test_no_page_shows_an_object_by_its_address(reference: Any) -> None:
    pages = reference.all_pages()
    assert {"methods/tuned.md", "datasets/yacht.md", "metrics/crps.md", "protocols.md"} <= set(pages)
    assert [name for name, text in pages.items() if "object at 0x" in text] == []


def test_the_meaning_of_an_option_is_the_comment_beside_or_above_it(reference: Any) -> None:
    comments = importlib.import_module("option_comments").commented_fields(SOURCE)
    assert comments == {"above": "two lines above", "beside": "at its side", "text": "of words"}


def test_options_of_a_base_class_keep_their_comments(reference: Any) -> None:
    assert "| `initial_spread` | `0.02` | `float` | of the draws around their start" in reference.method_pages()["methods/avb.md"]


@pytest.mark.parametrize("name", sorted(registry.methods().items))
def test_every_option_of_a_method_has_a_meaning(name: str, reference: Any) -> None:
    cls = registry.method_class(name)
    comments = reference.meanings(cls)
    assert [f.name for f in dataclasses.fields(cls) if not reference.meaning(name, f.name, comments)] == []


def test_meanings_are_given_for_options_that_exist() -> None:
    given = tomllib.loads((EXTENSION / "options.toml").read_text(encoding="utf-8"))
    fields = {name: {f.name for f in dataclasses.fields(cls)} for name, cls in registry.methods().items.items()}
    assert set(given.pop("shared")) <= set().union(*fields.values())
    assert {name: set(texts) - fields[name] for name, texts in given.items() if set(texts) - fields[name]} == {}


def test_every_deviation_stands_on_a_page_of_its_method_or_on_that_of_all(reference: Any) -> None:
    pages = reference.method_pages()
    rows = reference.deviations()
    assert len(rows) > 10
    assert [row for row in rows if not any(row in text for text in pages.values())] == []
    assert "| weights in AADM and AVB |" in pages["methods/avb.md"]
    assert "| weights in AADM and AVB |" not in pages["methods/sip.md"]
    assert "| random streams |" in pages["methods.md"]


def test_tables_of_a_method_have_as_many_cells_in_every_row(reference: Any) -> None:
    for name, text in reference.method_pages().items():
        tables = re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE)
        for rows in (table.splitlines() for table in tables):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, name
