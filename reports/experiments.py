"""Fragments of the pages of experiments: few data sets in one table, shapes of functions, how many splits settle a pair."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fsibench.reports import markdown
from fsibench.reports.analysis import plausibility, shapes
from fsibench.reports.analysis.duels import duels
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number, with_error

SHAPE_DIGITS = 2


def briefly(report: Report) -> str:
    """Scores of every entry on every data set, best first within a data set, in one table; with those of the true density where it is known."""
    overview, results = report.overview, report.results
    rows: list[list[str]] = []
    for dataset in results.datasets:
        means = overview.means(overview.main_metric, dataset)
        sign = -1.0 if results.metrics[overview.main_metric].larger_is_better else 1.0
        rows += [[dataset, f"`{entry}`", *_scores(report, dataset, entry)] for entry in sorted(means, key=lambda entry: sign * means[entry])]
        truth = plausibility.oracles().get(plausibility.base_name(dataset))
        if truth is not None:
            rows.append([dataset, "the true density", *(number(truth.get(key, math.nan)) for key in results.headline), "–"])
    heads = ["data set", "entry", *(results.metrics[key].label for key in results.headline), "training s"]
    table: str = markdown.table(rows, heads)
    return table


def _scores(report: Report, dataset: str, entry: str) -> Iterator[str]:
    for key in report.results.headline:
        found = report.overview.scores[key][dataset, entry]
        yield " ± ".join(part for part in with_error(found["mean"], found["standard_error"], found["splits"]) if part != "–")
    own = (report.results.cells["entry"] == entry) & (report.results.cells["dataset"] == dataset)
    yield number(float(report.results.end_seconds[own.to_numpy()].mean()), 2)


def shapes_of(store: Path) -> str:
    """What `fsibench shapes` prints."""
    table = shapes.means(store)
    if table.empty:
        return "No cell kept its functions."
    shown = table.drop(columns=[name for name in shapes.COLUMNS if table[name].isna().all()])
    rows = [[row["dataset"], f"`{row['entry']}`", *(number(row[name], SHAPE_DIGITS) for name in shown.columns[2:])] for _, row in shown.iterrows()]
    text: str = markdown.table(rows, ["data set", *shown.columns[1:]])
    return text


def splits_to_settle(report: Report) -> str:
    """Splits after which the corrected paired test finds the difference of two entries with probability 0.8, by data set."""
    overview = report.overview
    found = duels(overview, overview.main_metric)
    rows = []
    for (a, b), duel in found.items():
        needed = duel.sets["needed"].reindex(report.results.datasets)
        rows.append([f"`{a}`", f"`{b}`", *(_splits(value) for value in needed)])
    table: str = markdown.table(rows, ["entry", "and", *report.results.datasets])
    return table


def _splits(value: float) -> str:
    if pd.isna(value):
        return "–"
    return "no number" if math.isinf(value) else f"{value:.0f}"
