"""Is A better than B? A picker, a matrix, and the details of a pair."""

from __future__ import annotations

import math
from typing import Any

from fsibench.reports.analysis import duels
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, Sheets, common

SHOWN = ["difference", "low", "high", "wins", "losses", "splits", "needed"]


def sheets(report: Report) -> Sheets:
    keys = [key for key in report.results.tested if report.duels[key]]
    if not keys:
        return {}
    shared = common(report)
    first = report.overview.main_metric if report.overview.main_metric in keys else keys[0]
    content = {
        "page_title": "A or B",
        "metrics": [metric for metric in shared["metrics"] if metric["key"] in keys],
        "first_metric": first,
        "region": number(duels.REGION, 2),
        "rows": text_rows(report, first),
        "data": {**shared, "duels": {key: duel_data(report, key) for key in keys}, "units": units(report)},
    }
    return {"pairs.html": content}


def units(report: Report) -> dict[str, str]:
    """Metric -> unit of the differences on this page."""
    names = {"target": "standard deviations of the target", "nats": "nats"}
    return {key: names.get(metric.unit, "") for key, metric in report.results.metrics.items()}


def duel_data(report: Report, key: str) -> list[dict[str, Any]]:
    entries, datasets = report.results.entries, report.results.datasets
    return [
        {
            "a": entries.index(a),
            "b": entries.index(b),
            "record": duel.record,
            "odds": [_short(value) for value in vars(duel.signed_rank).values()],
            "population": [_short(value) for value in vars(duel.hierarchical).values()],
            "verdict": duels.verdict(duel, len(duel.sets)),
            "sets": [
                [datasets.index(name), *map(_short, row[:3]), *map(int, row[3:6]), _short(row[6])]
                for name, row in zip(duel.sets.index, duel.sets[SHOWN].to_numpy().tolist(), strict=True)
            ],
        }
        for (a, b), duel in report.duels[key].items()
    ]


def _short(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return "never" if math.isinf(value) else float(f"{value:.4g}")


def text_rows(report: Report, key: str) -> list[list[str]]:
    """The pairs as text, for a page without a script."""
    return [[a, b, duels.verdict(duel, len(duel.sets))] for (a, b), duel in report.duels[key].items()]


PAGE = Page("A or B", 45, sheets, __name__)
