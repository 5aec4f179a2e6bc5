"""What counts as the code that matters."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import time
from pathlib import Path

import pytest

from fsibench import registry
from fsibench.errors import UsageError
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
    identity._is_local.cache_clear()
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


def test_relative_imports_matter(package: Path) -> None:
    for line in ("from .maths import double", "from . import maths", "from helperpkg import maths"):
        (package / "maths.py").write_text("def double(x):\n    return 2 * x\n")
        (package / "method.py").write_text(f"def fit():\n    {line}\n")
        before = version(package)
        (package / "maths.py").write_text("def double(x):\n    return 33 * x\n")
        assert version(package) != before, line


def test_what_a_method_loads_by_a_string_matters(package: Path) -> None:
    (package / "method.py").write_text("import importlib\nmaths = importlib.import_module('helperpkg.maths')\n")
    before = version(package)
    (package / "maths.py").write_text("def double(x):\n    return 33 * x\n")
    assert version(package) != before


def test_where_a_package_computes_what_it_loads_all_of_it_matters(package: Path) -> None:
    (package / "method.py").write_text("import importlib\nmaths = importlib.import_module('helperpkg.' + 'unused')\n")
    before = version(package)
    (package / "unused.py").write_text("A = 22\n")
    assert version(package) != before


def test_a_single_file_must_write_its_imports_out(package: Path) -> None:
    (package.parent / "lonely.py").write_text("import importlib\nm = importlib.import_module('maths'.lower())\n")
    with pytest.raises(UsageError, match=r"lonely\.py, line 2: the name of an imported module is computed"):
        identity.code_version("lonely")


def test_a_helper_beside_a_file_matters_and_an_installed_package_does_not(package: Path) -> None:
    (package.parent / "helper_beside.py").write_text("A = 1\n")
    (package / "method.py").write_text("import helper_beside\nimport numpy\nimport json\n")
    assert version(package)
    files = set(identity.relevant_files("helperpkg.method"))
    assert "helper_beside" in files
    assert not files & {"numpy", "json"}


def test_a_prior_of_another_package_matters_to_the_entries_that_name_it(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = importlib.metadata.EntryPoint("theirs", "helperpkg.maths:Theirs", "fsibench.priors")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "fsibench.priors" else [])
    identity._prior_modules.cache_clear()
    prior = "from fsibench.blocks.priors import BNNPrior\nclass Theirs(BNNPrior):\n    factor = {}\n"

    def versions(factor: int) -> list[str]:
        (package / "maths.py").write_text(prior.format(factor))
        version(package)  # forgets the modules of the package
        return [identity.version_of(registry.entry(text).method) for text in ("sip[prior=theirs]", "sip")]

    (named, other), (named_after, other_after) = versions(1), versions(22)
    identity._prior_modules.cache_clear()
    assert named != named_after
    assert other == other_after


def test_the_packages_around_a_module_matter(package: Path) -> None:
    before = version(package)
    (package / "__init__.py").write_text("import sys\n")
    assert version(package) != before


@pytest.mark.parametrize("name", sorted(registry.methods().items))
def test_everything_of_ours_that_a_method_loads_is_covered(name: str) -> None:
    """The source is searched for every name of another method or block, however it is loaded."""
    module = registry.methods().items[name].__module__
    files = identity.relevant_files(module)
    words = set(re.findall(r"fsibench\.(?:methods|blocks)\.\w+", Path(files[module].absolute()).read_text()))
    assert words <= set(files)


def test_checking_a_version_again_is_cheap() -> None:
    identity.code_version("fsibench.methods.sip")
    start = time.process_time()
    for _ in range(20):
        identity.code_version("fsibench.methods.sip")
    assert (time.process_time() - start) / 20 < 0.01


def test_blocks_count_for_a_built_in_and_other_methods_do_not() -> None:
    files = set(identity.relevant_files("fsibench.methods.bbb"))
    assert {"fsibench.methods.bbb", "fsibench.blocks.networks", *identity.CORE_MODULES} <= files
    assert not {name for name in files if name.startswith("fsibench.methods")} - {"fsibench.methods.bbb"}
    assert "fsibench.cli" not in files


def test_seeds_of_different_axes_are_unrelated_and_stable() -> None:
    assert identity.derive_seed("bbb", "boston", 0) == identity.derive_seed("bbb", "boston", 0)
    seeds = {identity.derive_seed(m, d, s) for m in ("a", "b") for d in ("x", "y") for s in range(50)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
