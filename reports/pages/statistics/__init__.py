"""How firm the ranking is: tests, intervals, tiers, resolution, time to target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import duels, ranking, statistics
from fsibench.reports.analysis.anytime import NUM_TARGETS, area, area_range
from fsibench.reports.analysis.pairs import scaled_means
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Floats
from fsibench.reports.analysis.standing import Standing
from fsibench.reports.numbers import number, p_text
from fsibench.reports.pages import Page, common, plain, single
from fsibench.reports.texts import entry_name

MOST_ROWS = 500
LEVEL = 0.05


def statistics_page(report: Report) -> dict[str, Any]:
    results, shared = report.results, common(report)
    grid = next(iter(report.slider.grids.values()), np.array([1.0]))
    parts = [part(report, key, grid) for key in results.tested if key in report.standings]
    start, end = area_range(grid)
    return {
        "page_title": "Statistics",
        "num_datasets": len(report.overview.blocks[report.overview.main_metric].datasets),
        "parts": parts,
        "metrics": [metric for metric in shared["metrics"] if metric["key"] in results.tested],
        "num_targets": NUM_TARGETS,
        "area": f"{number(start, 3)} s to {number(end, 3)} s",
        "floor": "constant" if ranking.CONSTANT in results.entries else "the worst entry",
        "data": {
            **shared,
            "diagrams": {key: diagram(report.standings[key]) for key in results.tested if key in report.standings},
            "targets": {
                "grid": plain(grid),
                "shares": {
                    key: [plain(report.shares[key].get(entry)) for entry in results.entries] for key in results.tested
                },
            },
        },
    }


def part(report: Report, key: str, grid: Floats) -> dict[str, Any]:
    """Everything one metric has on the page."""
    overview, standing, shares = report.overview, report.standings[key], report.shares[key]
    rows = [
        {
            "entry": entry_name(str(entry), overview.board.loc[entry]),
            "page": report.entry_files[str(entry)],
            "tier": int(row["tier"]),
            "mean_rank": f"{row['mean_rank']:.2f}",
            "interval": "–" if np.isnan(row["low"]) else f"{row['low']:.2f} to {row['high']:.2f}",
            "rank_of_means": f"{row['rank_of_means']:.2f}",
            "places": places_text(row) if standing.num_sets > 1 else "–",
            "leads": f"{100 * row['leads']:.0f} %" if standing.num_sets > 1 else "–",
            "area": number(area(grid, shares[entry]), 3) if entry in shares else "–",
        }
        for entry, row in standing.table.iterrows()
    ]
    return {
        "key": key,
        "label": standing.metric.label,
        "friedman": friedman_sentence(statistics.friedman(standing.set_ranks)),
        "critical": number(standing.critical, 3),
        "rows": rows,
        "stability": stability_sentence(standing),
        "resolution": resolution_sentences(report, key),
        "detectable": detectable_rows(report.pairs[key]),
        "signed_rank": signed_rank_sentence(report, key),
    }


def places_text(row: pd.Series) -> str:
    low, high = int(row["best_place"]), int(row["worst_place"])
    return str(low) if low == high else f"{low} to {high}"


def friedman_sentence(test: statistics.Friedman) -> str:
    if math.isnan(test.p_value):
        return "Friedman's test needs at least three entries and two data sets."
    verdict = "some entries differ" if test.p_value < LEVEL else "no difference between entries can be shown"
    return (
        f"Friedman's test over {test.num_datasets} data sets and {test.num_entries} entries: χ² = {test.statistic:.2f}, "
        f"F = {number(test.f_statistic, 3)}, p {'' if p_text(test.p_value).startswith('<') else '= '}"
        f"{p_text(test.p_value)}; {verdict} at the 5 % level."
    )


def stability_sentence(standing: Standing) -> str:
    left_out = standing.left_out
    if len(left_out) < 2:
        return "With one data set there is nothing to leave out."
    leader = standing.table.index[0]
    others = sorted({str(entry) for entry in left_out.idxmin(axis=1)} - {str(leader)})
    if not others:
        return f"{leader} leads whichever data set is left out."
    dropped = [str(name) for name, best in left_out.idxmin(axis=1).items() if best != leader]
    return f"{leader} leads, but without {' or '.join(dropped)} it would be {' or '.join(others)}."


def resolution_sentences(report: Report, key: str) -> list[str]:
    """What this run could have seen, how firm its leader is, and what would settle the question."""
    standing = report.standings[key]
    table = standing.table
    if len(table) < 2 or standing.num_sets < 2:
        return ["One data set or one entry: there is no resolution to speak of."]
    leader, second = (str(name) for name in table.index[:2])
    sentences = [
        f"Smallest difference in ranks of means that {standing.num_sets} data sets can show: {number(standing.critical, 3)}.",
        f"{leader} is the leader in {100 * table['leads'].iloc[0]:.0f} % of resamples of data sets and splits.",
    ]
    duel = report.duels[key].get((leader, second)) or report.duels[key].get((second, leader))
    return sentences if duel is None else [*sentences, duels.verdict(duel, len(duel.sets))]


def signed_rank_sentence(report: Report, key: str) -> str:
    """Signed-rank tests of all pairs over data sets; a sentence where they could not reject anything."""
    standing = report.standings[key]
    num_sets, num_entries = standing.set_ranks.shape
    num_pairs = num_entries * (num_entries - 1) // 2
    needed = statistics.sets_for_signed_rank(num_pairs, LEVEL)
    if num_sets < needed:
        return (
            f"Signed-rank tests over data sets cannot reject anything here: {num_sets} data sets and {num_pairs} pairs; "
            f"after Holm's adjustment {needed} data sets would be needed."
        )
    scaled = scaled_means(report.overview, key).loc[standing.set_ranks.index, standing.set_ranks.columns]
    tested = statistics.wilcoxon_holm(scaled)
    clear = tested[tested["p_holm"] < LEVEL]
    if clear.empty:
        return f"No signed-rank test over {num_sets} data sets rejects at the 5 % level (Holm, {num_pairs} pairs)."
    names = ", ".join(f"{row.a} and {row.b} (p = {p_text(row.p_holm)})" for row in clear.itertuples())
    return f"Signed-rank tests over {num_sets} data sets tell apart (5 %, Holm over {num_pairs} pairs): {names}."


def diagram(standing: Standing) -> dict[str, Any]:
    ordered = standing.set_ranks.mean().sort_values(kind="stable")
    groups = statistics.cliques(ordered, standing.critical)
    bars = [[float(ordered[group[0]]), float(ordered[group[-1]])] for group in groups]
    ranks = [float(value) for value in ordered]
    return {"names": list(ordered.index), "ranks": ranks, "critical": standing.critical, "bars": bars}


def detectable_rows(table: pd.DataFrame) -> list[list[str]]:
    """Per data set: splits, and the smallest true difference that they would find, median over the pairs of entries."""
    if table.empty:
        return []
    grouped = table.groupby("dataset", observed=True)
    rows = zip(grouped["splits"].max().items(), grouped["detectable"].median(), strict=True)
    return [[str(dataset), str(splits), number(float(value), 3)] for (dataset, splits), value in list(rows)[:MOST_ROWS]]


PAGE = Page("Statistics", 40, single("statistics.html", statistics_page), __name__)
