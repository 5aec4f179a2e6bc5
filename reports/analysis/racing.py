"""Racing: entries whose order on a data set is settled get no further splits of it.

For each data set and each pair of entries, the differences of their scores on common splits are tested after every
split. Given a table of rows, random splits of it are independent draws, so the mean difference over all of its splits is
what is tested. The test is an e-process: its error rate holds although it is repeated after every split. With n differences, their t statistic
and an effect size of N(0, g) under the alternative,

    e_n = (1 + n g)^(−1/2) [ (1 + t²/ν) / (1 + t²/((1 + n g) ν)) ]^(n/2),   ν = n − 1,

is the ratio of marginal densities with the scale integrated out over the right Haar measure; for Gaussian differences of mean
zero, whatever their scale, P(e_n ≥ 1/α for any n) ≤ α (Ville). Many pairs are tested, so a pair counts as separated by the
e-BH rule (Wang and Ramdas, 2022): the k pairs with the largest values, for the largest k with e_(k) ≥ K/(α k) among K pairs. That
keeps the expected share of false separations below α at any time, whatever the dependence between pairs.

Separated pairs get no further splits, and two kinds of open pairs get none either: those that would not be separated by the last
split if their effect stayed what it is, and those of two entries whose tiers on the board no longer change when the means are
redrawn within their errors. Leaving a pair open separates nobody, so it cannot make a false separation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fsibench.reports.analysis import statistics

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Variance of the effect size under the alternative. Any value is valid; entries of a board differ by several standard deviations.
EFFECT_VARIANCE = 9.0
# Boards drawn to see which tiers are settled, and how often a settled tier may differ among them.
NUM_DRAWS = 300
UNSETTLED = 0.01


@dataclass(frozen=True)
class Race:
    """When to stop: false separations at most `alpha`, at least `fewest` splits each, at most `most`."""

    most: int
    alpha: float = 0.05
    fewest: int = 5

    def standing(self, scores: Mapping[str, pd.DataFrame]) -> dict[str, Pairs]:
        """Every pair on every data set; `scores` are splits x entries, NaN where a cell was not run or failed."""
        measured = {dataset: _statistics(table.to_numpy(dtype=float)) for dataset, table in scores.items()}
        levels = {dataset: log_e_values(count, t) for dataset, (count, t) in measured.items()}
        upper = {dataset: np.triu_indices(table.shape[1], 1) for dataset, table in scores.items()}
        flat = np.concatenate([levels[name][upper[name]] for name in scores]) if scores else np.zeros(0)
        limit = e_bh_limit(flat, self.alpha)
        found = {}
        for name, table in scores.items():
            count, t = measured[name]
            at_end = log_e_values(np.full_like(count, self.most), t * np.sqrt(self.most / np.maximum(count, 1.0)))
            order = np.sign(t) * (levels[name] >= limit)
            found[name] = Pairs([str(entry) for entry in table.columns], order, at_end >= limit, limit)
        return found

    def next(self, scores: Mapping[str, pd.DataFrame], larger_is_better: bool) -> dict[str, list[str]]:
        """Data set -> the entries that get another split of it."""
        if all((table.notna().sum() < self.fewest).all() for table in scores.values()):
            return {name: sorted(map(str, table.columns)) for name, table in scores.items()}
        unsettled = unsettled_entries(scores, larger_is_better)
        going = {name: pairs.open_entries(unsettled) for name, pairs in self.standing(scores).items()}
        young = {name: list(table.columns[table.notna().sum() < self.fewest]) for name, table in scores.items()}
        return {name: sorted({*going[name], *young[name]}) for name in scores}


@dataclass(frozen=True)
class Pairs:
    """Pairs of one data set as matrices, [i, j] about entry i minus entry j."""

    entries: list[str]
    order: Floats  # −1, 0 or 1: the sign of the difference where the pair is separated
    promising: Flags  # whether it may still be separated by the last split
    limit: float  # log e-value from which on a pair is separated

    def open_entries(self, unsettled: Collection[str]) -> list[str]:
        """The entries of pairs that are not separated, may still be, and matter for the tier of one of the two."""
        moving = np.array([entry in unsettled for entry in self.entries], dtype=bool)
        is_open = (self.order == 0) & self.promising & (moving[:, None] | moving[None, :])
        np.fill_diagonal(is_open, False)
        return [entry for entry, goes_on in zip(self.entries, is_open.any(1), strict=True) if goes_on]


def unsettled_entries(scores: Mapping[str, pd.DataFrame], larger_is_better: bool) -> set[str]:
    """Entries whose tier differs in more than `UNSETTLED` of boards drawn within the errors of their means."""
    entries = sorted({str(entry) for table in scores.values() for entry in table.columns})
    generator = np.random.default_rng(0)
    ranks = np.zeros((NUM_DRAWS, len(entries)))
    sets = np.zeros(len(entries))
    for table in scores.values():
        place = [entries.index(str(entry)) for entry in table.columns]
        drawn = _drawn_means(table.to_numpy(dtype=float), generator)  # [draws, entries of the set]
        order = -drawn if larger_is_better else drawn
        # An entry that lacks a set takes part in the others only, as on a board that leaves it unranked there.
        ranks[:, place] += (1 + order.argsort(1).argsort(1)) * len(entries) / len(place)
        sets[place] += 1
    mean_ranks = ranks / np.maximum(sets, 1)
    critical = statistics.nemenyi_critical_difference(max(len(entries), 2), max(len(scores), 1))
    tiers = tiers_of(mean_ranks, critical)
    usual = np.median(tiers, axis=0)
    return {entry for entry, changes in zip(entries, (tiers != usual).mean(0) > UNSETTLED, strict=True) if changes}


def tiers_of(mean_ranks: Floats, critical: float) -> Floats:
    """`statistics.tiers` of many boards at once: [boards, entries] -> [boards, entries]."""
    order = mean_ranks.argsort(1, kind="stable")
    ordered = np.take_along_axis(mean_ranks, order, 1)
    leader, tier, found = ordered[:, 0], np.ones(len(ordered)), np.empty_like(ordered)
    for place in range(ordered.shape[1]):
        begins = ordered[:, place] - leader > critical
        leader, tier = np.where(begins, ordered[:, place], leader), tier + begins
        found[:, place] = tier
    tiers = np.empty_like(found)
    np.put_along_axis(tiers, order, found, 1)
    return tiers


def adjusted_means(values: Floats, num_rounds: int = 50) -> tuple[Floats, Floats]:
    """Entry means with the effects of splits taken out, where entries have unequal splits; and the residuals.

    Least squares of score = entry + split by turns: a hard split that only some entries saw does not count against them.
    """
    present = np.isfinite(values)
    of_entry, of_split = np.zeros(values.shape[1]), np.zeros(values.shape[0])
    for _ in range(num_rounds):
        of_entry = np.where(present, values - of_split[:, None], 0.0).sum(0) / np.maximum(present.sum(0), 1)
        of_split = np.where(present, values - of_entry, 0.0).sum(1) / np.maximum(present.sum(1), 1)
    return of_entry, np.where(present, values - of_entry - of_split[:, None], np.nan)


def _drawn_means(values: Floats, generator: np.random.Generator) -> Floats:
    """Means of entries within their errors, Student-t for few splits; an entry without a score is last: [draws, entries]."""
    means, residuals = adjusted_means(values)
    count = np.isfinite(values).sum(0)
    free = np.maximum(count - 1, 1)
    error = np.sqrt(np.nansum(residuals**2, 0) / free / np.maximum(count, 1))
    drawn = means + error * generator.standard_t(free, size=(NUM_DRAWS, len(means)))
    return np.where(count > 0, drawn, np.nan)


def _statistics(values: Floats) -> tuple[Floats, Floats]:
    """Number of common splits and t statistic of every pair: [entries, entries] each."""
    differences = values[:, :, None] - values[:, None, :]  # [splits, entries, entries]
    common = np.isfinite(differences)
    count = common.sum(0).astype(float)
    safe = np.maximum(count, 1.0)
    mean = np.where(common, differences, 0.0).sum(0) / safe
    squares = (np.where(common, differences - mean, 0.0) ** 2).sum(0)
    error = np.sqrt(squares / np.maximum(count - 1, 1.0) / safe)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(count > 1, mean / error, 0.0)
    return count, np.nan_to_num(t, nan=0.0, posinf=1e9, neginf=-1e9)  # equal scores: no difference


def log_e_values(count: Floats, t: Floats, g: float = EFFECT_VARIANCE) -> Floats:
    """log e_n of the module's formula; 0 where there are fewer than two differences."""
    free = np.maximum(count - 1, 1.0)
    growth = 1 + count * g
    ratio = np.log1p(t**2 / free) - np.log1p(t**2 / (growth * free))
    return np.where(count > 1, 0.5 * (count * ratio - np.log(growth)), 0.0)


def e_bh_limit(log_values: Floats, alpha: float) -> float:
    """The log e-value from which on hypotheses are rejected: log K/(α k) for the largest k that has k values above it."""
    ordered = np.sort(log_values)[::-1]
    ranks = np.arange(1, len(ordered) + 1)
    needed = np.log(max(len(ordered), 1) / (alpha * ranks))
    enough = np.flatnonzero(ordered >= needed)
    return float(needed[enough[-1]]) if len(enough) else float(np.log(max(len(ordered), 1) / alpha))
