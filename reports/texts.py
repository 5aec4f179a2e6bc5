"""The leaderboard and the score tables as text: what pages without a script, Markdown and LaTeX print."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import ranking
from fsibench.reports.analysis.overview import Overview, failure_rule
from fsibench.reports.analysis.results import direction, explanation
from fsibench.reports.numbers import number, with_error


def conditions_sentence(cells: pd.DataFrame) -> str:
    names = {"scheme": "split scheme", "budget": "budget", "clock": "clock", "device": "device"}
    parts = [f"{label} {', '.join(sorted(cells[key].unique()))}" for key, label in names.items() if len(cells)]
    return f"Conditions: {'; '.join(parts)}." if parts else ""


COSTS = {
    "train_seconds": "training seconds",
    "cpu_seconds": "CPU seconds",
    "predict_seconds_per_1000_rows": "CPU seconds to predict 1,000 rows",
    "peak_memory_mb": "peak memory, MB",
}


def board_heads(overview: Overview) -> list[str]:
    labels = [overview.results.metrics[key].label for key in overview.results.tested]
    ranks = [f"{label}: {kind}" for label in labels for kind in ("mean rank", "rank of means")]
    return [*ranks, "failed", *COSTS.values()]


def board_rows(overview: Overview) -> list[list[str]]:
    """The leaderboard at the end of the budget, as text: the page without JavaScript, and Markdown."""
    rows = []
    for entry, row in overview.board.iterrows():
        ranks = [row[f"{kind}_{key}"] for key in overview.results.tested for kind in ("mean_rank", "rank_of_means")]
        texts = ["–" if np.isnan(rank) else f"{rank:.2f}" for rank in ranks]
        failed = f"{row['failed']} of {row['cells']}" if row["failed"] else "0"
        costs = [number(float(row[name]), 3) for name in COSTS]
        rows.append([entry_name(str(entry), row), *texts, failed, *costs])
    return rows


def entry_name(entry: str, row: pd.Series) -> str:
    """The entry with what must be seen wherever it is listed: its note and a warning."""
    note = f" ({row['note']})" if row["note"] else ""
    return entry + note + (" ⚠ diagnostics failed" if row["doubtful"] else "")


def score_table(overview: Overview, key: str) -> dict[str, Any]:
    """Data set means of one metric as text, entries in the order of the leaderboard."""
    metric, datasets = overview.results.metrics[key], overview.results.datasets
    rows = [
        [entry_name(str(entry), row), *(score_text(overview, key, dataset, str(entry)) for dataset in datasets)]
        for entry, row in overview.board.iterrows()
    ]
    rule = failure_rule(ranking.CONSTANT in overview.results.entries)
    caption = (
        f"Mean ± standard error over splits of the {explanation(metric)}; {direction(metric)}. "
        f"† contains failed cells: {rule}"
    )
    if overview.fewer_splits:
        caption += " In brackets the number of splits where other entries have more: means of other splits, to be compared with care."
    return {"key": key, "title": metric.label, "caption": caption, "heads": datasets, "rows": rows}


def score_text(overview: Overview, key: str, dataset: str, entry: str) -> str:
    """Mean and standard error, with marks for failures and for fewer splits than others."""
    cell = overview.scores[key].get((dataset, entry))
    if cell is None or math.isnan(cell["mean"]):
        return "failed" if cell is not None and cell["failed"] else "–"
    mean, error = with_error(cell["mean"], cell["standard_error"], cell["splits"])
    fewer = overview.fewer_splits.get((dataset, entry))
    return f"{mean} ± {error}" + (" †" if cell["failed"] else "") + (f" ({fewer})" if fewer else "")


def _machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Without the data cards, which a report shows elsewhere."""
    return {key: value for key, value in environment.items() if key != "data"}


def run_texts(run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": run["id"],
        "started": run["started"],
        "outcome": run["outcome"],
        "command": shlex.join(run["command"]),
        "environment": json.dumps(_machine(run["environment"]), indent=1, ensure_ascii=False),
        "protocol": json.dumps(run["protocol"], indent=1, ensure_ascii=False),
    }
