"""The leaderboard: score switch, budget slider, filters; ranks are recomputed in the browser as `ranking` does."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.overview import count
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import BLOCK, METRICS
from fsibench.reports.pages import Page, common, metrics, single
from fsibench.reports.texts import board_heads, board_rows, conditions_sentence, score_table


def leaderboard(report: Report) -> dict[str, Any]:
    overview, results = report.overview, report.results
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
        "tables": [score_table(overview, key) for key in METRICS],
        "data": {
            **common(report),
            "board": board_data(report),
            "tails": [None, None, *(statistics.expanded_tail(n) for n in range(2, num_datasets + 1))],
            # Critical difference for one data set; the page divides by √N.
            "nemenyi": {k: statistics.nemenyi_critical_difference(k, 1) for k in range(2, num_entries + 1)},
        },
    }


def board_data(report: Report) -> dict[str, Any]:
    """Scores of all cells at all slider times, entry by entry and block by block, as base64 of float32."""
    results, anytime = report.results, report.slider
    cells = results.cells[results.finished]
    blocks = cells[list(BLOCK)].drop_duplicates().sort_values(list(BLOCK), ignore_index=True)
    place = pd.MultiIndex.from_frame(blocks).get_indexer(pd.MultiIndex.from_frame(cells[list(BLOCK)]))
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
        "ranked": [entries.index(entry) for entry in report.overview.ranked],
        "constant": entries.index(ranking.CONSTANT) if ranking.CONSTANT in entries else None,
        "cost": board_costs(report),
        # The bootstrap costs cells x draws; a page must stay quick.
        "num_draws": int(np.clip(4_000_000 // max(num_slots, 1), 100, 1000)),
    }


def board_costs(report: Report) -> list[dict[int, list[float]]]:
    """Per entry, per data set number: sums of CPU seconds and of memory over the cells that finished well, and count."""
    results = report.results
    good = results.finished & ~results.failed
    columns = results.cells.loc[good, ["entry", "dataset", "cpu_seconds", "peak_memory_mb"]]
    grouped = columns.groupby(["entry", "dataset"])
    table = grouped[["cpu_seconds", "peak_memory_mb"]].sum().assign(count=grouped.size())
    costs: list[dict[int, list[float]]] = [{} for _ in results.entries]
    for (entry, dataset), row in table.iterrows():
        numbers = [round(float(value), 3) for value in row]
        costs[results.entries.index(entry)][results.datasets.index(dataset)] = numbers
    return costs


PAGE = Page("Leaderboard", 10, single("index.html", leaderboard), __name__)
