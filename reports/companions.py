"""Fragments that stand beside the board: numbers of other papers, entries against the first one, what the search found."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pandas as pd

from fsibench.reports import markdown
from fsibench.reports.analysis import peers
from fsibench.reports.analysis.report import Report
from fsibench.tuning import record


def peers_table(report: Report) -> str:
    """Published numbers of other papers beside ours, for the columns that our entries answer for."""
    results = report.results
    columns = set(results.cells["reproduces"]) - {""}
    lines = [line for line in peers.lines(report.overview) if line.method in columns and line.dataset in results.datasets]
    rows = [[line.dataset, line.metric.upper(), line.printed, line.ours_text, line.verdict, line.why] for line in lines]
    counts = pd.Series([line.verdict for line in lines]).value_counts()
    told = ", ".join(f"{name} {number}" for name, number in counts.items())
    return "\n\n".join([markdown.table(rows, ["data set", "score", "published", "ours", "verdict", "why"]), f"Verdicts: {told}."])


def against_first(report: Report) -> str:
    """On how many data sets each entry has a better mean than the first one by name."""
    overview, results = report.overview, report.results
    first, *others = sorted(results.entries)
    rows = []
    for entry in others:
        row = [f"`{entry}`"]
        for key in results.headline:
            means = overview.summaries[key]["mean"]
            gains = [float(means[dataset, entry] - means[dataset, first]) for dataset in results.datasets]
            better = sum(gain > 0.0 if results.metrics[key].larger_is_better else gain < 0.0 for gain in gains)
            row.append(f"{better} of {len(gains)}")
        rows.append(row)
    heads = [f"better than `{first}` in", *(results.metrics[key].label for key in results.headline)]
    table: str = markdown.table(rows, heads)
    return table


def defaults() -> str:
    """What the common search found for each method, from `methods/defaults/`."""
    folder = Path(str(resources.files("fsibench.methods") / "defaults"))
    heads = ["method", "points", "merit before", "merit now", "changed"]
    table: str = markdown.table(record.summary(folder), heads)
    return table
