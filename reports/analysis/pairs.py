"""Every pair of entries on every data set, and data set means that can be compared across data sets."""

from __future__ import annotations

import pandas as pd

from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.overview import Overview

NOTHING_TESTED = pd.DataFrame(columns=["a", "b", "difference", "standard_error", "splits", "dataset", "p_value", "p_holm", "detectable"])


def pairwise(overview: Overview, key: str) -> pd.DataFrame:
    """Corrected paired tests on every data set, all pairs of ranked entries; Holm's adjustment is within a data set."""
    tables = []
    for dataset, values in split_scores(overview, key).groupby(level="dataset", observed=True):
        table = statistics.paired_differences(values, overview.test_to_train[str(dataset)])
        tables.append(table[table["splits"] > 0].assign(dataset=dataset))
    if not tables:
        return NOTHING_TESTED
    tested: pd.DataFrame = statistics.with_p_values(pd.concat(tables, ignore_index=True), families="dataset")
    return tested


def split_scores(overview: Overview, key: str, entries: list[str] | None = None) -> pd.DataFrame:
    """Data set and split x entries (default: the ranked ones), seeds averaged: also splits that not all of them have, for pairs that do."""
    entries = overview.blocks[key].entries if entries is None else entries
    values, known = overview.wide[key]
    scores = ranking.impute(values[entries], values.get(ranking.CONSTANT)).where(known[entries])
    return scores.groupby(level=["dataset", "split"], observed=True).mean()


def scaled_means(overview: Overview, key: str) -> pd.DataFrame:
    """Data set means that can be compared across data sets."""
    blocks = overview.blocks[key]
    means: pd.DataFrame = ranking.dataset_means(blocks.values, blocks.constant)
    return means.div(unit_scale(overview, key).reindex(means.index), axis=0)


def unit_scale(overview: Overview, key: str) -> pd.Series:
    """What to divide the scores of each data set by: the target's sd, or 1 (a change of unit shifts log densities alike)."""
    cells = overview.results.cells
    scale = cells["target_scale"].astype(float).groupby(cells["dataset"], observed=True).mean()
    in_units = overview.results.metrics[key].unit == "target"
    return scale.where(scale > 0, 1.0) if in_units else pd.Series(1.0, index=scale.index)
