"""Scores against training seconds."""

from __future__ import annotations

from typing import Any

from fsibench.reports.analysis.anytime import Anytime
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import METRICS
from fsibench.reports.pages import Page, common, metrics, plain, single

MOST_CURVE_NUMBERS = 400_000

def convergence(report: Report) -> dict[str, Any]:
    results = report.results
    pairs = max(len(results.entries) * len(results.datasets) * len(METRICS) * 3, 1)
    anytime = Anytime.per_dataset(results, min(max(MOST_CURVE_NUMBERS // pairs, 6), 40))
    bands = {
        metric: [
            [plain(anytime.band(metric, dataset, entry)) for entry in results.entries] for dataset in results.datasets
        ]
        for metric in METRICS
    }
    grids = [plain(anytime.grids[dataset]) for dataset in results.datasets]
    curves = {"grid": grids, "bands": bands}
    return {
        "page_title": "Convergence",
        "metrics": metrics(),
        "data": {**common(report), "curves": curves},
    }


PAGE = Page("Convergence", 20, single("convergence.html", convergence), __name__)
