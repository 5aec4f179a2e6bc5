"""Median absolute error as a metric, and a page that lists it."""

from __future__ import annotations

from typing import Any

from fsibench.metrics import Metric, Prediction
from fsibench.reports.pages import Page, single


def median_error(prediction: Prediction) -> float:
    return float((prediction.predictive.mean - prediction.y).abs().median())


METRICS = (Metric("median_error", "median error", "target", False, median_error, "median absolute error of the mean"),)


def content(report: Any) -> dict[str, Any]:
    results = report.results
    if "median_error" not in results.curves.values:
        return {"page_title": "Median error", "rows": [], "data": {}}
    cells = results.cells.assign(value=results.final("median_error"))
    means = cells.groupby(["dataset", "entry"], observed=True)["value"].mean().sort_values()
    table = means.groupby(level=0, observed=True).head(3)
    return {"page_title": "Median error", "rows": [(*key, f"{value:.3g}") for key, value in table.items()], "data": {}}


TEMPLATE = """{% extends "base" %}{% block content %}
<h2>Best three entries by median error</h2>
<table><thead><tr><th>data set</th><th>entry</th><th>median error</th></tr></thead><tbody>
{% for dataset, entry, value in rows %}<tr><td>{{ dataset }}</td><td>{{ entry }}</td><td>{{ value }}</td></tr>{% endfor %}
</tbody></table>{% endblock %}"""

PAGE = Page("Median error", 90, single("median-error.html", content), template=TEMPLATE)
