"""Scores against training seconds."""

from __future__ import annotations

from typing import Any

from fsibench.reports.analysis.report import Report, file_stems
from fsibench.reports.pages import Page, common, plain, single


def convergence(report: Report) -> dict[str, Any]:
    results, shared = report.results, common(report)
    return {
        "page_title": "Convergence",
        "metrics": [metric for metric in shared["metrics"] if metric["key"] in results.tested],
        "headline": ", ".join(results.metrics[key].label for key in results.headline),
        "data": {**shared, "curves": curves(report, results.datasets), "headline": results.headline},
    }


def curves(report: Report, datasets: list[str], entries: list[str] | None = None) -> dict[str, Any]:
    """Bands of every tested metric: metric -> data set -> entry -> [median, lower, upper quartile]."""
    results, anytime = report.results, report.curves
    shown = results.entries if entries is None else entries
    stems = file_stems(results.datasets)
    return {
        "grid": [plain(anytime.grids[dataset]) for dataset in datasets],
        "bands": {
            metric: [[plain(anytime.band(metric, dataset, entry)) for entry in shown] for dataset in datasets]
            for metric in results.tested
        },
        "figures": [f"convergence-{stems[dataset]}" for dataset in datasets],
    }


PAGE = Page("Convergence", 20, single("convergence.html", convergence), __name__)
