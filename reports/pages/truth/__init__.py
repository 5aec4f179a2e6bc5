"""Distance from the exact posterior: per problem a table, distance against time, and whether near means good."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fsibench.harness.store import Store
from fsibench.reports.analysis import truth
from fsibench.reports.analysis.report import Report
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, Sheets
from fsibench.reports.styles import style

DIGITS = 3
WIDTH, HEIGHT, LEFT, BOTTOM = 520, 260, 56, 30
LABELS = {"w2": "W2", "kl": "KL", "mean": "mean", "sd": "sd", "energy": "energy"}


def sheets(report: Report) -> Sheets:
    if truth.FIRST not in report.results.curves.values:
        return {}
    with Store.read(report.store_path) as store:
        every = store.evaluations(having=truth.FIRST)
    every = every[every["entry"].isin(report.results.entries)]
    finals = every[every["final"] == 1]
    return {} if finals.empty else {"truth.html": content(truth.table(finals), every)}


def content(means: pd.DataFrame, curves: pd.DataFrame) -> dict[str, Any]:
    return {
        "page_title": "Distance from the posterior",
        "labels": list(LABELS.values()),
        "problems": [
            {
                "name": problem,
                "same": _lines(part[part["same_prior"]]),
                "own": _lines(part[~part["same_prior"]]),
                "figure": figure(curves[curves["dataset"] == problem]),
            }
            for problem, part in means.groupby("dataset", observed=True)
        ],
        "groups": [
            {"title": title, "lines": [_agreement(line) for line in truth.correlations(part)]}
            for title, part in (
                ("Entries with the prior of the reference", means[means["same_prior"]]),
                ("All entries", means),
            )
        ],
        "data": {},
    }


def _lines(part: pd.DataFrame) -> list[list[str]]:
    return [
        [
            line["entry"],
            *(
                f"{number(line.get(f'truth_{name}'), DIGITS)} | {number(line.get(f'truth_{name}_outside'), DIGITS)}"
                for name in truth.DISTANCES
            ),
            *(number(line.get(name), DIGITS) for name in ("ll", "crps", "train_seconds")),
        ]
        for line in part.to_dict("records")
    ]


def _agreement(line: truth.Correlation) -> list[str]:
    interval = f"{number(line.low, 2)} to {number(line.high, 2)}"
    return [LABELS[line.distance], line.score.upper(), number(line.value, 2), interval, str(line.problems), str(line.entries)]


def figure(curves: pd.DataFrame) -> dict[str, Any]:
    """Distance against training seconds, both logarithmic: polylines in the coordinates of an SVG."""
    shown = curves[(curves["train_seconds"] > 0) & (curves["truth_w2"] > 0)]
    if shown.empty:
        return {}
    times, values = shown["train_seconds"].map(math.log10), shown["truth_w2"].map(math.log10)
    x0, x1 = _padded(times.min(), times.max())
    y0, y1 = _padded(values.min(), values.max())

    def point(seconds: float, distance: float) -> str:
        x = LEFT + (math.log10(seconds) - x0) / (x1 - x0) * (WIDTH - LEFT - 8)
        y = 8 + (y1 - math.log10(distance)) / (y1 - y0) * (HEIGHT - BOTTOM - 8)
        return f"{x:.1f},{y:.1f}"

    lines = []
    for (entry, _), part in shown.groupby(["entry", "cell"], observed=True, sort=False):
        own = style(entry)
        pairs = zip(part["train_seconds"], part["truth_w2"], strict=True)
        lines.append({
            "entry": entry, "colour": own.colour, "dash": " ".join(map(str, own.dash)),
            "points": " ".join(point(seconds, distance) for seconds, distance in pairs),
        })  # fmt: skip
    return {
        "width": WIDTH, "height": HEIGHT, "left": LEFT, "bottom": HEIGHT - BOTTOM, "lines": lines,
        "x_ticks": [(point(10.0**tick, 10.0**y0).split(",")[0], f"{10.0**tick:.2g}") for tick in _ticks(x0, x1)],
        "y_ticks": [(point(10.0**x0, 10.0**tick).split(",")[1], f"{10.0**tick:.2g}") for tick in _ticks(y0, y1)],
    }  # fmt: skip


def _padded(low: float, high: float) -> tuple[float, float]:
    return (low - 0.1, high + 0.1) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two logarithms, with halves of a decade where there are fewer than two."""
    whole = [float(tick) for tick in range(math.ceil(low), math.floor(high) + 1)]
    if len(whole) >= 2:
        return whole
    return [tick / 2.0 for tick in range(math.ceil(2 * low), math.floor(2 * high) + 1)]


PAGE = Page("Distance from the posterior", 58, sheets, __name__)
