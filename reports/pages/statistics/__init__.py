"""Tests, intervals, tiers, time to target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.anytime import NUM_TARGETS
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.pairs import scaled_means
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import METRICS, Floats
from fsibench.reports.numbers import number, p_text, signed, with_error
from fsibench.reports.pages import Page, common, metrics, plain, single
from fsibench.reports.texts import entry_name

MOST_ROWS = 500

def statistics_page(report: Report) -> dict[str, Any]:
    overview, results, shares = report.overview, report.results, report.shares
    grid = next(iter(report.slider.grids.values()), np.array([1.0]))
    candidates = [statistics_part(report, metric, grid) for metric in METRICS]
    parts = [part for part in candidates if part is not None]
    with_constant = ranking.CONSTANT in results.entries
    return {
        "page_title": "Statistics",
        "num_datasets": len(overview.blocks["rmse"].datasets),
        "parts": parts,
        "metrics": metrics(),
        "num_targets": NUM_TARGETS,
        "floor": "constant" if with_constant else "the worst entry",
        "data": {
            **common(report),
            "diagrams": {part["key"]: part.pop("diagram") for part in parts},
            "targets": {
                "grid": plain(grid),
                "shares": {
                    metric: [plain(shares[metric].get(entry)) for entry in results.entries] for metric in METRICS
                },
            },
        },
    }


def statistics_part(report: Report, key: str, grid: Floats) -> dict[str, Any] | None:
    """Everything one metric has on the statistics page; None where nothing is ranked."""
    overview, shares = report.overview, report.shares[key]
    blocks, metric = overview.blocks[key], METRICS[key]
    if blocks.values.empty:
        return None
    block_ranks = ranking.ranks(blocks.values, metric.larger_is_better)
    set_ranks = ranking.ranks_of_dataset_means(blocks.values, metric.larger_is_better, blocks.constant)
    num_sets, num_entries = set_ranks.shape
    of_means, mean_ranks = set_ranks.mean(), block_ranks.mean()
    critical = statistics.nemenyi_critical_difference(max(num_entries, 2), num_sets)
    tiers = statistics.tiers(of_means, critical)
    num_draws = int(np.clip(20_000_000 // block_ranks.size, 400, 2000))
    interval = statistics.expanded_interval(statistics.two_level_bootstrap(block_ranks, num_draws), num_sets)
    left_out = statistics.leave_one_dataset_out(block_ranks)
    places = left_out.rank(axis=1, method="min")
    rows = [
        {
            "entry": entry_name(entry, overview.board.loc[entry]),
            "tier": int(tiers[entry]),
            "mean_rank": f"{mean_ranks[entry]:.2f}",
            "interval": interval_text(interval.loc[entry]),
            "rank_of_means": f"{of_means[entry]:.2f}",
            "places": places_text(places[entry]) if num_sets > 1 else "–",
            "area": number(statistics.area_under_curve(grid, shares[entry]), 3) if entry in shares else "–",
        }
        for entry in mean_ranks.sort_values(kind="stable").index
    ]
    pairs, pair_note = pair_rows(report.pairs[key], key)
    return {
        "key": key,
        "label": metric.label,
        "direction": metric.direction,
        "friedman": friedman_sentence(statistics.friedman(set_ranks)),
        "critical": number(critical, 3),
        "rows": rows,
        "stability": stability_sentence(mean_ranks, left_out),
        "pairs": pairs,
        "pair_note": pair_note,
        "detectable": detectable_rows(report.pairs[key]),
        "global_pairs": global_pairs(overview, key, set_ranks),
        "diagram": diagram(of_means, critical),
    }


def interval_text(row: pd.Series) -> str:
    return "–" if np.isnan(row["low"]) else f"{row['low']:.2f} to {row['high']:.2f}"


def places_text(places: pd.Series) -> str:
    low, high = int(places.min()), int(places.max())
    return str(low) if low == high else f"{low} to {high}"


def friedman_sentence(test: Any) -> str:
    if math.isnan(test.p_value):
        return "Friedman's test needs at least three entries and two data sets."
    verdict = "some entries differ" if test.p_value < 0.05 else "no difference between entries can be shown"
    return (
        f"Friedman's test over {test.num_datasets} data sets and {test.num_entries} entries: χ² = {test.statistic:.2f}, "
        f"F = {number(test.f_statistic, 3)}, p {'' if p_text(test.p_value).startswith('<') else '= '}"
        f"{p_text(test.p_value)}; {verdict} at the 5 % level."
    )


def stability_sentence(mean_ranks: pd.Series, left_out: pd.DataFrame) -> str:
    if len(left_out) < 2:
        return "With one data set there is nothing to leave out."
    leader = mean_ranks.idxmin()
    others = sorted({str(entry) for entry in left_out.idxmin(axis=1)} - {str(leader)})
    if not others:
        return f"{leader} leads whichever data set is left out."
    dropped = [str(name) for name, best in left_out.idxmin(axis=1).items() if best != leader]
    return f"{leader} leads, but without {' or '.join(dropped)} it would be {' or '.join(others)}."


def diagram(of_means: pd.Series, critical: float) -> dict[str, Any]:
    ordered = of_means.sort_values(kind="stable")
    bars = [[float(ordered[group[0]]), float(ordered[group[-1]])] for group in statistics.cliques(ordered, critical)]
    return {"names": list(ordered.index), "ranks": [float(v) for v in ordered], "critical": critical, "bars": bars}


def detectable_rows(table: pd.DataFrame) -> list[list[str]]:
    """Per data set: splits, and the smallest true difference that they would find, median over the pairs of entries."""
    if table.empty:
        return []
    grouped = table.groupby("dataset")
    rows = zip(grouped["splits"].max().items(), grouped["detectable"].median(), strict=True)
    return [[str(dataset), str(splits), number(float(value), 3)] for (dataset, splits), value in list(rows)[:MOST_ROWS]]


def pair_rows(table: pd.DataFrame, key: str) -> tuple[list[list[str]], str]:
    """Rows for people, the clearest first, and a sentence on how many there are."""
    if table.empty:
        return [], ""
    larger = METRICS[key].larger_is_better
    shown = table.sort_values(["p_holm", "dataset"], kind="stable").head(MOST_ROWS)
    clear = int((table["p_holm"] < 0.05).sum())
    rows = []
    for row in shown.to_dict("records"):
        better = "–"
        if row["p_holm"] < 0.05:
            better = row["a"] if (row["difference"] > 0) == larger else row["b"]
        mean, error = with_error(row["difference"], row["standard_error"])
        texts = [row["dataset"], row["a"], row["b"], mean, error, p_text(row["p_holm"])]
        rows.append([*texts, number(row["detectable"], 3), better])
    note = f"{clear} of {len(table)} pairs differ at the 5 % level."
    return rows, note + (f" The first {MOST_ROWS} are shown; tables/pairs.csv has all." if len(table) > MOST_ROWS else "")


def global_pairs(overview: Overview, key: str, set_ranks: pd.DataFrame) -> list[list[str]]:
    """Nemenyi and signed-rank p-values of all pairs over data sets."""
    if set_ranks.shape[1] < 2:
        return []
    of_means = set_ranks.mean()
    nemenyi = statistics.nemenyi_p_values(of_means, len(set_ranks))
    scaled = scaled_means(overview, key).loc[set_ranks.index, set_ranks.columns]
    rows = []
    for row in statistics.wilcoxon_holm(scaled).to_dict("records"):
        a, b = row["a"], row["b"]
        difference = of_means[a] - of_means[b]
        rows.append([a, b, signed(difference, 2), p_text(nemenyi.loc[a, b]), p_text(row["p_holm"])])
    return rows


PAGE = Page("Statistics", 40, single("statistics.html", statistics_page), __name__)
