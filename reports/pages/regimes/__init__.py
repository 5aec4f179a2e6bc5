"""Gaps and growth: how scores fall where an input has a gap, and rise with the number of training rows."""

from __future__ import annotations

from typing import Any

from fsibench.harness.store import Store
from fsibench.reports.analysis import regimes
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, Sheets

DIGITS = 3


def sheets(report: Report) -> Sheets:
    if not regimes.has_some(report.results.stored):
        return {}
    with Store.read(report.store_path) as store:
        finals = store.evaluations(only_final=True)
    if "ll" not in finals:
        return {}
    finals = finals[finals["entry"].isin(report.results.entries)]
    falls, growth = regimes.falls(finals), regimes.growth(finals)
    return {"regimes.html": content(falls, growth)} if falls or growth else {}


def content(falls: list[regimes.Fall], growth: list[regimes.Growth]) -> dict[str, Any]:
    return {
        "page_title": "Gaps and growth",
        "falls": [
            [line.dataset, line.entry, *(number(value, DIGITS) for value in (line.usual, line.gap, line.fall)), line.splits]
            for line in falls
        ],
        "growth": [_table(dataset, growth) for dataset in dict.fromkeys(line.dataset for line in growth)],
        "reference": f"{regimes.REFERENCE} at {regimes.REFERENCE_ROWS} rows",
        "data": {},
    }


def _table(dataset: str, growth: list[regimes.Growth]) -> dict[str, Any]:
    lines = [line for line in growth if line.dataset == dataset]
    rows = sorted({count for line in lines for count in line.scores})
    return {
        "dataset": dataset,
        "rows": rows,
        "lines": [
            [line.entry, *(number(line.scores[count], DIGITS) if count in line.scores else "–" for count in rows),
             line.needed or "–"]
            for line in lines
        ],
    }  # fmt: skip


PAGE = Page("Gaps and growth", 55, sheets, __name__)
