"""Before and after: two stores, cell by cell on identical splits.

Verdicts of an entry on a data set, for one metric:

    improved             better, and a corrected paired test says so (Holm over everything compared)
    unchanged            the same numbers on every split, to the last digit that matters
    within noise         different, but no more than the splits explain
    regression           worse, and the test says so; or a cell that ended well now fails

The times are compared as a ratio of training seconds per step, so that equal budgets tell something too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from fsibench.metrics import known
from fsibench.reports.analysis import statistics
from fsibench.reports.analysis.conditions import CONDITION
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.results import Results, load
from fsibench.reports.numbers import number, p_text, with_error
from fsibench.reports.terminal import shorten

KEYS = ["entry", "dataset", "split", "seed", *CONDITION]
VERDICTS = ("improved", "unchanged", "within noise", "regression")
LEVEL = 0.05
SAME = 1e-6  # relative: below this two scores are the same number


@dataclass(frozen=True)
class Comparison:
    """`rows`: one per entry, data set and metric. `only_before`, `only_after`: cells without a partner."""

    rows: pd.DataFrame
    only_before: int
    only_after: int
    newly_failing: list[str]

    @property
    def has_regression(self) -> bool:
        return bool((self.rows["verdict"] == "regression").any()) or bool(self.newly_failing)


def compare(before_path: Path, after_path: Path, where: Mapping[str, str] | None = None) -> Comparison:
    """Pair the cells of two stores and test the differences."""
    before, after = load(before_path, where), load(after_path, where)
    keys = [key for key in before.tested if key in after.tested]
    pairs = _cells(before, keys).merge(_cells(after, keys), on=KEYS, how="outer", suffixes=("_before", "_after"), indicator=True)
    both = pairs[pairs["_merge"] == "both"]
    broken = both[both["failed_after"].astype(bool) & ~both["failed_before"].astype(bool)]
    names = [f"{row.entry} on {row.dataset}, split {row.split}" for row in broken.itertuples()]
    rows = _rows(both, keys, {**Overview(after).test_to_train, **Overview(before).test_to_train})
    return Comparison(rows, int((pairs["_merge"] == "left_only").sum()), int((pairs["_merge"] == "right_only").sum()), names)


def _cells(results: Results, keys: Sequence[str]) -> pd.DataFrame:
    """Finished cells with their final scores and training seconds per step."""
    scores = {key: results.final(key) for key in keys}
    count = np.diff(results.curves.offsets)
    steps = np.fmax(results.curves.last(results.curves.steps, count), 1.0)
    seconds = results.curves.last(results.curves.seconds, count) / steps
    table = results.cells[KEYS].assign(**scores, failed=results.failed, seconds=seconds)
    return table[results.finished]


def _rows(both: pd.DataFrame, keys: Sequence[str], test_to_train: Mapping[str, float]) -> pd.DataFrame:
    rows = []
    for (entry, dataset), cells in both.groupby(["entry", "dataset"], sort=True, observed=True):
        ratio = cells["seconds_after"].sum() / cells["seconds_before"].sum() if cells["seconds_before"].sum() else np.nan
        for key in keys:
            sign = 1.0 if known()[key].larger_is_better else -1.0
            old, new = cells[f"{key}_before"].to_numpy(), cells[f"{key}_after"].to_numpy()
            gain = sign * (new - old)
            gain = gain[np.isfinite(gain)]
            test = statistics.corrected_paired_test(gain, test_to_train[str(dataset)])
            size = np.nanmax(np.abs(old)) if np.isfinite(old).any() else 1.0
            same = len(gain) > 0 and bool((np.abs(gain) <= SAME * size).all())
            fixed = {"entry": entry, "dataset": dataset, "metric": key, "splits": len(gain), "seconds_ratio": ratio}
            means = {"before": _mean(old), "after": _mean(new), "gain": test.difference}
            rows.append({**fixed, **means, "standard_error": test.standard_error, "p_value": test.p_value, "same": same})
    table = pd.DataFrame(rows)
    if table.empty:
        return table.assign(verdict=[], p_holm=[])
    table["p_holm"] = statistics.holm(table["p_value"].to_list())
    return table.assign(verdict=[_verdict(row) for row in table.to_dict("records")])


def _mean(values: np.ndarray) -> float:
    present = values[np.isfinite(values)]
    return float(present.mean()) if len(present) else np.nan


def _verdict(row: Mapping[str, float]) -> str:
    if row["same"]:
        return "unchanged"
    if row["p_holm"] < LEVEL:
        return "improved" if row["gain"] > 0 else "regression"
    return "within noise"


def render(comparison: Comparison) -> str:
    """For a terminal: what changed, the clearest first."""
    rows = comparison.rows
    if rows.empty:
        return "The two stores have no finished cell in common: entry, data set, split, seed, budget must be the same."
    counts = rows["verdict"].value_counts()
    lines = [", ".join(f"{int(counts.get(verdict, 0))} {verdict}" for verdict in VERDICTS) + "."]
    changed = rows[rows["verdict"] != "unchanged"].sort_values(["p_holm", "entry", "dataset"], kind="stable")
    if len(changed):
        body = [_text(row) for row in changed.head(60).to_dict("records")]
        heads = ["entry", "data set", "score", "before", "after", "gain ± error", "p (Holm)", "s/step", "verdict"]
        lines += [tabulate(body, heads, tablefmt="simple", disable_numparse=True)]
        lines += ["gain: positive is better; error: standard error corrected for overlapping splits; s/step: after/before."]
    if len(changed) > 60:
        lines.append(f"{len(changed) - 60} more rows are not shown; --out writes them all.")
    for name in comparison.newly_failing[:20]:
        lines.append(f"regression: {name} ended well before and fails now.")
    if comparison.only_before or comparison.only_after:
        lines.append(
            f"Without a partner: {comparison.only_before} cells only before, {comparison.only_after} only after."
        )
    return "\n".join(lines)


def _text(row: Mapping[str, float]) -> list[str]:
    gain, error = with_error(float(row["gain"]), float(row["standard_error"]))
    names = [shorten(str(row["entry"]), 28), shorten(str(row["dataset"]), 20), known()[str(row["metric"])].label]
    numbers = [number(row["before"]), number(row["after"]), f"{gain} ± {error}", p_text(row["p_holm"]), f"{row['seconds_ratio']:.2f}"]
    return [*names, *numbers, str(row["verdict"])]
