"""Panels of one-dimensional sets."""

from __future__ import annotations

from typing import Any

from fsibench.reports.analysis.report import Report
from fsibench.reports.pages import Page, Sheets, common


def functions_page(report: Report) -> dict[str, Any]:
    return {"page_title": "Functions", "data": {**common(report), "panels": report.panels}}


def sheets(report: Report) -> Sheets:
    return {"functions.html": functions_page(report)} if report.panels else {}


PAGE = Page("Functions", 50, sheets, __name__)
