"""Published numbers beside ours."""

from __future__ import annotations

from typing import Any

from fsibench.metrics import known
from fsibench.reports.analysis import ledger, plausibility
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, single

TONES = {"better": "good", "worse": "bad", "implausible as printed": "warn"}


def ledger_page(report: Report) -> dict[str, Any]:
    lines, others = report.ledger, report.peers
    return {
        "page_title": "Published numbers",
        "counts": ledger.counts(lines),
        "banner": ledger.banner(lines),
        "published_doubts": doubt_rows(ledger.published_doubts(ledger.published())),
        "own_doubts": doubt_rows(ledger.own_doubts(report.overview)),
        "lines": shown(lines),
        "peers": shown(others),
        "peer_counts": {verdict: sum(line.verdict == verdict for line in others) for verdict in sorted({line.verdict for line in others})},
        "data": {},
    }


def shown(lines: list[ledger.Line]) -> list[dict[str, Any]]:
    """Lines as the template needs them. A score of others may be none of our metrics."""
    labels = {"expected ll": "expected LL", **{key: metric.label for key, metric in known().items()}}
    return [{**vars(line), "metric": labels.get(line.metric, line.metric), "tone": TONES.get(line.verdict, "")} for line in lines]


def doubt_rows(doubts: list[plausibility.Doubt]) -> list[list[str]]:
    return [
        [doubt.dataset, known()[doubt.metric].label, doubt.method, doubt.check, doubt.explanation,
         "–" if doubt.reading is None else number(doubt.reading, 3)]
        for doubt in doubts
    ]  # fmt: skip


PAGE = Page("Published numbers", 60, single("ledger.html", ledger_page), __name__)
