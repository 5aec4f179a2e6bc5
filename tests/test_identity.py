"""What counts as the code that matters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fsibench.harness import identity

METHOD = '''"""Docstring."""
import helperpkg.maths

def fit():
    return helperpkg.maths.double(1)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin package `helperpkg` whose method module imports a sibling."""
    folder = tmp_path / "helperpkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "maths.py").write_text("def double(x):\n    return 2 * x\n")
    (folder / "unused.py").write_text("A = 1\n")
    (folder / "method.py").write_text(METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def version(package: Path) -> str:
    identity.code_version.cache_clear()
    identity._syntax_hash.cache_clear()
    for name in [name for name in sys.modules if name.startswith("helperpkg")]:
        del sys.modules[name]
    return identity.code_version("helperpkg.method")


def test_comments_docstrings_and_blank_lines_do_not_matter(package: Path) -> None:
    before = version(package)
    (package / "method.py").write_text(METHOD.replace("Docstring", "Other words") + "\n\n# a comment\n")
    assert version(package) == before


def test_the_method_itself_matters(package: Path) -> None:
    before = version(package)
    (package / "method.py").write_text(METHOD.replace("double(1)", "double(2)"))
    assert version(package) != before


def test_what_the_method_imports_from_its_package_matters(package: Path) -> None:
    before = version(package)
    (package / "maths.py").write_text("def double(x):\n    return 3 * x\n")
    assert version(package) != before


def test_what_the_method_does_not_import_does_not_matter(package: Path) -> None:
    before = version(package)
    (package / "unused.py").write_text("A = 2\n")
    assert version(package) == before


def test_blocks_count_for_a_built_in_and_other_methods_do_not() -> None:
    files = set(identity._relevant_files("fsibench.methods.bbb"))
    assert {"fsibench.methods.bbb", "fsibench.blocks.networks", *identity.CORE_MODULES} <= files
    assert not {name for name in files if name.startswith("fsibench.methods")} - {"fsibench.methods.bbb"}
    assert "fsibench.cli" not in files


def test_seeds_of_different_axes_are_unrelated_and_stable() -> None:
    assert identity.derive_seed("bbb", "boston", 0) == identity.derive_seed("bbb", "boston", 0)
    seeds = {identity.derive_seed(m, d, s) for m in ("a", "b") for d in ("x", "y") for s in range(50)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
