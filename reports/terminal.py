"""The ranking for a terminal: what `fsibench run` prints last and `fsibench report --terminal` prints alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from fsibench.errors import unknown
from fsibench.reports.analysis.overview import Overview, count
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Results, load

WIDEST_NAME = 34


def render(store_path: Path, where: Mapping[str, str] | None = None, metrics: Sequence[str] = ()) -> str:
    """Ranking table and what a reader must know about it, as plain text; in these metrics if any are named."""
    results = load(store_path, where)
    if results.cells.empty:
        return "The store holds no results yet."
    for key in metrics:
        if key not in results.metrics:
            raise unknown("metric of this store", key, results.metrics)
    return render_results(results, metrics)


def verdict(store_path: Path) -> str:
    """One sentence of result."""
    sentence: str = Report.read(store_path).verdict
    return sentence or "Nothing is ranked yet."


def render_results(results: Results, metrics: Sequence[str] = ()) -> str:
    shown = metrics or results.headline
    overview = Overview(results)
    blocks = overview.blocks[overview.main_metric]
    if blocks.values.empty:
        return "\n".join(["No dataset × split has been finished by every entry yet.", *overview.caveats])
    board = overview.board
    if metrics:
        board = board.loc[board[[f"mean_rank_{key}" for key in metrics]].mean(axis=1).sort_values(kind="stable").index]
    rows = [_row(str(entry), row, shown) for entry, row in board.iterrows()]
    labels = [results.metrics[key].label for key in shown]
    headers = ["entry", *(f"{name}\n{kind}" for name in labels for kind in ("rank", "of means"))]
    text = tabulate(rows, [*headers, "failed", "train\nseconds", "predict s\n1000 rows"], tablefmt="simple", disable_numparse=True,
                    colalign=("left", *["right"] * (2 * len(labels) + 3)))  # fmt: skip
    explanation = (
        f"rank: mean over {count(len(blocks.values), 'dataset × split block')} of "
        f"{count(len(blocks.datasets), 'data set')}; "
        "of means: rank of the data set means, averaged over data sets. Lower is better. "
        f"Entries are ordered by the mean of their ranks in {', '.join(labels)}."
    )
    return "\n".join([text, "", explanation, *_marks(overview), *overview.caveats])


def _row(entry: str, row: pd.Series, metrics: Sequence[str]) -> list[str]:
    ranks = [row[f"{kind}_{metric}"] for metric in metrics for kind in ("mean_rank", "rank_of_means")]
    name = shorten(entry) + (" *" if row["note"] else "") + (" !" if row["doubtful"] else "")
    failed = f"{row['failed']}/{row['cells']}" if row["failed"] else "-"
    seconds = "-" if np.isnan(row["train_seconds"]) else f"{row['train_seconds']:.3g}"
    rate = row["predict_seconds_per_1000_rows"]
    predict = "-" if np.isnan(rate) else f"{rate:.2g}"
    return [name, *("-" if np.isnan(rank) else f"{rank:.2f}" for rank in ranks), failed, seconds, predict]


def _marks(overview: Overview) -> list[str]:
    lines = [f"* {entry}: {note}." for entry, note in sorted(overview.results.notes.items())]
    doubtful = overview.board[overview.board["doubtful"] > 0]
    lines += [
        f"! {entry}: {row['doubtful']} of {row['cells']} cells failed the method's own diagnostics (R-hat, ESS)."
        for entry, row in doubtful.iterrows()
    ]
    return lines


def shorten(name: str, width: int = WIDEST_NAME) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"
