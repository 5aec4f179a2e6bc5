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


@pytest.mark.parametrize("folder", ["datasets", "reports"])
def test_every_data_file_is_installed(folder: str) -> None:
    for path in (ROOT / folder / "data").glob("*"):
        assert (resources.files(f"fsibench.{folder}") / "data" / path.name).is_file(), path.name


def test_every_file_of_a_page_is_installed() -> None:
    installed = resources.files("fsibench.reports.pages")
    for path in (ROOT / "reports" / "pages").glob("*/*.*"):
        assert (installed / path.parent.name / path.name).is_file(), path


def test_every_report_package_is_listed_or_a_page() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "reports").rglob("__init__.py")}
    packages = {f"fsibench.{'.'.join(folder.parts)}" for folder in folders}
    assert {name for name in packages if not name.startswith("fsibench.reports.pages.")} <= set(settings)


def test_every_package_of_the_source_tree_is_listed() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {"fsibench", "fsibench.methods", "fsibench.datasets"}
    found |= {name for name in settings if name.startswith("fsibench.reports")}
    for path in (ROOT / "src" / "fsibench").rglob("__init__.py"):
        found.add(".".join(path.parent.relative_to(ROOT / "src").parts))
    assert set(settings) == found
