"""Pages are found by folder and by entry point; the numbers behind them know nothing of HTML."""

from __future__ import annotations

import ast
import html
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fsibench.reports import pages, site
from fsibench.reports.analysis.report import Report

MakeStore = Callable[..., Path]
ROOT = Path(__file__).parents[2] / "reports"
MODULE = """
from fsibench.reports.pages import Page, single

def slowest(report):
    return {"page_title": "Slowest", "name": report.overview.board["train_seconds"].idxmax(), "data": {}}

PAGE = Page("Slowest", 80, single("slowest.html", slowest), template='''{% extends "base" %}{% block content %}
<p id="slowest">{{ name }}</p>{% endblock %}''')
"""
FOLDER = MODULE.replace("template='''", "__name__)\nIGNORED = ('''")


def install(folder: Path, value: str) -> None:
    """What pip leaves behind of a package with one entry point."""
    information = folder / "slow_plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[fsibench.pages]\nslowest = {value}\n")


@pytest.fixture
def plugin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "slow_page", raising=False)
    importlib.invalidate_caches()
    return folder


def test_a_module_of_an_installed_package_is_a_page(
    make_store: MakeStore, plugin_folder: Path, tmp_path: Path
) -> None:
    (plugin_folder / "slow_page.py").write_text(MODULE)
    install(plugin_folder, "slow_page")
    store = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2)
    folder = site.build(store, tmp_path / "site", formats=()).parent
    assert '<p id="slowest">bbb</p>' in (folder / "slowest.html").read_text(encoding="utf-8")
    assert '<a href="slowest.html">Slowest</a>' in (folder / "index.html").read_text(encoding="utf-8")


def test_a_folder_of_an_installed_package_brings_template_and_scripts(
    make_store: MakeStore, plugin_folder: Path, tmp_path: Path
) -> None:
    package = plugin_folder / "slow_page"
    package.mkdir()
    (package / "__init__.py").write_text(FOLDER)
    (package / "page.html.j2").write_text('{% extends "base" %}{% block content %}<i>{{ name }}</i>{% endblock %}')
    (package / "page.js").write_text('document.title = "from the plugin"; ready();')
    install(plugin_folder, "slow_page:PAGE")
    store = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2)
    text = (site.build(store, tmp_path / "site", formats=()).parent / "slowest.html").read_text(encoding="utf-8")
    assert "<i>bbb</i>" in text
    assert "from the plugin" in text


FAULTS = {
    "PAGE = 3\n": "the entry point 'slowest' of fsibench.pages gives no page",
    "import nothing_of_this_name\n": "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    "raise SystemExit(3)\n": "SystemExit: 3",
    MODULE.replace("report.overview", "report.over"): "AttributeError: 'Report' object has no attribute 'over'",
    MODULE.replace("{{ name }}", "{{ nam }}"): "UndefinedError: 'nam' is undefined",
    MODULE.replace("{{ name }}", "{% nonsense %}"): "TemplateSyntaxError: Encountered unknown tag 'nonsense'",
    MODULE.replace("slowest.html", "index.html"): "two pages write index.html; rename the one of the plugin",
}


@pytest.mark.parametrize("source", FAULTS, ids=["no page", "import", "exit", "numbers", "name", "syntax", "file"])
def test_a_broken_plugin_breaks_only_itself_and_is_named(
    make_store: MakeStore, plugin_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    (plugin_folder / "slow_page.py").write_text(source)
    install(plugin_folder, "slow_page")
    store = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2)
    (tmp_path / "site").mkdir()
    broken = site.write_pages(Report.read(store), tmp_path / "site")
    assert list(broken) == ["slowest"]
    assert broken["slowest"].startswith(FAULTS[source])
    assert FAULTS[source] in caplog.text
    for file in (tmp_path / "site").glob("*.html"):
        text = html.unescape(file.read_text(encoding="utf-8"))
        assert FAULTS[source] in text
        assert "slowest.html" not in text
    assert "<h1>Leaderboard</h1>" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert not (tmp_path / "site" / "slowest.html").exists()


def test_every_folder_of_the_package_is_a_page() -> None:
    folders = {path.parent.name for path in (ROOT / "pages").glob("*/__init__.py")}
    assert {page.package.rpartition(".")[2] for page in pages.own_pages()} == folders


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_site_and_the_pages_know_html(path: Path) -> None:
    if path.parent.parent.name == "pages" or path.name in ("site.py", "templates.py") or path.parent.name == "history":
        return  # the history is a site of one page
    assert not {name for name in imported(path) if name.startswith(("jinja2", "fsibench.reports.pages."))}
    if path.parent.name == "analysis":
        assert not {name for name in imported(path) if name.startswith(("matplotlib", "fsibench.reports.pages"))}


@pytest.mark.parametrize("path", sorted((*ROOT.rglob("*.py"), *ROOT.rglob("*.js"))), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
