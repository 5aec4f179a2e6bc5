"""Failures, diagnostics, cost, conditions, commands."""

from __future__ import annotations

import shlex
from typing import Any

import pandas as pd

from fsibench.reports import references
from fsibench.reports.analysis import ranking
from fsibench.reports.analysis.failures import doubtful_rows, failure_table
from fsibench.reports.analysis.options import option_table
from fsibench.reports.analysis.overview import Overview, failure_rule
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, single
from fsibench.reports.texts import entry_name, run_texts

MOST_ROWS = 500

def run_page(report: Report) -> dict[str, Any]:
    overview, results = report.overview, report.results
    failures = failure_table(results)
    doubtful = doubtful_rows(results)
    chosen = [word for key, value in report.where.items() for word in (f"--{key}", value)]
    return {
        "page_title": "Runs and failures",
        "failures": failures.head(MOST_ROWS).to_dict("records"),
        "more_failures": max(len(failures) - MOST_ROWS, 0),
        "failure_rule": f"In the ranking, {failure_rule(ranking.CONSTANT in results.entries)} "
        "Cells that were interrupted or lost count as not run.",
        "doubtful": doubtful[:MOST_ROWS],
        "more_doubtful": max(len(doubtful) - MOST_ROWS, 0),
        "cost": cost_rows(overview),
        "conditions": condition_rows(results.cells),
        "options": option_table(results).to_dict("records"),
        "uncited": ", ".join(references.missing(results)),
        "runs": [run_texts(run) for run in results.runs],
        "report_command": shlex.join(["fsibench", "report", "--store", str(report.store_path), *chosen, *results.subset.words()]),
        "data": {},
    }


def cost_rows(overview: Overview) -> list[list[str]]:
    cells = overview.results.cells
    contended = cells["contended"].fillna(0).astype(int).groupby(cells["entry"], observed=True).sum()
    names = ("train_seconds", "cpu_seconds", "predict_seconds_per_1000_rows", "peak_memory_mb")
    return [
        [entry_name(str(entry), row), str(row["cells"]), *(number(float(row[name]), 3) for name in names),
         str(contended[entry])]
        for entry, row in overview.board.iterrows()
    ]  # fmt: skip


def condition_rows(cells: pd.DataFrame) -> list[list[str]]:
    rows = []
    conditions, counts = ["scheme", "budget", "clock", "device"], ["num_train", "num_test", "num_inputs"]
    needed = cells[["dataset", "split", *conditions, *counts]]
    for dataset, part in needed.groupby("dataset", sort=True, observed=True):
        fixed = [", ".join(sorted(part[name].unique())) for name in conditions]
        sizes = [part[name].dropna().max() for name in counts]
        texts = ["–" if pd.isna(size) else f"{int(size):,}".replace(",", "\u202f") for size in sizes]
        rows.append([str(dataset), str(part["split"].nunique()), *fixed, *texts])
    return rows


PAGE = Page("Runs and failures", 70, single("run.html", run_page), __name__)
