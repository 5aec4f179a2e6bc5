"""A static site from a store: pages that open from disk and ask nothing of a network, tables, figures, Markdown."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from fsibench.reports import figures, pages, tables
from fsibench.reports.overview import Overview
from fsibench.reports.results import load

Page = Callable[[pages.Site], dict[str, Any]]
PAGES: Mapping[str, Page] = {
    "index.html": pages.leaderboard,
    "convergence.html": pages.convergence,
    "calibration.html": pages.calibration_page,
    "statistics.html": pages.statistics_page,
    "functions.html": pages.functions_page,
    "ledger.html": pages.ledger_page,
    "run.html": pages.run_page,
}


def build(
    store_path: Path,
    out_dir: Path,
    where: Mapping[str, str] | None = None,
    formats: Sequence[str] = ("svg",),
) -> Path:
    """Write the whole site; return the path of its first page. `formats`: figures as svg, pdf, png, or none of them."""
    store_path, out_dir = Path(store_path), Path(out_dir)
    figures.check_formats(formats)
    site = pages.Site(Overview(load(store_path, where)), store_path, dict(where or {}))
    out_dir.mkdir(parents=True, exist_ok=True)
    templates = _templates()
    for file, _ in site.navigation():
        content = PAGES[file](site)
        text = templates.get_template(f"{Path(file).stem}.html.j2").render(**_frame(site, file), **content)
        (out_dir / file).write_text(text, encoding="utf-8")
    tables.write(site, out_dir / "tables")
    drawn = figures.write(site, out_dir / "figures", formats)
    (out_dir / "report.md").write_text(markdown(site, drawn), encoding="utf-8")
    return out_dir / "index.html"


def _frame(site: pages.Site, file: str) -> dict[str, Any]:
    """What the base template needs on every page."""
    return {
        "title": f"fsibench: {site.store_path.stem}",
        "navigation": site.navigation(),
        "this_file": file,
        "version": importlib.metadata.version("fsibench"),
        "source": site.store_path.name,
        "style": _read("style.css"),
        "script": _read("app.js"),
    }


def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_read), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )


def _read(name: str) -> str:
    return (resources.files("fsibench.reports") / "templates" / name).read_text(encoding="utf-8")


def markdown(site: pages.Site, drawn: Sequence[tuple[str, str]]) -> str:
    """The report as one Markdown file: ranking, scores, figures, failures, how to reproduce."""
    overview = site.overview
    run = pages.run_page(site)
    parts = [f"# fsibench: {site.store_path.stem}", pages.conditions_sentence(site.results.cells)]
    parts += [f"- {sentence}" for sentence in overview.caveats]
    parts += ["## Ranking", "Mean rank: over dataset × split. Rank of means: over data sets. Lower is better."]
    parts.append(tables.markdown(pages.board_rows(overview), ["entry", *pages.board_heads()]))
    for table in site.score_tables.values():
        parts += [f"## {table['title']}", table["caption"], tables.markdown(table["rows"], ["entry", *table["heads"]])]
    if drawn:
        parts += ["## Figures", *(f"![{title}](figures/{file})" for file, title in drawn)]
    rows = [[row[key] for key in ("entry", "dataset", "split", "status", "message")] for row in run["failures"]]
    heads = ["entry", "data set", "split", "status", "message"]
    parts += ["## Failures", tables.markdown(rows, heads) if rows else "None."]
    parts += ["## Reproduce", *(f"```\n{item['command']}\n```\n\n```json\n{item['environment']}\n```" for item in run["runs"])]
    return "\n\n".join(part for part in parts if part) + "\n"
