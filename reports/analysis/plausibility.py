"""Can the numbers of a table be true together? Checks for any table of RMSE, LL and CRPS, printed or our own.

A homoscedastic Gaussian that knows its error r has LL = −log r − ½ log 2πe and CRPS = r/√π ≈ 0.56 r. Real predictives
stray from that, but not by orders of magnitude:

    exponent   The error implied by LL, exp(−LL)/√(2πe), against RMSE. One over-confident method may be far off; when
               the median of a data set's methods is off by more than a factor of 5, the column's unit is in doubt.
    cap        LL more than 1.5 nats above −log RMSE − ½ log 2πe: more than varying noise can explain.
    range      CRPS outside 0.2 to 1.25 times RMSE. Above 1, the distribution is worse than its own mean.
    mark       A value better than the one marked as best.
    rank sum   Mean ranks of k methods sum to k(k+1)/2.
    spread     A spread larger than the mean of a positive score: some splits went wrong.
    oracle     A score better than that of the true conditional density.

Tables are long: dataset, method, metric (rmse, ll, crps), mean, and where known spread (of the mean's error: `error`) and
mark ("best", "second").
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np
import pandas as pd

from fsibench.harness.plausibility import CRPS_RANGE, HALF_LOG_2_PI_E, LARGEST_LL_EXCESS
from fsibench.metrics import known

LARGEST_UNIT_ERROR = 5.0
CHECKED = ("rmse", "ll", "crps")


@dataclass(frozen=True)
class Doubt:
    """One value that cannot be right, or should be looked at. `reading` is what it was probably meant to be."""

    dataset: str
    method: str
    metric: str
    check: str
    explanation: str
    reading: float | None = None

    @property
    def is_impossible(self) -> bool:
        """Whether the value itself is in doubt; a large spread only says that something went wrong."""
        return self.check != "spread"


def check_table(table: pd.DataFrame) -> list[Doubt]:
    """All doubts about a long table of scores."""
    doubts: list[Doubt] = []
    for dataset, rows in table.groupby("dataset", sort=True, observed=True):
        wide = rows.pivot(index="method", columns="metric", values="mean").reindex(columns=list(CHECKED))
        exponents = list(_check_exponent(str(dataset), wide))
        for doubt in exponents:  # the other checks use the probable reading, or they would only repeat this one
            wide.loc[doubt.method, "rmse"] = doubt.reading
        doubts += [*exponents, *_check_cap(str(dataset), wide), *_check_range(str(dataset), wide)]
        doubts += [*_check_marks(str(dataset), rows), *_check_spread(str(dataset), rows)]
        doubts += _check_oracle(str(dataset), rows)
    return doubts


def _check_exponent(dataset: str, wide: pd.DataFrame) -> Iterator[Doubt]:
    implied = np.exp(-wide["ll"] - HALF_LOG_2_PI_E)
    ratio = (implied / wide["rmse"]).dropna()
    if len(ratio) < 3:  # a median of fewer is one method's confidence, not the column's unit
        return
    middle = float(ratio.median())
    power = round(math.log10(middle)) if 0 < middle < math.inf else 0
    if 1 / LARGEST_UNIT_ERROR <= middle <= LARGEST_UNIT_ERROR or power == 0:
        return
    for method in ratio.index:
        printed = float(wide.loc[method, "rmse"])
        yield Doubt(
            dataset, str(method), "rmse", "exponent",
            f"the LL values of this column imply errors {middle:.3g} times the RMSE (median of {len(ratio)} methods; "
            f"{ratio[method]:.3g} here): RMSE is {10.0 ** abs(power):g} times too {'small' if power > 0 else 'large'}",
            printed * 10.0**power,
        )  # fmt: skip


def _check_cap(dataset: str, wide: pd.DataFrame) -> Iterator[Doubt]:
    excess = wide["ll"] - (-np.log(wide["rmse"]) - HALF_LOG_2_PI_E)
    for method in excess.index[excess > LARGEST_LL_EXCESS]:
        yield Doubt(
            dataset, str(method), "ll", "cap",
            f"LL is {excess[method]:.2f} nats above what a Gaussian with this RMSE can reach",
        )  # fmt: skip


def _check_range(dataset: str, wide: pd.DataFrame) -> Iterator[Doubt]:
    ratio = (wide["crps"] / wide["rmse"]).dropna()
    low, high = CRPS_RANGE
    for method in ratio.index[(ratio < low) | (ratio > high)]:
        factor = 10.0 if ratio[method] < low else 0.1
        crps = float(wide.loc[method, "crps"])
        reading = crps * factor if low <= ratio[method] * factor <= high else None
        hint = f"; times {factor:g} it would fit" if reading is not None else ""
        yield Doubt(
            dataset, str(method), "crps", "range", f"CRPS is {ratio[method]:.3g} of RMSE, expected about 0.56{hint}", reading
        )  # fmt: skip


def _check_marks(dataset: str, rows: pd.DataFrame) -> Iterator[Doubt]:
    if "mark" not in rows.columns:
        return
    for metric, column in rows.groupby("metric", observed=True):
        best = column.loc[column["mark"] == "best", "mean"]
        if best.empty:
            continue
        larger = known()[str(metric)].larger_is_better
        better = column["mean"] > best.iloc[0] if larger else column["mean"] < best.iloc[0]
        for _, row in column[better].iterrows():
            marked = column.loc[best.index[0], "method"]
            text = f"better than {marked}'s {best.iloc[0]:g}, which is marked as best"
            yield Doubt(dataset, row["method"], str(metric), "mark", text)


def _check_spread(dataset: str, rows: pd.DataFrame) -> Iterator[Doubt]:
    if "spread" not in rows.columns:
        return
    wide_spread = rows[(rows["metric"] != "ll") & (rows["spread"] > rows["mean"])]
    for _, row in wide_spread.iterrows():
        text = f"the spread {row['spread']:g} exceeds the mean {row['mean']:g}: some splits went wrong"
        yield Doubt(dataset, row["method"], row["metric"], "spread", text)


def _check_oracle(dataset: str, rows: pd.DataFrame) -> Iterator[Doubt]:
    oracle = oracles().get(base_name(dataset))
    if oracle is None:
        return
    for _, row in rows.iterrows():
        sign = 1.0 if known()[row["metric"]].larger_is_better else -1.0
        gain = sign * (row["mean"] - oracle[row["metric"]])
        error = row.get("error", math.nan)
        # Test points are a sample: the truth itself is beaten by chance, hardly ever by three standard errors.
        allowance = 3 * error if not math.isnan(error) else 0.1 * abs(oracle[row["metric"]])
        if gain > max(allowance, 0.005 * abs(oracle[row["metric"]])):
            text = f"better than the true conditional density ({oracle[row['metric']]:g}), which nothing can be"
            yield Doubt(dataset, row["method"], row["metric"], "oracle", text)


def check_rank_sums(ranks: pd.DataFrame) -> list[Doubt]:
    """Mean ranks (method, metric, mean) must sum to k(k+1)/2, up to their rounding to two decimals."""
    doubts = []
    for metric, rows in ranks.groupby("metric", observed=True):
        count = len(rows)
        total, expected = float(rows["mean"].sum()), count * (count + 1) / 2
        if abs(total - expected) > 0.005 * count + 1e-9:
            text = f"mean ranks of {count} methods sum to {total:.2f} instead of {expected:g}"
            doubts += [Doubt("average_rank", row, str(metric), "rank sum", text) for row in rows["method"]]
    return doubts


@lru_cache(maxsize=1)
def oracles() -> dict[str, dict[str, float]]:
    """Data set -> expected scores of its true conditional density."""
    text = (resources.files("fsibench.reports") / "data" / "oracles.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["dataset"]: {metric: float(row[metric]) for metric in CHECKED} for row in rows}


def base_name(dataset: str) -> str:
    """The name without options: `bimodal[num_train=500]` is bimodal."""
    return dataset.split("[", 1)[0]
