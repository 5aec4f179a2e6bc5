"""Imports point inwards: plugins import the core, the core names no plugin, the mathematics know no harness."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
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


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


ALL = [path for folder in ("src/fsibench", "methods", "datasets", "reports") for path in files(folder)]
# The front door names everything public, commands as Python calls among it, and imports them on first use.
FRONT = (ROOT / "src/fsibench/__init__.py", ROOT / "src/fsibench/__main__.py")
CORE = [path for path in files("src/fsibench") if "cli" not in path.parts and path not in FRONT]


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_imports_no_plugin(path: Path) -> None:
    """The command line is the outermost room: it may import reports, nothing imports it."""
    assert not {name for name in imports(path) if under(name, (*PLUGINS, "fsibench.cli"))}


@pytest.mark.parametrize("path", files("src/fsibench/cli"), ids=relative)
def test_the_command_line_imports_no_method_and_no_data_set(path: Path) -> None:
    assert not {name for name in imports(path) if under(name, ("fsibench.methods", "fsibench.datasets"))}


@pytest.mark.parametrize("path", ALL, ids=relative)
def test_no_module_is_imported_by_a_string(path: Path) -> None:
    """Discovery may import what it found in a folder; a literal name hides a dependency from identities and readers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            assert not isinstance(node.args[0], ast.Constant), f"line {node.lineno} imports by a string"


@pytest.mark.parametrize("path", ALL, ids=relative)
def test_no_module_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_at_most_a_dozen_modules_stand_at_the_top_of_the_core() -> None:
    assert len([path for path in (ROOT / "src/fsibench").glob("*.py") if not path.name.startswith("__")]) <= 12


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    start = parts.index("src") + 1 if "src" in parts else len(ROOT.parts)
    name = ".".join(parts[start:]).removesuffix(".__init__")
    return name if name.startswith("fsibench") else f"fsibench.{name}"


def top_level_imports(path: Path) -> set[str]:
    """What is imported when the module itself is imported: not inside functions, not for type checkers only."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_no_two_modules_import_each_other() -> None:
    modules = {module_name(path): path for path in ALL}
    graph = {name: (top_level_imports(path) & set(modules)) - {name} for name, path in modules.items()}
    # A package re-exports its own modules; they import their siblings by full name, which is no cycle between rooms.
    graph = {name: {other for other in found if not name.startswith(f"{other}.")} for name, found in graph.items()}
    assert list(TopologicalSorter(graph).static_order())


def test_the_page_on_architecture_names_every_room_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([\w/]+)/` \|", page, flags=re.MULTILINE))
    rooms = {
        relative(path.parent) for path in ALL if path.name == "__init__.py" and relative(path) != "src/fsibench/__init__.py"
    }
    assert named == {room for room in rooms if not room.startswith("reports/pages/")}


COMMAND = """
def add_parser(commands):
    commands.add_parser("hello", help="says hello").set_defaults(handler=lambda arguments: print("hello") or 0)
"""


def test_a_command_of_a_plugin_is_one_file(tmp_path: Path) -> None:
    info = tmp_path / "hello_command-1.0.dist-info"
    info.mkdir()
    (tmp_path / "hello_command.py").write_text(COMMAND)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello-command\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsibench.commands]\nhello = hello_command\nbroken = no_such_module\n")
    done = subprocess.run(
        [sys.executable, "-m", "fsibench", "hello"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "hello\n"
    assert "no_such_module" in done.stderr, "a broken command breaks only itself"


@pytest.mark.parametrize("path", files("src/fsibench/blocks"), ids=lambda path: path.name)
def test_the_mathematics_know_no_harness(path: Path) -> None:
    allowed = ("fsibench.blocks", "fsibench.errors", "fsibench.predictive")
    strangers = {name for name in imports(path) if name.startswith("fsibench") and not under(name, allowed)}
    assert not strangers - {"fsibench"}


DRAWS = ROOT / "src/fsibench/blocks/draws.py"
DRAWING = [path for folder in ("methods", "src/fsibench/blocks", "src/fsibench/references") for path in files(folder) if path != DRAWS]


@pytest.mark.parametrize("path", DRAWING, ids=relative)
def test_normal_numbers_and_chunks_of_rows_have_one_helper(path: Path) -> None:
    """`blocks.draws` alone says how random numbers take their device, and how many rows are computed at a time."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name != "torch.randn", f"line {node.lineno}: use blocks.draws.normal"
            own_chunks = name.endswith(("x.split", "rows.split"))
            assert not own_chunks, f"line {node.lineno}: use blocks.draws.by_rows or chunks"


@pytest.mark.parametrize("path", files("methods"), ids=lambda path: path.name)
def test_a_method_imports_the_contract_and_the_mathematics_only(path: Path) -> None:
    own = {name for name in imports(path) if name.startswith("fsibench.")}
    public = {f"fsibench.{name}" for name in ("Budget", "Data", "Diverged", "Method", "Posterior", "Predictive")}
    # `tuned` runs other methods: it finds them by name, and draws from the spaces that they declare.
    more = ("fsibench.registry", "fsibench.tuning.space") if path.name == "tuned.py" else ()
    assert not {name for name in own - public if not under(name, (*FOR_METHODS, "fsibench.UsageError", *more))}


@pytest.mark.parametrize("path", files("reports"), ids=lambda path: path.name)
def test_reports_read_the_store_and_never_the_methods(path: Path) -> None:
    assert not {name for name in imports(path) if under(name, ("fsibench.methods", "fsibench.datasets", "torch"))}


@pytest.mark.parametrize("folder", ["src", "methods", "datasets", "reports"])
def test_nothing_is_pickled(folder: str) -> None:
    assert not [path for path in files(folder) if {"pickle", "joblib", "dill", "cloudpickle"} & imports(path)]
