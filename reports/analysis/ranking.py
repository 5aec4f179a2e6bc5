"""Means and ranks on a bare pandas table. No store, no plots, no tests of significance.

The long table has one row per finished cell: entry, dataset, split, (seed,) value. A row whose value is NaN is a
failed cell; a missing row was not run. Rules, the same wherever fsibench prints a rank:

    mean rank       rank 1 is the best entry within one dataset x split x seed (a block); ranks are averaged over
                    blocks, as in the SIP paper. Scores equal to six digits share the mean of their ranks.
    rank of means   scores are averaged over the splits of a data set first, then ranked, then averaged over data sets.
    failed cell     ranks last in its block (several share the mean of the last ranks); in a mean it is replaced by
                    the score of `constant` on the same block. Where `constant` has none, the mean is over what is
                    left, and the entry ranks last on that data set.
    cell not run    its block is ranked for nobody, see `complete_blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

CONSTANT = "constant"
MOST_PATTERNS = 400  # of blocks that an unfinished store may lack in as many ways


@dataclass(frozen=True)
class Blocks:
    """Scores of the ranked entries where all of them have an outcome: blocks x entries, NaN for a failed cell."""

    values: pd.DataFrame
    constant: pd.Series | None  # scores of `constant` on these blocks, ranked or not: what replaces a failed cell
    unranked: list[str]
    num_incomplete: int

    @property
    def entries(self) -> list[str]:
        return list(self.values.columns)

    @property
    def splits(self) -> pd.Series:
        """Number of splits of each data set."""
        found: pd.Series = self.values.reset_index().groupby("dataset", observed=True)["split"].nunique()
        return found

    @property
    def datasets(self) -> list[str]:
        return sorted(self.values.index.get_level_values("dataset").unique())


def complete_blocks(table: pd.DataFrame, value: str = "value", entries: Sequence[str] | None = None) -> Blocks:
    """The blocks in which every ranked entry has an outcome, a score or a failure.

    An entry that was run on few blocks would leave few complete ones. Entries are therefore left out, those that lack a
    block together and those with the most to gain first, as long as that makes (number of entries) x (number of complete blocks) larger.
    Naming `entries` ranks exactly those.
    """
    values, known = wide(table, value)
    kept = list(entries) if entries is not None else largest_complete_part(known)
    complete = known[kept].all(axis=1)
    unranked = sorted(set(values.columns) - set(kept))
    constant = values.loc[complete, CONSTANT] if CONSTANT in values.columns else None
    return Blocks(values.loc[complete, kept].sort_index(), constant, unranked, int((~complete).sum()))


def wide(table: pd.DataFrame, value: str = "value") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Blocks x entries: the values, and whether there is an outcome at all (a failure is one)."""
    block = [name for name in ("dataset", "split", "seed") if name in table.columns]
    places = {name: _used(table[name]) for name in [*block, "entry"]}
    place = pd.DataFrame({**places, "place": np.arange(len(table))}).pivot(index=block, columns="entry", values="place")
    place = place.set_axis(place.columns.astype(object).rename("entry"), axis=1).set_axis(_plain(place.index), axis=0)
    known = place.notna()
    numbers = np.append(table[value].to_numpy(dtype=float), np.nan)  # the last place is for cells that do not exist
    rows = place.fillna(len(table)).to_numpy(dtype=np.int64)
    return pd.DataFrame(numbers[rows], index=place.index, columns=place.columns), known


def _used(column: pd.Series) -> pd.Series:
    """Categories that do not occur would become empty rows and columns."""
    return column.cat.remove_unused_categories() if isinstance(column.dtype, pd.CategoricalDtype) else column


def _plain(index: pd.Index) -> pd.Index:
    """Texts instead of categories, which few operations treat alike."""
    if not isinstance(index, pd.MultiIndex):
        return index.astype(object) if isinstance(index.dtype, pd.CategoricalDtype) else index
    levels = [level.astype(object) if isinstance(level.dtype, pd.CategoricalDtype) else level for level in index.levels]
    return index.set_levels(levels)


def largest_complete_part(known: pd.DataFrame) -> list[str]:
    """Entries to keep so that entries x complete blocks is as large as greedy removal makes it.

    To complete a block, all entries that lack it must go: what is removed at once are the entries that lack one of the blocks.
    """
    kept = list(known.columns)
    while len(kept) > 1:
        patterns, numbers = np.unique(~known[kept].to_numpy(dtype=bool), axis=0, return_counts=True)  # [P, k]: who lacks these blocks
        common = np.argsort(-numbers, kind="stable")[:MOST_PATTERNS]
        complete = [int(numbers[~(patterns & ~lacking).any(axis=1)].sum()) for lacking in patterns[common]]
        gains = (len(kept) - patterns[common].sum(axis=1)) * complete
        best = int(np.argmax(gains))
        if gains[best] <= len(kept) * int((~patterns.any(axis=1) * numbers).sum()):
            break
        kept = [entry for entry, lacks in zip(kept, patterns[common[best]], strict=True) if not lacks]
    return kept


def ranks(values: pd.DataFrame, larger_is_better: bool) -> pd.DataFrame:
    """Ranks within each row: 1 is best, ties share their mean, NaN (failed) shares the last places."""
    return significant(values).rank(axis=1, ascending=not larger_is_better, na_option="bottom", method="average")


def significant(values: pd.DataFrame) -> pd.DataFrame:
    """Six significant digits: what differs by less is the same score, computed in another order."""
    numbers = values.to_numpy(dtype=float)
    size = np.abs(np.where(np.isfinite(numbers) & (numbers != 0), numbers, 1.0))
    unit = 10.0 ** (np.floor(np.log10(np.fmax(size, 1e-300))) - 5)  # a subnormal number has no six digits
    return pd.DataFrame(np.round(numbers / unit) * unit, index=values.index, columns=values.columns)


def marks(means: Mapping[str, float], larger_is_better: bool) -> dict[str, str]:
    """`best` and `second` of one column; equal means share a mark, and two that share the first place leave no second."""
    rounded = significant(pd.DataFrame({name: [value] for name, value in means.items()})).iloc[0] if means else pd.Series()
    ordered = sorted(set(rounded.dropna()), reverse=larger_is_better)
    if not ordered:
        return {}
    found = {str(name): "best" for name in rounded.index[rounded == ordered[0]]}
    if len(found) == 1 and len(ordered) > 1:
        found |= {str(name): "second" for name in rounded.index[rounded == ordered[1]]}
    return found


def mean_rank(values: pd.DataFrame, larger_is_better: bool) -> pd.Series:
    """Mean over dataset x split (x seed) of the rank within each: the paper's definition."""
    return ranks(values, larger_is_better).mean()


def impute(values: pd.DataFrame, constant: pd.Series | None = None) -> pd.DataFrame:
    """Failed cells replaced by the score of `constant` on the same block, where there is one."""
    if constant is None:
        return values
    floor = constant.reindex(values.index)
    return pd.DataFrame({entry: values[entry].fillna(floor) for entry in values.columns}, index=values.index)


def dataset_means(values: pd.DataFrame, constant: pd.Series | None = None) -> pd.DataFrame:
    """Data sets x entries: mean over splits after imputation; failed cells that stay empty are left out of it."""
    return _over_splits(impute(values, constant))


def _over_splits(values: pd.DataFrame) -> pd.DataFrame:
    """Seeds of a split are averaged first, so that a split with many seeds weighs no more than another."""
    return values.groupby(level=["dataset", "split"], observed=True).mean().groupby(level="dataset", observed=True).mean()


def ranks_of_dataset_means(
    values: pd.DataFrame, larger_is_better: bool, constant: pd.Series | None = None
) -> pd.DataFrame:
    """Data sets x entries: rank of the mean score; an entry with failures that nothing replaces ranks last there."""
    imputed = impute(values, constant)
    means = _over_splits(imputed)
    broken = imputed.isna().groupby(level="dataset", observed=True).any()
    return ranks(means.mask(broken), larger_is_better)


def rank_of_means(values: pd.DataFrame, larger_is_better: bool, constant: pd.Series | None = None) -> pd.Series:
    """Mean over data sets of the rank of the mean score."""
    return ranks_of_dataset_means(values, larger_is_better, constant).mean()


def summary(values: pd.DataFrame, constant: pd.Series | None, known: pd.DataFrame) -> pd.DataFrame:
    """Per data set and entry: mean, standard deviation and standard error over splits, and what stands behind them.

    `known` tells a failed cell from one that was not run. Seeds of one split are averaged first, so the spread is
    over splits. `standard_error` is sd/√splits; the training sets of the splits overlap, so it understates the
    uncertainty of the method on new data.
    """
    failed = values.isna() & known
    imputed = impute(values, constant).where(known)
    grouped = imputed.groupby(level=["dataset", "split"], observed=True).mean().groupby(level="dataset", observed=True)
    count = grouped.count()
    deviation = grouped.std()
    parts: dict[str, pd.DataFrame] = {
        "mean": grouped.mean(),
        "standard_deviation": deviation,
        "standard_error": deviation.div(count.where(count > 0) ** 0.5),
        "splits": count,
        "failed": failed.groupby(level="dataset", observed=True).sum(),
        "imputed": (failed & imputed.notna()).groupby(level="dataset", observed=True).sum(),
        "cells": known.groupby(level="dataset", observed=True).sum(),
    }
    columns = {name: pd.Series(frame.stack()) for name, frame in parts.items()}
    return pd.DataFrame(columns).rename_axis(["dataset", "entry"])
