"""What the documentation says is true: its code runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fsibench.testing
from fsibench import registry
from fsibench.cli import _parser
from fsibench.data import TableDataset
from fsibench.data.audit import audit
from fsibench.harness.plan import Protocol
from fsibench.reports import companions
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


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_formulas_are_plain_text(path: Path) -> None:
    """Dollar signs mean nothing to our pages: a typeset formula would need a script from the network."""
    assert "$$" not in path.read_text(encoding="utf-8")


def commands_in(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"(?:^|`|\$ |\s{4})fsibench (?!@|is\b)([a-z]+)\b", text, flags=re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_that_is_shown_exists(path: Path) -> None:
    parser = _parser()
    known = next(action.choices for action in parser._actions if action.choices)
    assert commands_in(path) <= set(known)


def command_lines(path: Path) -> list[str]:
    """Whole commands: after a prompt, or indented in a block; a trailing comment is not part of them."""
    found = re.findall(r"^(?:\$ | {4})fsibench ([a-z].*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [line for line in found if not line.startswith(("is ", "import"))]


@pytest.mark.parametrize("path", [path for path in PAGES if command_lines(path)], ids=lambda path: path.name)
def test_every_command_that_is_shown_has_the_options_it_is_shown_with(path: Path) -> None:
    for line in command_lines(path):
        words = shlex.split(line, comments=True)
        words = [re.sub(r"^(N|COUNT)$", "1", word) for word in words]
        _parser().parse_args(words)  # raises UsageError or SystemExit


def test_the_data_set_of_the_plugin_guide_is_split_and_audited(tmp_path: Path) -> None:
    code = next(code for code in fences(ROOT / "docs" / "plugin-guide.md", "python") if "class Wave" in code)
    (tmp_path / "wave.py").write_text(code, encoding="utf-8")
    wave = registry.dataset(f"{tmp_path}/wave.py:Wave[num_rows=50]")
    assert isinstance(wave, TableDataset)
    assert len(wave.split("standard", 0).test_y) == 5
    assert audit(wave) == []
    fewer = registry.dataset(f"{tmp_path}/wave.py:Wave[num_rows=50,train_rows=20]")
    assert fewer.fingerprint() != wave.fingerprint(), "options are part of the identity"


ENTIRE = {"fsibench.predictive", "fsibench.errors"}  # modules of which the page on the API shows every member
PLUGIN_NAMES = (
    "fsibench.reports.pages.Page", "fsibench.reports.pages.single", "fsibench.blocks.priors.Prior", "fsibench.metrics.Metric",
    "fsibench.metrics.Prediction", "fsibench.data.TableDataset", "fsibench.sklearn.FunctionSpaceRegressor",
)  # fmt: skip


def documented_names() -> set[str]:
    """What the page on the API asks autodoc for, without modules."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = {target.rpartition(".")[2] for target in re.findall(r"^\.\. auto(?:function|class|exception):: (\S+)", page, flags=re.MULTILINE)}
    names |= {name for members in re.findall(r":members: (.+)", page) for name in members.split(", ")}
    return names | {name for module in ENTIRE for name in vars(importlib.import_module(module))}


def test_the_page_on_the_api_has_every_public_name() -> None:
    public = {*fsibench.__all__, *fsibench.testing.__all__} - {"__version__"}
    assert public | {name.rpartition(".")[2] for name in PLUGIN_NAMES} <= documented_names()
    for name in PLUGIN_NAMES:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


def test_the_page_on_protocols_names_every_key() -> None:
    page = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
    keys = {field.name for field in dataclasses.fields(Protocol)} - {"name", "seconds"} | {"budget"}
    assert shown == keys


EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_every_example_has_tests_and_says_how_to_install_and_run_it(folder: Path) -> None:
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert f"pip install -c constraints.txt -e . ./examples/{folder.name} pytest" in readme
    assert f"pytest examples/{folder.name}" in readme
    assert list(folder.glob("test_*.py"))
    assert f"| `{folder.name}` |" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


def test_advice_is_given_for_every_method_and_no_other() -> None:
    advice = companions.advice()
    assert set(advice) == set(registry.methods().items)
    assert all(set(lines) == {"use", "cost"} for lines in advice.values())


@pytest.mark.slow
def test_the_metric_page_prior_and_command_of_the_plugin_guide_work_once_installed(tmp_path: Path) -> None:
    code = fences(ROOT / "docs" / "plugin-guide.md", "python")
    parts = {"metric": "METRICS =", "page": "PAGE =", "prior": "class Lines", "command": "def add_parser"}
    for name, mark in parts.items():
        (tmp_path / f"guide_{name}.py").write_text(next(text for text in code if mark in text), encoding="utf-8")
    info = tmp_path / "guide-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guide\nVersion: 1.0\n")
    points = {"metrics": "guide = guide_metric", "pages": "guide = guide_page", "priors": "lines = guide_prior:Lines",
              "commands": "hello = guide_command"}  # fmt: skip
    (info / "entry_points.txt").write_text("".join(f"[fsibench.{group}]\n{line}\n" for group, line in points.items()))

    def command(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "fsibench", *words], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    assert command("hello") == "hello\n"
    methods = "constant,sip[prior=lines,num_test_draws=20]"
    command("run", "smoke", "--methods", methods, "--datasets", "yacht", "--steps", "3", "--store", "s.sqlite", "--report")
    assert "median error" in command("report", "--terminal", "--metrics", "median_error", "--store", "s.sqlite")
    assert "<td>sip[prior=lines,num_test_draws=20]</td>" in (tmp_path / "s-report" / "ranks.html").read_text(encoding="utf-8")
