"""A page per entry: options, paper, curves, calibration, failures, panels of functions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fsibench.reports.analysis.failures import doubtful_rows, failure_table
from fsibench.reports.analysis.options import option_table
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import LEVELS
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, Sheets, common
from fsibench.reports.pages.calibration import calibration_item
from fsibench.reports.pages.convergence import curves
from fsibench.reports.texts import COSTS, score_text

MOST_ROWS = 200


def sheets(report: Report) -> Sheets:
    listing: dict[str, Any] = {
        "page_title": "Entries",
        "listing": [listing_row(report, str(entry), row) for entry, row in report.overview.board.iterrows()],
        "entry": None,
        "data": {},
    }
    shared, options = common(report), option_table(report.results)
    failures, doubtful = failure_table(report.results), doubtful_rows(report.results)
    pages = {
        report.entry_files[entry]: {
            "page_title": entry,
            "listing": [],
            "entry": entry,
            "facts": facts(report, entry),
            "standing": standing_rows(report, entry),
            "options": options[options["entry"] == entry].to_dict("records"),
            "scores": score_rows(report, entry),
            "score_heads": [metric.label for metric in report.results.metrics.values()],
            "failures": failures[failures["entry"] == entry].head(MOST_ROWS).to_dict("records"),
            "doubtful": [row for row in doubtful if row["entry"] == entry][:MOST_ROWS],
            "data": page_data(report, shared, entry),
        }
        for entry in report.results.entries
    }
    return {"entries.html": listing, **pages}


def listing_row(report: Report, entry: str, row: pd.Series) -> dict[str, Any]:
    main = report.overview.main_metric
    rank = row[f"mean_rank_{main}"]
    return {
        "entry": entry,
        "page": report.entry_files[entry],
        "note": row["note"],
        "rank": "–" if pd.isna(rank) else f"{rank:.2f}",
        "failed": f"{row['failed']} of {row['cells']}",
    }


def facts(report: Report, entry: str) -> list[tuple[str, str]]:
    results, row = report.results, report.overview.board.loc[entry]
    cells = results.cells[results.cells["entry"] == entry]
    published = ", ".join(sorted({text for text in cells["reproduces"] if text}))
    paper = results.citations.get(results.methods[entry], "")
    variant = ", ".join(sorted({text for text in cells["variant"] if text}))
    named = {
        "method": results.methods[entry],
        "paper": paper,
        "note": ", ".join(sorted({text for text in cells["note"] if text})),
        "variant": variant,
        "answers for the published column": published,
        "cells": f"{row['cells']}, of which {row['failed']} failed and {row['unfinished']} did not finish",
        "own diagnostics": f"failed in {row['doubtful']} cells" if row["doubtful"] else "",
    }
    named |= {head: number(float(row[name]), 3) for name, head in COSTS.items()}
    return [(name, value) for name, value in named.items() if value]


def standing_rows(report: Report, entry: str) -> list[list[str]]:
    """Per metric: mean rank, interval, rank of means, tier."""
    rows = []
    for standing in report.standings.values():
        if entry in standing.table.index:
            row, count = standing.table.loc[entry], len(standing.table)
            interval = "–" if pd.isna(row["low"]) else f"{row['low']:.2f} to {row['high']:.2f}"
            place = int((standing.table["mean_rank"] < row["mean_rank"]).sum()) + 1
            rows.append([standing.metric.label, f"{place} of {count}", f"{row['mean_rank']:.2f}", interval,
                         f"{row['rank_of_means']:.2f}", str(int(row["tier"]))])  # fmt: skip
    return rows


def score_rows(report: Report, entry: str) -> list[dict[str, Any]]:
    overview, results = report.overview, report.results
    return [
        {
            "dataset": dataset,
            "page": report.dataset_files[dataset],
            "cells": [score_text(overview, key, dataset, entry) for key in results.metrics],
        }
        for dataset in results.datasets
    ]


def page_data(report: Report, shared: dict[str, Any], entry: str) -> dict[str, Any]:
    results = report.results
    own = [item for item in shared["entries"] if item["name"] == entry]
    panels = [
        {**panel, "columns": [column for column in panel["columns"] if column["entry"] == entry]}
        for panel in report.panels
        if any(column["entry"] == entry for column in panel["columns"])
    ]
    return {
        **shared,
        "entries": own,
        "first_metric": report.overview.main_metric,
        "levels": LEVELS.tolist(),
        "curves": curves(report, results.datasets, [entry]),
        "calibration": [calibration_item(report.calibrations.get((name, entry))) for name in results.datasets],
        "panels": panels,
    }


PAGE = Page("Entries", 52, sheets, __name__)
