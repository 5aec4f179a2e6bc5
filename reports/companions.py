"""Fragments that stand beside the board: numbers of other papers, entries against the first one, what the search found."""

from __future__ import annotations

import json
import math
from importlib import resources
from pathlib import Path

import pandas as pd

from fsibench.harness.store import Store
from fsibench.metrics import known
from fsibench.reports import markdown
from fsibench.reports.analysis import ledger, peers
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number, with_error
from fsibench.tuning import record

BAR_DIGITS = 3


def peers_table(report: Report) -> str:
    """Published numbers of other papers beside ours, for the columns that our entries answer for."""
    results = report.results
    columns = set(results.cells["reproduces"]) - {""}
    lines = [line for line in peers.lines(report.overview) if line.method in columns and line.dataset in results.datasets]
    rows = [[line.dataset, line.metric.upper(), line.printed, line.ours_text, line.verdict, line.why] for line in lines]
    counts = pd.Series([line.verdict for line in lines]).value_counts()
    told = ", ".join(f"{name} {number}" for name, number in counts.items())
    return "\n\n".join([markdown.table(rows, ["data set", "score", "published", "ours", "verdict", "why"]), f"Verdicts: {told}."])


def against_first(report: Report) -> str:
    """On how many data sets each entry has a better mean than the first one by name."""
    overview, results = report.overview, report.results
    first, *others = sorted(results.entries)
    rows = []
    for entry in others:
        row = [f"`{entry}`"]
        for key in results.headline:
            means = overview.summaries[key]["mean"]
            gains = [float(means[dataset, entry] - means[dataset, first]) for dataset in results.datasets]
            better = sum(gain > 0.0 if results.metrics[key].larger_is_better else gain < 0.0 for gain in gains)
            row.append(f"{better} of {len(gains)}")
        rows.append(row)
    heads = [f"better than `{first}` in", *(results.metrics[key].label for key in results.headline)]
    table: str = markdown.table(rows, heads)
    return table


def against_printed(report: Report) -> str:
    """Entries that answer for a column of the SIP paper: their means, in brackets the printed ones plus one standard error, and how many reach that."""
    overview, results = report.overview, report.results
    bars = _bars()
    answers = {entry: column for column, found in ledger.matching_entries(results).items() for entry, variant in found.items() if not variant}
    rows, told = [], []
    for entry, column in answers.items():
        met = asked = 0
        for dataset in results.datasets:
            row = [f"`{entry}`", dataset]
            for key in results.headline:
                ours, larger = overview.summaries[key].loc[(dataset, entry)], results.metrics[key].larger_is_better
                bar = bars[key, dataset, column]
                reached = float(ours["mean"]) >= bar if larger else float(ours["mean"]) <= bar
                met, asked = met + reached, asked + 1
                text = " ± ".join(with_error(float(ours["mean"]), float(ours["standard_error"])))
                row.append(f"{text} ({number(bar, BAR_DIGITS)}){'' if reached else ' **missed**'}")
            rows.append(row)
        told.append(f"`{entry}` {met} of {asked}")
    heads = ["entry", "data set", *(results.metrics[key].label for key in results.headline)]
    return "\n\n".join([f"At least as good as printed: {', '.join(told)}.", markdown.table(rows, heads)])


OF_CHAINS = ("rhat", "rhat_noise", "rhat_log_likelihood", "ess_bulk", "ess_tail", "diagnostics_failed")


def convergence(store: Path) -> str:
    """What chains say of themselves at the end of their fits: R-hat and effective draws at their worst over splits and functions."""
    with Store.read(store) as opened:
        ends = opened.evaluations(only_final=True)
    traces = pd.DataFrame([json.loads(text) for text in ends["trace"]], index=ends.index).reindex(columns=list(OF_CHAINS))
    told = ends.join(traces).dropna(subset=["rhat"])
    if told.empty:
        return "No entry has chains."
    rows = []
    for (entry, dataset), cells in told.groupby(["entry", "dataset"], observed=True, sort=True):
        others, sizes = cells[["rhat_noise", "rhat_log_likelihood"]], cells[["ess_bulk", "ess_tail"]]
        passed = f"{int((cells['diagnostics_failed'] == 0).sum())} of {len(cells)}"
        rhats = [f"{cells['rhat'].max():.3f}", f"{others.to_numpy().max():.3f}", f"{sizes.to_numpy().min():.0f}"]
        rows.append([f"`{entry}`", dataset, passed, *rhats, number(cells["ll"].mean()), number(cells["ll"].min())])
    heads = ["entry", "data set", "passed", "R-hat of functions", "of noise and log-likelihood", "effective draws", "mean LL", "lowest LL"]
    table: str = markdown.table(rows, heads)
    return table


def _bars() -> dict[tuple[str, str, str], float]:
    """(metric, data set, column) -> the printed mean, worse by one standard error of as many splits as a verdict needs."""
    table = ledger.published()
    return {
        (row["metric"], row["dataset"], row["method"]): float(row["mean"])
        + (-1.0 if known()[row["metric"]].larger_is_better else 1.0) * float(row["spread"]) / math.sqrt(ledger.FEWEST_SPLITS)
        for row in table.to_dict("records")
        if row["dataset"] != ledger.AVERAGE_RANK
    }


def defaults() -> str:
    """What the common search found for each method, from `methods/defaults/`."""
    folder = Path(str(resources.files("fsibench.methods") / "defaults"))
    heads = ["method", "points", "merit before", "merit now", "changed"]
    table: str = markdown.table(record.summary(folder), heads)
    return table
