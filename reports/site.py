"""A static site from a store: pages that open from disk and ask nothing of a network, tables, figures, Markdown."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from fsibench.errors import UsageError
from fsibench.reports import figures, markdown, tables
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Subset
from fsibench.reports.pages import Page, Sheets, all_pages

SHARED_SCRIPTS = ("tools.js", "tables.js", "charts.js", "curves.js", "calibration.js", "functions.js")


def build(
    store_path: Path,
    out_dir: Path,
    where: Mapping[str, str] | None = None,
    formats: Sequence[str] = ("svg",),
    subset: Subset | None = None,
    refresh: int | None = None,
) -> Path:
    """Write the whole site; return the path of its first page.

    `formats`: figures as svg, pdf, png, or none of them. `refresh`: pages reload themselves after so many seconds.
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


def write_pages(report: Report, out_dir: Path, refresh: int | None = None) -> None:
    made = [(page, page.sheets(report)) for page in all_pages()]
    frame = {**_frame(report, made), "refresh": refresh}
    for page, sheets in made:
        template = _template(page)
        for file, content in sheets.items():
            text = template.render(**frame, this_file=file, scripts=page.scripts(), **content)
            fresh = out_dir / f"{file}.new"  # renamed when it is whole: a reader never meets half a page
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(out_dir / file)


def _frame(report: Report, made: Sequence[tuple[Page, Sheets]]) -> dict[str, Any]:
    """What the base template needs on every page."""
    files = [file for _, sheets in made for file in sheets]
    for file in {file for file in files if files.count(file) > 1}:
        raise UsageError(f"two pages write {file}; rename the one of the plugin.")
    return {
        "title": report.title,
        "navigation": [(next(iter(sheets)), page.title) for page, sheets in made if sheets],
        "version": importlib.metadata.version("fsibench"),
        "source": report.store_path.name,
        "style": _shared("style.css"),
        "shared_scripts": [_shared(name) for name in SHARED_SCRIPTS],
    }


def _template(page: Page) -> jinja2.Template:
    texts = {"base": _shared("base.html.j2"), "page": page.template_text()}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(texts), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page")


def _shared(name: str) -> str:
    return (resources.files("fsibench.reports.pages") / "shared" / name).read_text(encoding="utf-8")
