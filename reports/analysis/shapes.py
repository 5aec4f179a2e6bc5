"""Functions on sets with one input, in numbers: does a predictive follow the truth in mean, width and shape, and did its prior learn?

From the panels that cells keep (`harness.panels`), within the range of the training inputs. Where the true conditional is known:

    prior_r2      1 − Var(truth − mean of prior draws) / Var(truth): 1 where the prior follows the mean of the data, 0 or less where not
    width_r       correlation of the width of the central 90 % interval with the true standard deviation: is noise where noise is?
    between_modes  share of draws of y that fall between two modes, where the truth has almost none; 0 is right, a half is a Gaussian

and where there are inducing inputs:

    covered       share of the training range that they span at the end
    moved         their mean distance between start and end, in training ranges; `moved_late` since half of the training time
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fsibench.harness.store import Store

COLUMNS = ("prior_r2", "width_r", "between_modes", "covered", "moved", "moved_late")
# Modes are apart where their distance is this many standard deviations; between them is the middle half of the distance.
APART = 8.0


def table(path: Path) -> pd.DataFrame:
    """One row per cell that kept its functions: entry, dataset, split, and the columns above (NaN where they do not apply)."""
    with Store.read(path) as store:
        payloads = store.artifacts("functions")
        cells = store.cells().set_index("id")
    rows = [
        {**cells.loc[cell, ["entry", "dataset", "split"]].to_dict(), **shape(payload)}
        for cell, payload in payloads.items()
        if cell in cells.index and "x2" not in payload
    ]
    names = ["entry", "dataset", "split", *COLUMNS]
    return pd.DataFrame(rows, columns=names).sort_values(["dataset", "entry", "split"], ignore_index=True)


def means(path: Path) -> pd.DataFrame:
    """The table's means over splits: dataset, entry, and the columns above."""
    found: pd.DataFrame = table(path).drop(columns="split").groupby(["dataset", "entry"], sort=True).mean().reset_index()
    return found


def shape(payload: Mapping[str, Any]) -> dict[str, float]:
    x, train = np.asarray(payload["x"], dtype=float), np.asarray(payload["train_x"], dtype=float)
    low, high = train.min(), train.max()
    inside = (x >= low) & (x <= high)
    found = {name: float("nan") for name in COLUMNS}
    if payload.get("oracle"):
        found |= _against_truth(payload, inside)
    if payload.get("inducing"):
        found |= _inducing(payload["inducing"], float(low), float(high))
    return found


def _against_truth(payload: Mapping[str, Any], inside: np.ndarray) -> dict[str, float]:
    loc = np.asarray(payload["oracle"]["loc"], dtype=float)[:, inside]
    scale = np.asarray(payload["oracle"]["scale"], dtype=float)[:, inside]
    mean = loc.mean(0)
    deviation = np.sqrt((scale**2 + loc**2).mean(0) - mean**2)
    low, high = (np.asarray(payload["quantiles"][level], dtype=float)[inside] for level in ("0.05", "0.95"))
    found = {"width_r": float(np.corrcoef(high - low, deviation)[0, 1]) if deviation.std() > 1e-9 else float("nan")}
    if payload.get("prior_draws"):
        prior = np.asarray(payload["prior_draws"], dtype=float)[:, inside].mean(0)
        found["prior_r2"] = float(1 - np.var(mean - prior) / np.var(mean))
    if len(loc) == 2:
        distance = np.abs(loc[1] - loc[0])
        apart = distance > APART * scale.max(0)
        draws = np.asarray(payload["samples"], dtype=float)[:, inside][:, apart]
        found["between_modes"] = float((np.abs(draws - mean[apart]) < distance[apart] / 4).mean())
    return found


def _inducing(looks: list[dict[str, Any]], low: float, high: float) -> dict[str, float]:
    places = np.asarray([look["z"] for look in looks], dtype=float) / (high - low)
    seconds = np.asarray([look["train_seconds"] for look in looks], dtype=float)
    halfway = int(np.searchsorted(seconds, seconds[-1] / 2))
    inside = np.clip(places[-1], low / (high - low), high / (high - low))
    return {
        "covered": float(np.ptp(inside)),
        "moved": float(np.abs(places[-1] - places[0]).mean()),
        "moved_late": float(np.abs(places[-1] - places[min(halfway, len(places) - 1)]).mean()),
    }
