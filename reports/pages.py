"""What each page of the site shows: plain dictionaries for the templates and the JSON that the page's script reads."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports import calibration, functions, ledger, plausibility, ranking, statistics
from fsibench.reports.anytime import NUM_TARGETS, Anytime, shares_of_targets
from fsibench.reports.looks import looks, number, p_text, signed, with_error
from fsibench.reports.overview import DIAGNOSTICS_FAILED, Overview, count, failure_rule
from fsibench.reports.results import METRICS, Floats

# Numbers embedded for the slider: about 5 MB of text. Larger stores get fewer grid points, never fewer cells.
MOST_BOARD_NUMBERS = 900_000
MOST_CURVE_NUMBERS = 400_000
MOST_ROWS = 500
BLOCK = ["dataset", "split", "seed"]


@dataclass(frozen=True)
class Site:
    """One report: the overview and what several pages share."""

    overview: Overview
    store_path: Path
    where: Mapping[str, str]

    @property
    def results(self) -> Any:
        return self.overview.results

    @cached_property
    def slider(self) -> Anytime:
        room = MOST_BOARD_NUMBERS // (len(METRICS) * max(self._num_board_cells, 1)) - 1
        return Anytime.shared(self.results, min(max(room, 3), 40))

    @property
    def _num_board_cells(self) -> int:
        cells = self.results.cells[self.results.finished]
        return len(self.results.entries) * len(cells.drop_duplicates(BLOCK))

    @cached_property
    def panels(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = functions.panels(self.store_path, self.results)
        return found

    @cached_property
    def calibrations(self) -> dict[tuple[str, str], Any]:
        return dict(calibration.calibrations(self.overview))

    @cached_property
    def shares(self) -> dict[str, dict[str, Floats]]:
        """Metric -> entry -> share of targets reached at the slider's times."""
        return {metric: shares_of_targets(self.overview, self.slider, metric) for metric in METRICS}

    @cached_property
    def pairs(self) -> dict[str, pd.DataFrame]:
        """Metric -> corrected paired tests on every data set."""
        return {metric: pairwise(self.overview, metric) for metric in METRICS}

    @cached_property
    def score_tables(self) -> dict[str, dict[str, Any]]:
        return {metric: score_table(self.overview, metric) for metric in METRICS}

    @cached_property
    def ledger(self) -> list[ledger.Line]:
        return list(ledger.ledger(self.overview))

    def navigation(self) -> list[tuple[str, str]]:
        pages = [("index.html", "Leaderboard"), ("convergence.html", "Convergence"), ("calibration.html", "Calibration")]
        pages += [("statistics.html", "Statistics")]
        pages += [("functions.html", "Functions")] if self.panels else []
        return [*pages, ("ledger.html", "Published numbers"), ("run.html", "Runs and failures")]

    def common(self) -> dict[str, Any]:
        """What the script of every page needs: entries with their looks, data sets, metrics."""
        style, board = looks(self.results.entries), self.overview.board
        entries = [
            {
                "name": entry,
                "colour": style[entry].colour,
                "dash": list(style[entry].dash),
                "note": self.results.notes.get(entry, ""),
                "doubtful": int(board.loc[entry, "doubtful"]),
            }
            for entry in self.results.entries
        ]
        return {"entries": entries, "datasets": self.results.datasets, "metrics": metrics()}


def metrics() -> list[dict[str, Any]]:
    return [
        {
            "key": metric.key,
            "label": metric.label,
            "larger": metric.larger_is_better,
            "direction": metric.direction,
            "explanation": metric.explanation,
        }
        for metric in METRICS.values()
    ]


# Leaderboard -------------------------------------------------------------------------------------------------


def leaderboard(site: Site) -> dict[str, Any]:
    overview, results = site.overview, site.results
    num_datasets, num_entries = len(results.datasets), len(results.entries)
    finished = int((results.finished & ~results.failed).sum())
    summary = (
        f"{count(num_entries, 'entry', 'entries')} on {count(num_datasets, 'data set')}, "
        f"{count(len(results.cells), 'cell')}, {finished} of them finished well. {conditions_sentence(results.cells)}"
    )
    return {
        "page_title": "Leaderboard",
        "summary": summary,
        "caveats": overview.caveats,
        "metrics": metrics(),
        "first_metric": "crps",
        "board_caption": "Ranks at the end of the budget; lower is better.",
        "board_heads": board_heads(),
        "board_rows": board_rows(overview),
        "tables": list(site.score_tables.values()),
        "data": {
            "page": "leaderboard",
            **site.common(),
            "board": board_data(site),
            "tails": [None, None, *(statistics.expanded_tail(n) for n in range(2, num_datasets + 1))],
            # Critical difference for one data set; the page divides by √N.
            "nemenyi": {k: statistics.nemenyi_critical_difference(k, 1) for k in range(2, num_entries + 1)},
        },
    }


def conditions_sentence(cells: pd.DataFrame) -> str:
    names = {"scheme": "split scheme", "budget": "budget", "clock": "clock", "device": "device"}
    parts = [f"{label} {', '.join(sorted(cells[key].unique()))}" for key, label in names.items() if len(cells)]
    return f"Conditions: {'; '.join(parts)}." if parts else ""


def board_heads() -> list[str]:
    ranks = [f"{METRICS[key].label}: {kind}" for key in METRICS for kind in ("mean rank", "rank of means")]
    return [*ranks, "failed", "training seconds", "CPU seconds", "peak memory, MB"]


def board_rows(overview: Overview) -> list[list[str]]:
    """The leaderboard at the end of the budget, as text: the page without JavaScript, and Markdown."""
    rows = []
    for entry, row in overview.board.iterrows():
        ranks = [row[f"{kind}_{key}"] for key in METRICS for kind in ("mean_rank", "rank_of_means")]
        texts = ["–" if np.isnan(rank) else f"{rank:.2f}" for rank in ranks]
        failed = f"{row['failed']} of {row['cells']}" if row["failed"] else "0"
        costs = [number(float(row[name]), 3) for name in ("train_seconds", "cpu_seconds", "peak_memory_mb")]
        rows.append([entry_name(str(entry), row), *texts, failed, *costs])
    return rows


def entry_name(entry: str, row: pd.Series) -> str:
    """The entry with what must be seen wherever it is listed: its note and a warning."""
    note = f" ({row['note']})" if row["note"] else ""
    return entry + note + (" ⚠ diagnostics failed" if row["doubtful"] else "")


def score_table(overview: Overview, key: str) -> dict[str, Any]:
    """Data set means of one metric as text, entries in the order of the leaderboard."""
    metric, scores, datasets = METRICS[key], overview.scores[key], overview.results.datasets
    rows = [
        [entry_name(str(entry), row), *(score_text(scores.get((dataset, str(entry)))) for dataset in datasets)]
        for entry, row in overview.board.iterrows()
    ]
    rule = failure_rule(ranking.CONSTANT in overview.results.entries)
    caption = (
        f"Mean ± standard error over splits of the {metric.explanation}; {metric.direction}. "
        f"† contains failed cells: {rule}"
    )
    return {"key": key, "title": metric.label, "caption": caption, "heads": datasets, "rows": rows}


def score_text(cell: Mapping[str, float] | None) -> str:
    if cell is None or math.isnan(cell["mean"]):
        return "failed" if cell is not None and cell["failed"] else "–"
    mean, error = with_error(cell["mean"], cell["standard_error"])
    return f"{mean} ± {error}" + (" †" if cell["failed"] else "")


def board_data(site: Site) -> dict[str, Any]:
    """Scores of all cells at all slider times, entry by entry and block by block, as base64 of float32."""
    results, anytime = site.results, site.slider
    cells = results.cells[results.finished]
    blocks = cells[BLOCK].drop_duplicates().sort_values(BLOCK, ignore_index=True)
    place = pd.MultiIndex.from_frame(blocks).get_indexer(pd.MultiIndex.from_frame(cells[BLOCK]))
    entry_of = pd.Index(results.entries).get_indexer(cells["entry"])
    position = entry_of * len(blocks) + place
    num_slots, rows = len(results.entries) * len(blocks), cells.index.to_numpy()

    def packed(metric: str) -> str:
        values = np.column_stack([anytime.values(metric)[rows], results.final(metric)[rows]])
        full = np.full((num_slots, values.shape[1]), np.nan, dtype="<f4")
        full[position] = values
        return base64.b64encode(full.tobytes()).decode()

    def flags(marked: Any) -> str:
        full = np.zeros(num_slots, dtype=int)
        full[position] = marked
        return "".join(map(str, full))

    entries = results.entries
    return {
        "num_blocks": len(blocks),
        "dataset_of": pd.Index(results.datasets).get_indexer(blocks["dataset"]).tolist(),
        "split_of": blocks["split"].tolist(),
        "grid": next(iter(anytime.grids.values())).tolist() if len(cells) else [1.0],
        "values": {metric: packed(metric) for metric in METRICS},
        "known": flags(1),
        "failed": flags(results.failed[rows].astype(int)),
        "ranked": [entries.index(entry) for entry in site.overview.ranked],
        "constant": entries.index(ranking.CONSTANT) if ranking.CONSTANT in entries else None,
        "cost": board_costs(site),
        # The bootstrap costs cells x draws; a page must stay quick.
        "num_draws": int(np.clip(4_000_000 // max(num_slots, 1), 100, 1000)),
    }


def board_costs(site: Site) -> list[dict[int, list[float]]]:
    """Per entry, per data set number: sums of CPU seconds and of memory over the cells that finished well, and count."""
    results = site.results
    good = results.finished & ~results.failed
    columns = results.cells.loc[good, ["entry", "dataset", "cpu_seconds", "peak_memory_mb"]]
    grouped = columns.groupby(["entry", "dataset"])
    table = grouped[["cpu_seconds", "peak_memory_mb"]].sum().assign(count=grouped.size())
    costs: list[dict[int, list[float]]] = [{} for _ in results.entries]
    for (entry, dataset), row in table.iterrows():
        numbers = [round(float(value), 3) for value in row]
        costs[results.entries.index(entry)][results.datasets.index(dataset)] = numbers
    return costs


# Convergence -------------------------------------------------------------------------------------------------


def convergence(site: Site) -> dict[str, Any]:
    results = site.results
    pairs = max(len(results.entries) * len(results.datasets) * len(METRICS) * 3, 1)
    anytime = Anytime.per_dataset(results, min(max(MOST_CURVE_NUMBERS // pairs, 6), 40))
    bands = {
        metric: [
            [plain(anytime.band(metric, dataset, entry)) for entry in results.entries] for dataset in results.datasets
        ]
        for metric in METRICS
    }
    grids = [plain(anytime.grids[dataset]) for dataset in results.datasets]
    curves = {"grid": grids, "bands": bands}
    return {
        "page_title": "Convergence",
        "metrics": metrics(),
        "data": {"page": "convergence", **site.common(), "curves": curves},
    }


def plain(values: Floats | None) -> Any:
    """Nested lists with five significant digits and null for NaN."""
    if values is None:
        return None
    if values.ndim > 1:
        return [plain(row) for row in values]
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


# Calibration -------------------------------------------------------------------------------------------------


def calibration_page(site: Site) -> dict[str, Any]:
    results, found = site.results, site.calibrations
    style_rows = [
        {"entry": entry_name(str(entry), row), "cells": [confidence(found.get((d, entry))) for d in results.datasets]}
        for entry, row in site.overview.board.iterrows()
    ]
    per_dataset = [
        [calibration_item(found.get((dataset, entry))) for entry in results.entries] for dataset in results.datasets
    ]
    pooled = [pooled_item([found[d, entry] for d in results.datasets if (d, entry) in found]) for entry in results.entries]
    return {
        "page_title": "Calibration",
        "datasets": results.datasets,
        "confidence": style_rows,
        "data": {
            "page": "calibration",
            **site.common(),
            "levels": calibration.LEVELS.tolist(),
            "calibration": [pooled, *per_dataset],
        },
    }


def confidence(item: Any) -> dict[str, str]:
    if item is None:
        return {"text": "–", "flag": ""}
    return {"text": signed(100 * item.gap, 1), "flag": item.flag}


def calibration_item(item: Any) -> dict[str, Any] | None:
    if item is None:
        return None
    numbers = {"pit": plain(item.pit), "coverage": plain(item.coverage)}
    return {**numbers, "error": float(f"{item.error:.4g}"), "sharpness": float(f"{item.sharpness:.4g}")}


def pooled_item(items: list[Any]) -> dict[str, Any] | None:
    """All data sets with equal weight; sharpness has no common unit."""
    if not items:
        return None
    pit = np.mean([item.pit for item in items], axis=0)
    coverage = np.mean([item.coverage for item in items], axis=0)
    error = float(np.mean([item.error for item in items]))
    return {"pit": plain(pit), "coverage": plain(coverage), "error": float(f"{error:.4g}"), "sharpness": None}


# Statistics --------------------------------------------------------------------------------------------------


def statistics_page(site: Site) -> dict[str, Any]:
    overview, results, shares = site.overview, site.results, site.shares
    grid = next(iter(site.slider.grids.values()), np.array([1.0]))
    candidates = [statistics_part(site, metric, grid) for metric in METRICS]
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
            "page": "statistics",
            **site.common(),
            "diagrams": {part["key"]: part.pop("diagram") for part in parts},
            "targets": {
                "grid": plain(grid),
                "shares": {
                    metric: [plain(shares[metric].get(entry)) for entry in results.entries] for metric in METRICS
                },
            },
        },
    }


def statistics_part(site: Site, key: str, grid: Floats) -> dict[str, Any] | None:
    """Everything one metric has on the statistics page; None where nothing is ranked."""
    overview, shares = site.overview, site.shares[key]
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
    pairs, pair_note = pair_rows(site.pairs[key], key)
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
        "detectable": detectable_rows(site.pairs[key]),
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


def pairwise(overview: Overview, key: str) -> pd.DataFrame:
    """Corrected paired tests on every data set, all pairs; Holm's adjustment is within a data set."""
    blocks = overview.blocks[key]
    over_seeds = ranking.impute(blocks.values, blocks.constant).groupby(level=["dataset", "split"]).mean()
    tables = []
    for dataset, values in over_seeds.groupby(level="dataset"):
        table = statistics.paired_differences(values, overview.test_to_train[str(dataset)])
        tables.append(table.assign(dataset=dataset))
    if not tables:
        return pd.DataFrame()
    tested: pd.DataFrame = statistics.with_p_values(pd.concat(tables, ignore_index=True), families="dataset")
    return tested


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


def scaled_means(overview: Overview, key: str) -> pd.DataFrame:
    """Data set means without units: errors over the target's sd, LL as it is (a change of unit shifts all entries)."""
    blocks, cells = overview.blocks[key], overview.results.cells
    means: pd.DataFrame = ranking.dataset_means(blocks.values, blocks.constant)
    if key in ("ll", "calibration"):
        return means
    scale = cells["target_scale"].astype(float).groupby(cells["dataset"]).mean().reindex(means.index)
    return means.div(scale.where(scale > 0, 1.0), axis=0)


# Functions, ledger, runs -------------------------------------------------------------------------------------


def functions_page(site: Site) -> dict[str, Any]:
    return {"page_title": "Functions", "data": {"page": "functions", **site.common(), "panels": site.panels}}


TONES = {"better": "good", "worse": "bad", "implausible as printed": "warn"}


def ledger_page(site: Site) -> dict[str, Any]:
    lines = site.ledger
    shown = [
        {**vars(line), "metric": METRICS[line.metric].label, "tone": TONES.get(line.verdict, "")} for line in lines
    ]
    return {
        "page_title": "Published numbers",
        "counts": ledger.counts(lines),
        "banner": ledger.banner(lines),
        "published_doubts": doubt_rows(ledger.published_doubts(ledger.published())),
        "own_doubts": doubt_rows(ledger.own_doubts(site.overview)),
        "lines": shown,
        "data": {"page": "tables"},
    }


def doubt_rows(doubts: list[plausibility.Doubt]) -> list[list[str]]:
    return [
        [doubt.dataset, METRICS[doubt.metric].label, doubt.method, doubt.check, doubt.explanation,
         "–" if doubt.reading is None else number(doubt.reading, 3)]
        for doubt in doubts
    ]  # fmt: skip


def run_page(site: Site) -> dict[str, Any]:
    overview, results = site.overview, site.results
    failures = failure_table(results)
    doubtful = doubtful_rows(results)
    chosen = [word for key, value in site.where.items() for word in (f"--{key}", value)]
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
        "runs": [run_texts(run) for run in results.runs],
        "report_command": shlex.join(["fsibench", "report", "--store", str(site.store_path), *chosen]),
        "data": {"page": "tables"},
    }


def doubtful_rows(results: Any) -> list[dict[str, Any]]:
    """Cells whose method distrusts its own result, with what it reported."""
    rows = [
        {**cell, "trace": ", ".join(f"{key} {trace_text(value)}" for key, value in results.traces[index].items())}
        for index, cell in enumerate(results.cells[["entry", "dataset", "split"]].to_dict("records"))
        if results.traces[index].get(DIAGNOSTICS_FAILED)
    ]
    return sorted(rows, key=lambda row: (row["entry"], row["dataset"], row["split"]))


def trace_text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value).lower()


def failure_table(results: Any) -> pd.DataFrame:
    """Cells without a usable end: entry, dataset, split, status, seconds, message, traceback."""
    bad = results.failed | ~results.finished
    cells = results.cells[bad]
    table = cells[["entry", "dataset", "split", "status", "message", "traceback"]].fillna("")
    table = table.assign(seconds=[number(value, 3) for value in results.end_seconds[bad]])
    return table.sort_values(["entry", "dataset", "split"], kind="stable", ignore_index=True)


def cost_rows(overview: Overview) -> list[list[str]]:
    cells = overview.results.cells
    contended = cells["contended"].fillna(0).astype(int).groupby(cells["entry"]).sum()
    names = ("train_seconds", "cpu_seconds", "predict_seconds", "peak_memory_mb")
    return [
        [entry_name(str(entry), row), str(row["cells"]), *(number(float(row[name]), 3) for name in names),
         str(contended[entry])]
        for entry, row in overview.board.iterrows()
    ]  # fmt: skip


def condition_rows(cells: pd.DataFrame) -> list[list[str]]:
    rows = []
    for dataset, part in cells.groupby("dataset", sort=True):
        fixed = [", ".join(sorted(part[name].unique())) for name in ("scheme", "budget", "clock", "device")]
        sizes = [part[name].dropna().max() for name in ("num_train", "num_test", "num_inputs")]
        texts = ["–" if pd.isna(size) else f"{int(size):,}".replace(",", "\u202f") for size in sizes]
        rows.append([str(dataset), str(part["split"].nunique()), *fixed, *texts])
    return rows


def run_texts(run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": run["id"],
        "started": run["started"],
        "outcome": run["outcome"],
        "command": shlex.join(run["command"]),
        "environment": json.dumps(run["environment"], indent=1, ensure_ascii=False),
        "protocol": json.dumps(run["protocol"], indent=1, ensure_ascii=False),
    }

