"""Panels of one-dimensional problems from the artifacts of kind "functions" (`fsibench run ... --keep functions`).

A payload is JSON, all in the target's and input's own units:

    x            [G]      grid
    train_x, train_y      training points
    draws        [S][G]   coherent draws of f from the predictive
    prior_draws  [S][G]   draws of f from the (learned) prior, or null
    quantiles    {"0.05": [G], ...}  of the predictive of y
    samples      [S][G]   draws of y, independent per grid point
    inducing     [{"train_seconds": t, "z": [M]}, ...] or null
    oracle       {"loc": [K][G], "scale": [K][G]}  components of the true conditional, or absent

Pages carry a thinned copy: enough to see, small enough to open at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fsibench.harness.store import Store
from fsibench.reports.analysis.results import Floats, Results

MOST_POINTS, MOST_DRAWS, MOST_SAMPLES, MOST_TRAIN, MOST_LOOKS = 81, 10, 12, 300, 25
# Central 90 % of a Gaussian component.
NORMAL_95 = 1.6449


def panels(store: Store, results: Results) -> list[dict[str, Any]]:
    """One panel per data set with artifacts; of each entry the lowest split that has one."""
    kept = results.cells["id"].isin(store.cells_with("functions"))
    order = ["dataset", "entry", "split", "seed"]
    cells = results.cells.loc[kept, ["id", *order]].sort_values(order)
    chosen = cells.drop_duplicates(["dataset", "entry"])
    payloads = store.artifacts("functions", chosen["id"])
    found = []
    for dataset, rows in chosen.groupby("dataset", sort=True, observed=True):
        columns = [
            (str(entry), int(split), int(seed), payloads[cell])
            for entry, split, seed, cell in rows[["entry", "split", "seed", "id"]].itertuples(index=False)
        ]
        found.append(_panel(str(dataset), columns))
    return found


def _panel(dataset: str, columns: Sequence[tuple[str, int, int, Mapping[str, Any]]]) -> dict[str, Any]:
    first = columns[0][3]
    if "x2" in first:
        return _plane(dataset, columns)
    train = np.column_stack([first["train_x"], first["train_y"]]).astype(float)
    shown = [_column(entry, split, seed, payload) for entry, split, seed, payload in columns]
    fans = [train[:, 1], *(_values(column["quantiles"], "y") for column in shown)]
    priors = [np.asarray(column["prior"], dtype=float).ravel() for column in shown if column["prior"]]
    return {
        "dataset": dataset,
        "x_range": [min(column["x"][0] for column in shown), max(column["x"][-1] for column in shown)],
        "y_range": _range(fans),
        "prior_range": _range(priors or fans),
        "train": _rounded(thin(train, MOST_TRAIN)),
        "oracle": _oracle(first),
        "columns": shown,
    }


def _plane(dataset: str, columns: Sequence[tuple[str, int, int, Mapping[str, Any]]]) -> dict[str, Any]:
    """A set with two inputs: mean and standard deviation of every entry, with the same colours."""
    first = columns[0][3]
    train = np.column_stack([first["train_x"], first["train_x2"]]).astype(float)
    empty: dict[str, Any] = {"quantiles": [], "samples": [], "draws": [], "prior": [], "inducing": []}
    shown = [
        {"entry": entry, "split": split, "seed": seed, **empty, **{key: _rounded(np.array(payload[key])) for key in ("mean", "sd")}}
        for entry, split, seed, payload in columns
    ]
    spans = {f"{key}_range": _range([np.array(payload[key], dtype=float).ravel() for *_, payload in columns]) for key in ("mean", "sd")}
    axes = {"x_range": [first["x"][0], first["x"][-1]], "x2_range": [first["x2"][0], first["x2"][-1]],
            "x_axis": first["x"], "x2_axis": first["x2"]}  # fmt: skip
    return {"dataset": dataset, **axes, **spans, "train": _rounded(thin(train, MOST_TRAIN)), "oracle": None, "columns": shown}


def _column(entry: str, split: int, seed: int, payload: Mapping[str, Any]) -> dict[str, Any]:
    grid = np.asarray(payload["x"], dtype=float).ravel()
    keep = np.unique(np.linspace(0, len(grid) - 1, min(len(grid), MOST_POINTS)).round().astype(int))
    quantiles = sorted((payload.get("quantiles") or {}).items(), key=lambda item: float(item[0]))
    inducing = [item for item in payload.get("inducing") or [] if item["z"]]
    looks = np.unique(np.linspace(0, len(inducing) - 1, min(len(inducing), MOST_LOOKS)).round().astype(int))
    return {
        "entry": entry,
        "split": split,
        "seed": seed,
        "x": _rounded(grid[keep]),
        "quantiles": [{"p": float(p), "y": _rounded(np.asarray(y, dtype=float)[keep])} for p, y in quantiles],
        "draws": _rows(payload.get("draws"), keep, MOST_DRAWS),
        "prior": _rows(payload.get("prior_draws"), keep, MOST_DRAWS),
        "samples": _rows(payload.get("samples"), keep, MOST_SAMPLES),
        "inducing": [
            {"train_seconds": inducing[k]["train_seconds"], "z": _rounded(np.ravel(inducing[k]["z"]))} for k in looks
        ],
    }


def _rows(rows: Any, keep: Any, most: int) -> list[Any]:
    if not rows:
        return []
    kept: list[Any] = _rounded(np.asarray(rows, dtype=float)[:most, keep])
    return kept


def _oracle(payload: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Where each component of the true conditional has 90 % of its mass."""
    if not payload.get("oracle"):
        return None
    x = _rounded(np.asarray(payload["x"], dtype=float).ravel())
    loc, scale = (np.atleast_2d(np.asarray(payload["oracle"][name], dtype=float)) for name in ("loc", "scale"))
    return [
        {"x": x, "low": _rounded(mean - NORMAL_95 * sd), "high": _rounded(mean + NORMAL_95 * sd)}
        for mean, sd in zip(loc, scale, strict=True)
    ]


def thin(rows: Floats, most: int) -> Floats:
    """At most so many rows, evenly picked."""
    return np.asarray(rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(int)])


def _values(items: Sequence[Mapping[str, Any]], key: str) -> Floats:
    return np.concatenate([np.asarray(item[key], dtype=float) for item in items]) if items else np.zeros(0)


def _range(parts: Sequence[Floats]) -> list[float]:
    """Shared limits: what all but the most extreme hundredth of the values need, with a margin."""
    values = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not len(values):
        return [0.0, 1.0]
    low, high = np.quantile(values, [0.005, 0.995])
    margin = 0.08 * (high - low) or 1.0
    return [float(low - margin), float(high + margin)]


def _rounded(values: Floats) -> Any:
    """Four significant digits, nested lists; null where not finite."""
    flat = [None if not np.isfinite(v) else float(f"{v:.4g}") for v in np.ravel(values)]
    return np.asarray(flat, dtype=object).reshape(np.shape(values)).tolist()
