"""Imports point inwards: plugins import the core, the core names no plugin, the mathematics know no harness."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGINS = ("fsibench.methods", "fsibench.datasets", "fsibench.reports")
# What a method may use of the core.
FOR_METHODS = ("fsibench.contract", "fsibench.predictive", "fsibench.errors", "fsibench.blocks")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def under(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("path", files("src/fsibench"), ids=lambda path: path.name)
def test_the_core_imports_no_plugin(path: Path) -> None:
    assert not {name for name in imports(path) if under(name, PLUGINS)}


@pytest.mark.parametrize("path", files("src/fsibench/blocks"), ids=lambda path: path.name)
def test_the_mathematics_know_no_harness(path: Path) -> None:
    allowed = ("fsibench.blocks", "fsibench.errors", "fsibench.predictive")
    strangers = {name for name in imports(path) if name.startswith("fsibench") and not under(name, allowed)}
    assert not strangers - {"fsibench"}


@pytest.mark.parametrize("path", files("methods"), ids=lambda path: path.name)
def test_a_method_imports_the_contract_and_the_mathematics_only(path: Path) -> None:
    own = {name for name in imports(path) if name.startswith("fsibench.")}
    public = {f"fsibench.{name}" for name in ("Budget", "Data", "Diverged", "Method", "Posterior", "Predictive")}
    assert not {name for name in own - public if not under(name, (*FOR_METHODS, "fsibench.UsageError"))}


@pytest.mark.parametrize("path", files("reports"), ids=lambda path: path.name)
def test_reports_read_the_store_and_never_the_methods(path: Path) -> None:
    assert not {name for name in imports(path) if under(name, ("fsibench.methods", "fsibench.datasets", "torch"))}


@pytest.mark.parametrize("folder", ["src", "methods", "datasets", "reports"])
def test_nothing_is_pickled(folder: str) -> None:
    assert not [path for path in files(folder) if {"pickle", "joblib", "dill", "cloudpickle"} & imports(path)]
