"""Cells that failed, and cells whose method reports that its diagnostics failed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fsibench.reports.numbers import number


def doubtful_rows(results: Any) -> list[dict[str, Any]]:
    """Cells whose method reports failed diagnostics, with what it reported."""
    cells = results.cells[["entry", "dataset", "split"]].iloc[list(results.doubtful)].to_dict("records")
    rows = [
        {**cell, "trace": ", ".join(f"{key} {trace_text(value)}" for key, value in trace.items())}
        for cell, trace in zip(cells, results.doubtful.values(), strict=True)
    ]
    return sorted(rows, key=lambda row: (row["entry"], row["dataset"], row["split"]))


def trace_text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value).lower()


def failure_table(results: Any) -> pd.DataFrame:
    """Cells without a usable end: entry, dataset, split, status, seconds, message, traceback."""
    bad = results.failed | ~results.finished
    cells = results.cells[bad]
    table = cells[["entry", "dataset", "split", "status", "message", "traceback"]].astype(object).fillna("")
    table = table.assign(seconds=[number(value, 3) for value in results.end_seconds[bad]])
    return table.sort_values(["entry", "dataset", "split"], kind="stable", ignore_index=True)
