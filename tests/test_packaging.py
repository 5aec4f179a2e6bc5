"""The installed package holds every file of the three mapped folders."""

from __future__ import annotations

import importlib
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("folder", ["methods", "datasets", "reports"])
def test_every_module_of_a_mapped_folder_is_installed(folder: str) -> None:
    installed = {Path(str(item)).name for item in resources.files(f"fsibench.{folder}").iterdir()}
    expected = {path.name for path in (ROOT / folder).glob("*.py")}
    assert expected <= installed
    for name in expected - {"__init__.py"}:
        importlib.import_module(f"fsibench.{folder}.{name.removesuffix('.py')}")


@pytest.mark.parametrize(("package", "folder"), [("fsibench.datasets", "datasets"), ("fsibench.reports", "reports")])
@pytest.mark.parametrize("kind", ["data", "templates"])
def test_every_data_file_and_template_is_installed(package: str, folder: str, kind: str) -> None:
    for path in (ROOT / folder / kind).glob("*"):
        assert (resources.files(package) / kind / path.name).is_file(), path.name


def test_every_package_of_the_source_tree_is_listed() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {"fsibench", "fsibench.methods", "fsibench.datasets", "fsibench.reports"}
    for path in (ROOT / "src" / "fsibench").rglob("__init__.py"):
        found.add(".".join(path.parent.relative_to(ROOT / "src").parts))
    assert set(settings) == found
