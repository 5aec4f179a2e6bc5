"""The leaderboard: score switch, budget slider, filters.

What the page shows first is computed here (`standing`). What a reader chooses is computed in the browser by `board.js`,
from the scores of all cells at all slider times.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.conditions import BLOCK
from fsibench.reports.analysis.overview import count
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.standing import num_draws
from fsibench.reports.pages import Page, common, single
from fsibench.reports.texts import board_heads, board_rows, conditions_sentence, score_table


def leaderboard(report: Report) -> dict[str, Any]:
    overview, results = report.overview, report.results
    num_datasets, num_entries = len(results.datasets), len(results.entries)
    shared = common(report)
    return {
        "page_title": "Leaderboard",
        "summary": summary(report),
        "caveats": overview.caveats,
        "result": report.verdict,
        "segments": [metric for metric in shared["metrics"] if metric["key"] in results.tested],
        "more": [metric for metric in shared["metrics"] if metric["key"] not in results.tested],
        "first_metric": overview.main_metric,
        "board_heads": board_heads(overview),
        "board_rows": board_rows(overview),
        "tables": [score_table(overview, key) for key in results.tested],
        "data": {
            **shared,
            "first_metric": overview.main_metric,
            "board": board_data(report),
            "tails": [None, None, *(statistics.expanded_tail(n) for n in range(2, num_datasets + 1))],
            # Critical difference for one data set; the page divides by √N.
            "nemenyi": {k: statistics.nemenyi_critical_difference(k, 1) for k in range(2, num_entries + 1)},
        },
    }


def summary(report: Report) -> str:
    results = report.results
    finished = int((results.finished & ~results.failed).sum())
    return (
        f"{count(len(results.entries), 'entry', 'entries')} on {count(len(results.datasets), 'data set')}, "
        f"{count(len(results.cells), 'cell')}, {finished} of them finished well. {conditions_sentence(results.cells)}"
    )


def board_data(report: Report) -> dict[str, Any]:
    """Scores of all cells, entry by entry and block by block, as base64 of float32; and Python's own standings."""
    results, anytime = report.results, report.slider
    block = list(BLOCK)
    cells = results.cells.loc[results.finished, ["entry", *block]]
    blocks = cells[block].drop_duplicates().sort_values(block, ignore_index=True)
    place = pd.MultiIndex.from_frame(blocks).get_indexer(pd.MultiIndex.from_frame(cells[block]))
    entry_of = pd.Index(results.entries).get_indexer(cells["entry"])
    position = entry_of * len(blocks) + place
    num_slots, rows = len(results.entries) * len(blocks), cells.index.to_numpy()

    def packed(metric: str) -> str:
        values = results.final(metric)[rows][:, None]
        if metric in results.tested:
            values = np.column_stack([anytime.values(metric)[rows], values])
        full = np.full((num_slots, values.shape[1]), np.nan, dtype="<f4")
        full[position] = values
        return base64.b64encode(full.tobytes()).decode()

    def flags(marked: Any) -> str:
        full = np.zeros(num_slots, dtype=int)
        full[position] = marked
        return "".join(map(str, full))

    entries = results.entries
    ranked = {key: [entries.index(entry) for entry in report.overview.blocks[key].entries] for key in results.metrics}
    return {
        "num_blocks": len(blocks),
        "dataset_of": pd.Index(results.datasets).get_indexer(blocks["dataset"]).tolist(),
        "split_of": blocks["split"].tolist(),
        "grid": next(iter(anytime.grids.values())).tolist() if len(cells) else [1.0],
        "values": {metric: packed(metric) for metric in results.metrics},
        "with_curve": results.tested,
        "ran": flags(1),
        "known": {metric: flags((~results.absent(metric)[rows]).astype(int)) for metric in results.metrics},
        "failed": flags(results.failed[rows].astype(int)),
        "ranked": ranked,
        "constant": entries.index(ranking.CONSTANT) if ranking.CONSTANT in entries else None,
        "cost": costs(report),
        "standings": {key: standing(item.table, entries) for key, item in report.standings.items()},
        "num_draws": num_draws(*report.overview.blocks[report.overview.main_metric].values.shape),
    }


def standing(table: pd.DataFrame, entries: list[str]) -> dict[int, Mapping[str, float | None]]:
    """Entry number -> its row of `Standing.table`."""
    names = ["mean_rank", "low", "high", "rank_of_means", "tier"]
    rows = table[names].astype(object).where(table[names].notna(), None).to_dict("index")
    return {entries.index(str(entry)): row for entry, row in rows.items()}


def costs(report: Report) -> list[dict[int, list[tuple[float, float]]]]:
    """Per entry and data set number, of the cells that finished well: sum and count of CPU seconds, CPU seconds of
    prediction and thousands of rows predicted, sum and count of memory."""
    results = report.results
    names = ["cpu_seconds", "predict_cpu_seconds", "predict_rows", "peak_memory_mb"]
    cells = results.cells.loc[results.finished & ~results.failed, ["entry", "dataset", *names]]
    grouped = cells[names].astype(float).groupby([cells["entry"], cells["dataset"]], observed=True)
    found: list[dict[int, list[tuple[float, float]]]] = [{} for _ in results.entries]
    for (entry, dataset), row in grouped.sum().join(grouped.size().rename("cells")).iterrows():
        numbers = [(row["cpu_seconds"], row["cells"]), (row["predict_cpu_seconds"], row["predict_rows"] / 1000),
                   (row["peak_memory_mb"], row["cells"])]  # fmt: skip
        if not results.same_speed:
            numbers[:2] = [(0.0, 0.0), (0.0, 0.0)]
        short = [(float(f"{total:.5g}"), float(number)) for total, number in numbers]
        found[results.entries.index(entry)][results.datasets.index(dataset)] = short
    return found


PAGE = Page("Leaderboard", 10, single("index.html", leaderboard), __name__)
