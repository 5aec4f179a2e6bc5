"""Every published number beside ours, with a verdict and the reason for it.

The published table is shipped as it was printed (`data/published_uci.csv`, source beside it). Verdicts:

    reproduced              Welch's test does not tell our mean from the printed one at the 5 % level
    better, worse           it does
    implausible as printed  the value contradicts its neighbours (`plausibility`); never compared with ours
    variant                 our entry optimises another objective than the paper's; shown beside, never compared
    not comparable          ours come from too few or other splits, or too little time
    not run                 the store has no finished cell for it

Each cell names the column that it answers for (`reproduces`) and how its objective departs from it (`variant`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fsibench.metrics import known
from fsibench.reports.analysis import plausibility, ranking
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.results import Results
from fsibench.reports.numbers import number, p_text, with_error

VERDICTS = ("reproduced", "better", "worse", "implausible as printed", "variant", "not comparable", "not run")
# Fewer splits or seconds than this say nothing about a published number.
PUBLISHED_SCHEME = "paper"
FEWEST_SPLITS = 5
LEAST_SECONDS = 20.0
NUM_PUBLISHED_SPLITS = 20
LEVEL_OF_TEST = 0.05
AVERAGE_RANK = "average_rank"


@dataclass(frozen=True)
class Line:
    """One published number and ours; `entry` is None where we ran nothing like it."""

    dataset: str
    metric: str
    method: str
    printed: str
    published: float
    entry: str | None
    ours: float
    ours_text: str
    verdict: str
    why: str
    source: str = "Rodríguez-Santana et al. (2022)"


def published() -> pd.DataFrame:
    """The shipped table: metric (lower case), dataset, method, mean, spread, mark, printed."""
    text = (resources.files("fsibench.reports") / "data" / "published_uci.csv").read_text(encoding="utf-8")
    table = pd.read_csv(io.StringIO(text), keep_default_na=False)
    return table.assign(metric=table["metric"].str.lower())


def published_doubts(table: pd.DataFrame) -> list[plausibility.Doubt]:
    """What the plausibility checks find in the published table."""
    is_rank = table["dataset"] == AVERAGE_RANK
    doubts: list[plausibility.Doubt] = plausibility.check_table(table[~is_rank])
    doubts.extend(plausibility.check_rank_sums(table[is_rank]))
    return doubts


def own_doubts(overview: Overview) -> list[plausibility.Doubt]:
    """The same checks over our own means."""
    parts = []
    for metric in (key for key in plausibility.CHECKED if key in overview.summaries):
        summary = overview.summaries[metric].reset_index()
        part = summary.rename(columns={"entry": "method", "standard_error": "error", "standard_deviation": "spread"})
        parts.append(part[["dataset", "method", "mean", "error", "spread"]].assign(metric=metric))
    doubts: list[plausibility.Doubt] = plausibility.check_table(pd.concat(parts).dropna(subset=["mean"]))
    return doubts


def columns() -> list[str]:
    """The methods of the published table."""
    return list(published()["method"].unique())


def matching_entries(results: Results) -> dict[str, dict[str, str]]:
    """Published column -> our entries that answer for it, each with how its objective departs; originals first."""
    known = results.cells[["reproduces", "variant", "entry"]].drop_duplicates().sort_values(["variant", "entry"])
    found: dict[str, dict[str, str]] = {name: {} for name in columns()}
    for column, variant, entry in known.itertuples(index=False):
        if column in found:
            found[column][entry] = variant
    return found


def shortfall(cells: pd.DataFrame) -> str:
    """`2 splits of 3 s` where that is too little for a verdict on the published number; empty where it is enough."""
    budgets, splits = list(cells["budget"].unique()), cells["split"].nunique()
    # A budget in steps has no seconds of its own: the shortest training counts.
    seconds = [cells.loc[cells["budget"] == text, "train_seconds"].min() if text.endswith("steps") else float(text.rstrip("s")) for text in budgets]
    enough = splits >= FEWEST_SPLITS and min(seconds, default=0.0) >= LEAST_SECONDS
    shown = ", ".join(text if text.endswith("steps") else f"{float(text.rstrip('s')):g} s" for text in budgets)
    return "" if enough else f"{splits} {'split' if splits == 1 else 'splits'} of {shown}"


def survivors(ours: pd.Series) -> str:
    """How many splits have a score, where those are too few for a verdict; empty where they are enough."""
    return f"only {int(ours['splits'])} splits ended well" if ours["splits"] < FEWEST_SPLITS else ""


def other_splits(cells: pd.DataFrame) -> str:
    """The schemes of our splits where they are not the published 80/20; empty where they are."""
    schemes = sorted(set(cells["scheme"]))
    return "" if schemes == [PUBLISHED_SCHEME] else f"splits of the scheme {', '.join(schemes)}"


def banner(lines: list[Line]) -> str:
    """One sentence above the table when numbers of ours are too thin for a verdict; empty when there are none."""
    thin = [line for line in lines if line.verdict == "not comparable"]
    if not thin:
        return ""
    reasons = ", ".join(sorted({line.why for line in thin}))
    return (
        f"{len(thin)} published numbers are not compared with ours, which come from too few or other splits or too little time "
        f"({reasons}); a verdict needs at least {FEWEST_SPLITS} splits of {LEAST_SECONDS:g} s."
    )


def ledger(overview: Overview) -> list[Line]:
    """One line per published number and matching entry, in the order of the published table."""
    table = published()
    doubts: dict[tuple[str, str, str], list[plausibility.Doubt]] = {}
    for doubt in published_doubts(table):
        if doubt.is_impossible:
            doubts.setdefault((doubt.dataset, doubt.metric, doubt.method), []).append(doubt)
    entries = matching_entries(overview.results)
    own_ranks = ranks_among_published(overview, entries)
    lines = []
    for row in table.to_dict("records"):
        mine = doubts.get((row["dataset"], row["metric"], row["method"]), [])
        originals: dict[str | None, str] = {entry: text for entry, text in entries[row["method"]].items() if not text}
        for entry, variant in ((originals or {None: ""}) | entries[row["method"]]).items():
            if row["dataset"] == AVERAGE_RANK:
                lines.append(_rank_line(row, entry, variant, own_ranks, overview.results))
            else:
                lines.append(_score_line(row, entry, variant, mine, overview))
    return lines


def _score_line(
    row: Mapping[str, Any], entry: str | None, variant: str, doubts: list[plausibility.Doubt], overview: Overview
) -> Line:
    cells = overview.results.cells
    own = cells[(cells["dataset"] == row["dataset"]) & (cells["entry"] == entry)]
    key, summary = (row["dataset"], entry), overview.summaries[row["metric"]]
    ours = summary.loc[key] if key in summary.index else None
    mean = math.nan if ours is None else float(ours["mean"])
    text = "–"
    if ours is not None and not math.isnan(mean):
        text = " ± ".join(with_error(mean, float(ours["standard_deviation"])))
    if doubts:
        verdict, why = "implausible as printed", "; ".join(dict.fromkeys(doubt.explanation for doubt in doubts))
        readings = [doubt.reading for doubt in doubts if doubt.reading is not None]
        if readings:
            why += f". Probably meant: {number(readings[0], 3)}"
    elif ours is None or ours["cells"] == 0:
        verdict, why = "not run", "no finished cell" if entry else "no such entry in the store"
    elif variant:
        verdict, why = "variant", variant
    elif scarce := other_splits(own) or shortfall(own):
        verdict, why = "not comparable", scarce
    elif math.isnan(mean):
        verdict, why = "worse", f"all {int(ours['failed'])} cells failed"
    elif few := survivors(ours):
        verdict, why = "not comparable", few
    else:
        verdict, why = compare(row, ours)
        why += _circumstances(ours, own)
    return Line(row["dataset"], row["metric"], row["method"], row["printed"], row["mean"], entry, mean, text, verdict, why)


def compare(row: Mapping[str, Any], ours: pd.Series) -> tuple[str, str]:
    """Verdict and reason of Welch's test: do both means estimate the same number?

    Given the rows of a table, its random splits are independent draws, and both means are over splits of the same rows. The correction
    for overlapping splits (`statistics`) is for new rows and would call nearly everything reproduced here.
    """
    metric = known()[row["metric"]]
    sign = 1.0 if metric.larger_is_better else -1.0
    gain = sign * (float(ours["mean"]) - row["mean"])
    if math.isnan(row["spread"]) or int(ours["splits"]) < 2:
        return "not comparable", "a spread is missing"
    own, printed = float(ours["standard_deviation"]), row["spread"]
    if own == printed == 0:
        p_value = 1.0 if gain == 0 else 0.0
    else:
        numbers = int(ours["splits"]), row.get("num_splits", NUM_PUBLISHED_SPLITS)
        p_value = float(stats.ttest_ind_from_stats(gain, own, numbers[0], 0.0, printed, numbers[1], equal_var=False).pvalue)
    verdict = "reproduced" if p_value > LEVEL_OF_TEST else "better" if gain > 0 else "worse"
    return verdict, f"{'better' if gain >= 0 else 'worse'} by {number(abs(gain), 3)}, p {p_text(p_value)}"


def _circumstances(ours: pd.Series, cells: pd.DataFrame) -> str:
    """Our budget, and what differs from the paper's setting as far as the store knows."""
    parts = [f"budget {', '.join(cells['budget'].unique())}"]
    if ours["splits"] < NUM_PUBLISHED_SPLITS:
        parts.append(f"{int(ours['splits'])} splits")
    if ours["failed"]:
        parts.append(f"{int(ours['failed'])} cells failed, {int(ours['imputed'])} replaced by constant")
    return f" ({'; '.join(parts)})"


def ranks_among_published(overview: Overview, entries: Mapping[str, Mapping[str, str]]) -> pd.DataFrame | None:
    """Mean ranks of our counterparts of the seven methods among themselves, or None where one is missing."""
    originals = ([entry for entry, variant in of_column.items() if not variant] for of_column in entries.values())
    chosen = [names[0] for names in originals if names]
    if len(chosen) < len(entries):
        return None
    results, datasets = overview.results, set(published()["dataset"])
    columns = {}
    for metric in plausibility.CHECKED:
        table = results.table(metric)
        table = table[table["dataset"].isin(datasets) & table["entry"].isin(chosen)]
        blocks = ranking.complete_blocks(table, entries=[name for name in chosen if name in set(table["entry"])])
        if len(blocks.entries) < len(chosen) or blocks.values.empty:
            return None
        columns[metric] = ranking.mean_rank(blocks.values, known()[metric].larger_is_better)
        columns[f"{metric}_blocks"] = pd.Series(len(blocks.values), index=columns[metric].index)
    return pd.DataFrame(columns)


def _rank_line(
    row: Mapping[str, Any], entry: str | None, variant: str, own: pd.DataFrame | None, results: Results
) -> Line:
    fixed = (row["dataset"], row["metric"], row["method"], row["printed"], row["mean"], entry)
    if variant:
        return Line(*fixed, math.nan, "–", "variant", variant)
    if own is None or entry not in own.index:
        why = "needs all seven methods of the paper on the same splits"
        return Line(*fixed, math.nan, "–", "not run", why)
    ours = float(own.loc[entry, row["metric"]])
    num_blocks = int(own.loc[entry, f"{row['metric']}_blocks"])
    if scarce := shortfall(results.cells[results.cells["entry"].isin(own.index)]):
        return Line(*fixed, ours, f"{ours:.2f}", "not comparable", scarce)
    # One rank unit within a data set, eight data sets: differences below 1/√8 cannot be told from chance.
    allowance = 2 / math.sqrt(8)
    gain = row["mean"] - ours
    verdict = "reproduced" if abs(gain) <= allowance else "better" if gain > 0 else "worse"
    why = f"differs by {abs(gain):.2f} ranks over {num_blocks} dataset × split blocks; up to {allowance:.2f} is chance"
    return Line(*fixed, ours, f"{ours:.2f}", verdict, why)


def counts(lines: list[Line]) -> dict[str, int]:
    """How often each verdict was given."""
    given = np.array([line.verdict for line in lines])
    return {verdict: int((given == verdict).sum()) for verdict in VERDICTS}
