"""Fragments that stand beside the board: numbers of other papers, entries against the first one, what the search found."""

from __future__ import annotations

import json
import math
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from fsibench import registry
from fsibench.harness.store import Store
from fsibench.metrics import known
from fsibench.reports import markdown
from fsibench.reports.analysis import ledger, peers, truth
from fsibench.reports.analysis.anytime import Anytime
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Floats
from fsibench.reports.numbers import number, with_error
from fsibench.tuning import record

BAR_DIGITS, TRUTH_DIGITS = 3, 2
NO_REFERENCE = "No problem with a reference posterior was run."
TRUTH_NAMES = {"w2": "Wasserstein-2", "kl": "KL", "mean": "mean", "sd": "standard deviation", "energy": "energy distance of draws"}


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


NUM_TIMES = 300
NEAR_THE_END = (0.1, 0.02)  # nats


def until(report: Report) -> str:
    """Training seconds after which the mean log-likelihood stays as high as at the end, less some hundredths of a nat."""
    results = report.results
    anytime = Anytime.shared(results, NUM_TIMES)
    curves, times = anytime.values("ll"), next(iter(anytime.grids.values()))
    rows = []
    for entry in results.entries:
        own = np.asarray((results.cells["entry"] == entry) & results.finished & ~results.failed)
        mean = curves[own].mean(0) if own.any() else np.full(len(times), np.nan)  # NaN until every fit has a posterior
        spent = float(results.end_seconds[own].mean()) if own.any() else math.nan
        seconds = [number(min(_first_kept(times, mean, mean[-1] - slack), spent)) for slack in NEAR_THE_END]
        half = mean[np.searchsorted(times, 0.5 * times[-1], side="right") - 1]
        rows.append((float(mean[-1]), [f"`{entry}`", number(spent), number(half), number(mean[-1]), *seconds]))
    rows.sort(key=lambda row: -row[0] if math.isfinite(row[0]) else math.inf)
    heads = ["entry", "seconds of a fit", "LL at half", "LL at the end", *(f"seconds until {slack} below" for slack in NEAR_THE_END)]
    table: str = markdown.table([row for _, row in rows], heads)
    return table


def _first_kept(times: Floats, values: Floats, level: float) -> float:
    """The first of the times from which on the values never fall below the level again."""
    below = np.flatnonzero(~(values >= level))
    return float(times[min(below[-1] + 1, len(times) - 1)] if len(below) else times[0])


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


def distances(finals: pd.DataFrame) -> str:
    """Wasserstein-2 from the exact predictive at the end of fits, in standard deviations of the target: inside the data / outside."""
    if finals.empty:
        return NO_REFERENCE
    means = truth.table(finals)
    problems = sorted(means["dataset"].unique())
    average = means.groupby(["same_prior", "entry"], observed=True)[["truth_w2", "truth_w2_outside"]].mean()
    rows = []
    for (same, entry), mean in average.sort_values(["same_prior", "truth_w2"], ascending=[False, True]).iterrows():
        own = means[means["entry"] == entry].set_index("dataset").reindex(problems)
        pairs = zip([*own["truth_w2"], mean["truth_w2"]], [*own["truth_w2_outside"], mean["truth_w2_outside"]], strict=True)
        cells = [f"{number(inside, TRUTH_DIGITS)} / {number(outside, TRUTH_DIGITS)}" for inside, outside in pairs]
        rows.append([f"`{entry}`", "of the reference" if same else "its own", *cells])
    heads = ["entry", "prior", *(problem.removeprefix("reference-").removeprefix("gp-") for problem in problems), "mean"]
    table: str = markdown.table(rows, heads)
    return table


def agreement(finals: pd.DataFrame) -> str:
    """Rank correlations between near to the posterior and good on test rows."""
    if finals.empty:
        return NO_REFERENCE
    means = truth.table(finals)
    rows = []
    for title, part in (("prior of the reference", means[means["same_prior"]]), ("all", means)):
        for line in truth.correlations(part):
            interval = f"{number(line.low, TRUTH_DIGITS)} to {number(line.high, TRUTH_DIGITS)}"
            names = [title, TRUTH_NAMES[line.distance], line.score.upper()]
            rows.append([*names, number(line.value, TRUTH_DIGITS), interval, str(line.problems), str(line.entries)])
    table: str = markdown.table(rows, ["entries", "near by", "good by", "rank correlation", "95 % interval", "problems", "entries each"])
    return table


def truth_finals(store: Path) -> pd.DataFrame:
    """The last look of each cell of a problem with a reference; no rows where there is none."""
    with Store.read(store) as opened:
        ends = opened.evaluations(only_final=True)
    return ends[ends[truth.FIRST].notna()] if truth.FIRST in ends else ends.iloc[:0]


def _bars() -> dict[tuple[str, str, str], float]:
    """(metric, data set, column) -> the printed mean, worse by one standard error of as many splits as a verdict needs."""
    table = ledger.published()
    return {
        (row["metric"], row["dataset"], row["method"]): float(row["mean"])
        + (-1.0 if known()[row["metric"]].larger_is_better else 1.0) * float(row["spread"]) / math.sqrt(ledger.FEWEST_SPLITS)
        for row in table.to_dict("records")
        if row["dataset"] != ledger.AVERAGE_RANK
    }


def advice() -> dict[str, dict[str, str]]:
    """Method -> when to `use` it, and what it `cost`s."""
    text = (resources.files("fsibench.reports") / "data" / "advice.toml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = tomllib.loads(text)
    return found


def which_method() -> str:
    """Every method with when to use it, its cost and the largest training set it is meant for."""
    rows = []
    for name, told in advice().items():
        most = registry.entry(name).method.max_rows
        rows.append([f"`{name}`", told["use"], told["cost"], "–" if most is None else f"{most:,}"])
    table: str = markdown.table(rows, ["method", "when to use it", "cost", "most rows"])
    return table


def defaults() -> str:
    """What the common search found for each method, from `methods/defaults/`."""
    folder = Path(str(resources.files("fsibench.methods") / "defaults"))
    heads = ["method", "points", "merit before", "merit now", "changed"]
    table: str = markdown.table(record.summary(folder), heads)
    return table
