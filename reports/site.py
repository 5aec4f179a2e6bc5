"""A static site from a store: opens from disk, asks nothing of a network."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from tabulate import tabulate

from fsibench.reports import figures
from fsibench.reports.anytime import Anytime
from fsibench.reports.looks import looks, number, with_error
from fsibench.reports.overview import Overview
from fsibench.reports.results import METRICS, SCORES, load


def build(store_path: Path, out_dir: Path, where: Mapping[str, str] | None = None) -> Path:
    """Write index.html and report.md; return the path of index.html."""
    overview = Overview(load(store_path, where))
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    content = _content(overview)
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        (resources.files("fsibench.reports") / "templates" / "index.html.j2").read_text(encoding="utf-8")
    )
    index = out_dir / "index.html"
    index.write_text(template.render(**content), encoding="utf-8")
    (out_dir / "report.md").write_text(_markdown(content), encoding="utf-8")
    return index


def _content(overview: Overview) -> dict[str, Any]:
    results = overview.results
    anytime, style = Anytime.of(results), looks(results.entries)
    failed = results.cells[results.failed | ~results.finished].sort_values(["entry", "dataset", "split"])
    heads = [f"{METRICS[key].label}: {kind}" for key in SCORES for kind in ("mean rank", "rank of means")]
    return {
        "title": f"fsibench: {results.source.stem}",
        "caveats": overview.caveats,
        "board_heads": [*heads, "failed", "training seconds"],
        "board_rows": [_board_row(str(entry), row) for entry, row in overview.board.iterrows()],
        "tables": [_table(overview, key) for key in SCORES],
        "figures": [_figure(anytime, dataset, style) for dataset in results.datasets],
        "failures": failed[["entry", "dataset", "split", "status", "message"]].fillna("").values.tolist(),
        "runs": [
            {"command": shlex.join(run["command"]), "environment": json.dumps(run["environment"], indent=1)}
            for run in results.runs
        ],
    }


def _board_row(entry: str, row: Any) -> list[str]:
    ranks = [row[f"{kind}_{key}"] for key in SCORES for kind in ("mean_rank", "rank_of_means")]
    name = entry + (f" ({row['note']})" if row["note"] else "") + (" ⚠ diagnostics failed" if row["doubtful"] else "")
    texts = ["–" if np.isnan(rank) else f"{rank:.2f}" for rank in ranks]
    return [name, *texts, f"{row['failed']}/{row['cells']}", number(row["train_seconds"], 3)]


def _table(overview: Overview, key: str) -> dict[str, Any]:
    summary, metric = overview.summary(key), METRICS[key]
    rows = []
    for entry in overview.board.index:
        cells = [summary.loc[(dataset, entry)] for dataset in overview.results.datasets]
        rows.append([entry, *(_score(cell) for cell in cells)])
    caption = f"Mean ± standard error over splits of the {metric.explanation}; {metric.direction}. † has failed cells."
    return {"title": metric.label, "caption": caption, "heads": overview.results.datasets, "rows": rows}


def _score(cell: Any) -> str:
    if np.isnan(cell["mean"]):
        return "failed" if cell["failed"] else "–"
    mean, error = with_error(cell["mean"], cell["standard_error"])
    return f"{mean} ± {error}" + (" †" if cell["failed"] else "")


def _figure(anytime: Anytime, dataset: str, style: Mapping[str, Any]) -> dict[str, str]:
    svg = figures.render(figures.curves(anytime, dataset, SCORES, style), "svg").decode()
    return {"title": f"{dataset}: median over splits, band between the quartiles", "svg": svg[svg.index("<svg") :]}


def _markdown(content: Mapping[str, Any]) -> str:
    parts = [f"# {content['title']}", *content["caveats"], "## Ranking"]
    parts.append(tabulate(content["board_rows"], ["entry", *content["board_heads"]], "github", disable_numparse=True))
    for table in content["tables"]:
        body = tabulate(table["rows"], ["entry", *table["heads"]], "github", disable_numparse=True)
        parts += [f"## {table['title']}", table["caption"], body]
    heads = ["entry", "data set", "split", "status", "message"]
    parts += ["## Failures", tabulate(content["failures"], heads, "github") if content["failures"] else "None."]
    parts += ["## Reproduce", *(f"```\n{run['command']}\n{run['environment']}\n```" for run in content["runs"])]
    return "\n\n".join(parts) + "\n"
