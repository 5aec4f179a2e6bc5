"""Pages of the site, one folder each: Python, template (`page.html.j2`) and scripts (`*.js`) together.

A page is found by its folder here, or by the entry-point group `fsibench.pages` of an installed package. Either way the
value is a module with a `PAGE` (or the Page itself). `sheets` returns the files that the page writes, mostly one:
file name -> what its template needs, with `page_title` and, for the scripts, `data`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fsibench.errors import UsageError
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Floats, direction, explanation
from fsibench.reports.styles import styles

GROUP = "fsibench.pages"
Sheets = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Page:
    """One kind of page. `package` holds its template and scripts; a page without a file of its own gives `template`."""

    title: str
    order: int  # place in the navigation
    sheets: Callable[[Report], Sheets]
    package: str = ""
    template: str = ""

    def template_text(self) -> str:
        if self.template:
            return self.template
        return (resources.files(self.package) / "page.html.j2").read_text(encoding="utf-8")

    def scripts(self) -> list[str]:
        """Texts of the page's own scripts, by name; the last one draws."""
        if not self.package:
            return []
        files = sorted(resources.files(self.package).iterdir(), key=lambda item: item.name)
        return [item.read_text(encoding="utf-8") for item in files if item.name.endswith(".js")]


def single(file: str, content: Callable[[Report], Mapping[str, Any]]) -> Callable[[Report], Sheets]:
    """Sheets of a page that is one file."""
    return lambda report: {file: content(report)}


def own_pages() -> list[Page]:
    """The pages of this package, in the order of the navigation."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return sorted((module.PAGE for module in modules), key=lambda page: (page.order, page.title))


def plugin_pages() -> tuple[dict[str, Page], dict[str, str]]:
    """Pages of installed packages by entry point, and what is wrong with those that cannot be loaded."""
    pages: dict[str, Page] = {}
    faults: dict[str, str] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            value = point.load()
            page = getattr(value, "PAGE", value)
            if not isinstance(page, Page):
                raise UsageError(f"the entry point {point.name!r} of {GROUP} gives no page; it must name a Page or a module with PAGE.")
            pages[point.name] = page
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin may fail in any way)
            faults[point.name] = fault_text(error)
    return pages, faults


def fault_text(error: BaseException) -> str:
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"


def common(report: Report) -> dict[str, Any]:
    """What the scripts of every page need: entries with their looks, data sets, metrics, links."""
    results, board = report.results, report.overview.board
    styled = styles(results.stored_names)
    entries = [
        {
            "name": entry,
            "colour": styled[entry].colour,
            "dash": list(styled[entry].dash),
            "note": results.notes.get(entry, ""),
            "doubtful": int(board.loc[entry, "doubtful"]),
            "page": report.entry_files[entry],
        }
        for entry in results.entries
    ]
    return {
        "entries": entries,
        "datasets": results.datasets,
        "dataset_pages": [report.dataset_files[name] for name in results.datasets],
        "metrics": metrics(report),
        "figures": {"names": report.figure_names, "formats": list(report.formats)},
    }


def metrics(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "key": metric.key,
            "label": metric.label,
            "larger": metric.larger_is_better,
            "direction": direction(metric),
            "explanation": explanation(metric),
        }
        for metric in report.results.metrics.values()
    ]


def plain(values: Floats | None) -> Any:
    """Nested lists with five significant digits and null for NaN."""
    if values is None:
        return None
    if values.ndim > 1:
        return [plain(row) for row in values]
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
