"""What the documentation says is true: its code runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fsibench.cli import _parser
from fsibench.testing import check_method

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def fences(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_method_of_the_tutorial_keeps_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "features.py"
    file.write_text(fences(ROOT / "docs" / "add-a-method.md", "python")[0], encoding="utf-8")
    check_method(f"{file}:RandomFeatures")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_in_the_documentation_parses(path: Path) -> None:
    for code in fences(path, "python"):
        ast.parse(code)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    generated = ("_reference/", "_gallery/", "_build/")
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text(encoding="utf-8")):
        assert target.startswith(generated) or (path.parent / target).exists(), f"{path.name} links to {target}"


def commands_in(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"(?:^|`|\$ |\s{4})fsibench (?!@|is\b)([a-z]+)\b", text, flags=re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_that_is_shown_exists(path: Path) -> None:
    parser = _parser()
    known = next(action.choices for action in parser._actions if action.choices)
    assert commands_in(path) <= set(known)
