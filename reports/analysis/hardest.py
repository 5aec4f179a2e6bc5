"""Which test rows are hard for everybody: the worst rows that each cell kept, pooled over entries and splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fsibench.harness.store import Store
from fsibench.reports.analysis.results import Results

KIND = "hardest"
# Enough to tell which rows are hard; a store may have a hundred thousand cells.
MOST_CELLS = 4000
NUMBERS = ("y", "mean", "sd", "crps")


def worst_rows(store: Store, results: Results) -> pd.DataFrame:
    """One line per kept row of every cell that ended well: dataset, entry, split, point, y, mean, sd, crps, inputs.

    Only splits with the most entries count: a row of another split could not be hard for as many. Of large stores the first `MOST_CELLS` cells by
    seed and split. `point` names a row: its number in the table, or its place in the split where test rows are fresh draws.
    """
    ended = results.cells.loc[results.finished, ["id", "dataset", "entry", "split", "seed"]]
    entries = ended.groupby(["dataset", "split"], observed=True)["entry"].transform("nunique")
    full = entries == entries.groupby(ended["dataset"], observed=True).transform("max")
    good = ended[full & ~results.failed[results.finished]]
    good = good.sort_values(["seed", "split"], kind="stable").head(MOST_CELLS)
    kept = store.artifacts(KIND, good["id"])
    columns: dict[str, list[Any]] = {name: [] for name in ("dataset", "entry", "split", "point", *NUMBERS, "inputs")}
    for cell, dataset, entry, split in good[["id", "dataset", "entry", "split"]].itertuples(index=False):
        content = kept.get(cell)
        if content is None:
            continue
        count = len(content["place"])
        named = {"dataset": [dataset] * count, "entry": [entry] * count, "split": [split] * count, **_texts(content, split)}
        for name, values in (named | {name: content[name] for name in NUMBERS}).items():
            columns[name] += values
    return pd.DataFrame(columns)


def _texts(content: Mapping[str, Any], split: int) -> dict[str, list[str]]:
    """What to call each row, and its inputs."""
    rows, inputs, places = content["row"], content["x"], content["place"]
    points = [f"split {split}, test row {place}" for place in places] if rows is None else [f"row {row}" for row in rows]
    shown = [""] * len(places) if inputs is None else [", ".join(f"{value:.4g}" for value in x) for x in inputs]
    return {"point": points, "inputs": shown}


def hardest_points(worst: pd.DataFrame, dataset: str, most: int = 10) -> pd.DataFrame:
    """The rows of a data set that are among the worst of the most entries, then of the most cells, then by median CRPS.

    Columns: y, entries, cells, crps (median), low and high (range of the predictive means), inputs; index: point.
    """
    part = worst[worst["dataset"] == dataset]
    if part.empty:
        return pd.DataFrame(columns=["y", "entries", "cells", "crps", "low", "high", "inputs"])
    grouped = part.groupby("point", sort=True, observed=True)
    table = pd.DataFrame({
        "y": grouped["y"].first(), "entries": grouped["entry"].nunique(), "cells": grouped.size(),
        "crps": grouped["crps"].median(), "low": grouped["mean"].min(), "high": grouped["mean"].max(),
        "inputs": grouped["inputs"].first(),
    })  # fmt: skip
    order = np.lexsort((-table["crps"], -table["cells"], -table["entries"]))
    return table.iloc[order[:most]]
