"""Committed results as tables: one row per cell, one line per published score."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fsibench.reports.publication import Publication


def rows_table(board: Publication) -> pd.DataFrame:
    """One row per cell at its end: coordinates, status and every metric."""
    results = board.report.results
    columns = ["id", "entry", "dataset", "split", "seed", "budget", "clock", "status", "train_seconds"]
    found: dict[str, Any] = {key: results.final(key) for key in results.metrics}
    texts = dict.fromkeys(("entry", "dataset", "budget", "clock", "status"), str)
    table = results.cells[columns].astype(texts).rename(columns={"id": "cell"}).assign(**found)
    return table.sort_values(["dataset", "split", "entry", "seed"], ignore_index=True)


def ledger_table(board: Publication) -> pd.DataFrame:
    return pd.DataFrame(
        [{**vars(line), "explanation": board.explanation(line) if line.verdict == "worse" else ""} for line in board.judged]
    )
