"""A static site from a store: pages that open from disk and ask nothing of a network, tables, figures, Markdown."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsibench.errors import UsageError
from fsibench.reports import figures, markdown, tables
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Subset
from fsibench.reports.pages import Page, Sheets, fault_text, own_pages, plugin_pages
from fsibench.reports.templates import page_template, shared_file

logger = logging.getLogger(__name__)

# Pages without data of their own have tables and nothing to draw.
TABLE_SCRIPTS = ("tools.js", "tables.js")
CHART_SCRIPTS = ("pdf.js", "takeaway.js", "charts.js", "curves.js", "calibration.js", "functions.js")


def build(
    store_path: Path,
    out_dir: Path,
    where: Mapping[str, str] | None = None,
    formats: Sequence[str] = (),
    subset: Subset | None = None,
    refresh: int | None = None,
) -> Path:
    """Write the whole site; return the path of its first page.

    `formats`: of figures drawn beside the pages: svg, pdf, png. `refresh`: pages reload themselves after so many seconds.
    """
    store_path, out_dir = Path(store_path), Path(out_dir)
    figures.check_formats(formats)
    report = Report.read(store_path, where, subset)
    report = dataclasses.replace(report, formats=tuple(formats), figure_names=figures.names(report) if formats else ())
    out_dir.mkdir(parents=True, exist_ok=True)
    write_pages(report, out_dir, refresh)
    tables.write(report, out_dir / "tables")
    drawn = figures.write(report, out_dir / "figures", formats)
    (out_dir / "report.md").write_text(markdown.document(report, drawn), encoding="utf-8")
    return out_dir / "index.html"


@dataclasses.dataclass(frozen=True)
class Made:
    """A page with what its templates need."""

    page: Page
    sheets: Sheets
    plugin: str = ""  # entry point that offers it; empty for a page of our own


def write_pages(report: Report, out_dir: Path, refresh: int | None = None) -> dict[str, str]:
    """Write every page; returns the plugins that could not be shown, each with its fault."""
    made, broken = _made(report)
    while faults := _render(report, made, broken, refresh, out_dir):
        # Navigation and footer name what is there, so the others are written again without it.
        broken |= faults
        made = [item for item in made if item.plugin not in faults]
    for file in (file for item in made for file in item.sheets):
        _fresh(out_dir, file).replace(out_dir / file)
    for plugin, fault in broken.items():
        logger.warning("the page of the plugin %s is left out: %s", plugin, fault)
    return broken


def _made(report: Report) -> tuple[list[Made], dict[str, str]]:
    """Our own pages, the plugins' pages among them, and the plugins that failed."""
    made = [Made(page, page.sheets(report)) for page in own_pages()]
    plugins, broken = plugin_pages()
    for name, page in plugins.items():
        try:
            sheets = page.sheets(report)
            taken = {file for item in made for file in item.sheets}
            if doubled := sorted(taken & set(sheets)):
                raise UsageError(f"two pages write {doubled[0]}; rename the one of the plugin.")
            made.append(Made(page, sheets, name))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin may fail in any way, and breaks only itself)
            broken[name] = fault_text(error)
    return sorted(made, key=lambda item: (item.page.order, item.page.title)), broken


def _fresh(out_dir: Path, file: str) -> Path:
    """Where a page is written, to be renamed when all are whole: a reader never meets half a page."""
    return out_dir / f"{file}.new"


def _render(
    report: Report, made: Sequence[Made], broken: Mapping[str, str], refresh: int | None, out_dir: Path
) -> dict[str, str]:
    """Write every page under its `_fresh` name; returns the plugins whose templates failed, whose pages are not there."""
    frame = {**_frame(report, made), "refresh": refresh, "broken": dict(broken)}
    tables_only, charts = ([shared_file(name) for name in names] for names in (TABLE_SCRIPTS, CHART_SCRIPTS))
    faults: dict[str, str] = {}
    for item in made:
        try:
            template, scripts = page_template(item.page.template_text()), item.page.scripts()
            for file, content in item.sheets.items():
                shared = [*tables_only, *(charts if content.get("data") else ())]
                text = template.generate(**frame, this_file=file, shared_scripts=shared, scripts=scripts, **content)
                with _fresh(out_dir, file).open("wb") as page:  # piece by piece: the first page may have many megabytes
                    page.writelines(piece.encode() for piece in text)
        except Exception as error:
            for file in item.sheets:
                _fresh(out_dir, file).unlink(missing_ok=True)
            if not item.plugin:
                raise
            faults[item.plugin] = fault_text(error)
    return faults


def _frame(report: Report, made: Sequence[Made]) -> dict[str, Any]:
    """What the base template needs on every page."""
    return {
        "title": report.title,
        "navigation": [(next(iter(item.sheets)), item.page.title) for item in made if item.sheets],
        "version": importlib.metadata.version("fsibench"),
        "source": report.store_path.name,
        "style": shared_file("style.css"),
    }
