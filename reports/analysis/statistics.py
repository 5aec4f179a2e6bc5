"""Statistics for small benchmarks, on bare pandas tables. The data set is the unit of replication.

Splits of one data set share most of their training rows, and data sets are few. Treating dataset x split cells as
independent makes almost every pair of methods look different. Everything here either takes one number per data set,
resamples whole data sets, or corrects for the overlap.

    friedman, nemenyi_critical_difference, nemenyi_p_values, cliques   Demšar (2006), JMLR 7:1-30
    wilcoxon_holm                                                      Wilcoxon (1945), Holm (1979)
    corrected_paired_test                                              Nadeau and Bengio (2003), Machine Learning 52
    two_level_bootstrap, expanded_interval                             Davison and Hinkley (1997) 3.8; Hesterberg (2015)
    smallest_detectable_difference, splits_needed, leave_one_dataset_out, tiers
    time_to_targets, reached_share, area_under_curve                   Hansen et al. (2021), COCO

`ranks` and `means` are data sets x entries; `differences` is one value per split.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Friedman:
    """Are the mean ranks further apart than chance? `p_value` is that of the F statistic."""

    statistic: float  # chi-squared, corrected for ties
    f_statistic: float  # Iman and Davenport (1980): less conservative than chi-squared with few data sets
    p_value: float
    num_datasets: int
    num_entries: int


def friedman(ranks: pd.DataFrame) -> Friedman:
    """Friedman's test on data sets x entries; needs two data sets and three entries, else the p-value is NaN."""
    num_datasets, num_entries = ranks.shape
    if num_datasets < 2 or num_entries < 3:
        return Friedman(math.nan, math.nan, math.nan, num_datasets, num_entries)
    if not np.ptp(ranks.to_numpy(), axis=1).any():  # nothing but ties: scipy would divide by zero
        return Friedman(0.0, 0.0, 1.0, num_datasets, num_entries)
    statistic = float(stats.friedmanchisquare(*(ranks[entry] for entry in ranks.columns)).statistic)
    f_statistic, p_value = iman_davenport(statistic, num_datasets, num_entries)
    return Friedman(statistic, f_statistic, p_value, num_datasets, num_entries)


def iman_davenport(statistic: float, num_datasets: int, num_entries: int) -> tuple[float, float]:
    """F = (N−1) χ² / (N(k−1) − χ²) with k−1 and (k−1)(N−1) degrees of freedom, and its p-value."""
    free = num_entries - 1
    room = num_datasets * free - statistic
    f_statistic = (num_datasets - 1) * statistic / room if room > 0 else math.inf
    return f_statistic, float(stats.f.sf(f_statistic, free, free * (num_datasets - 1)))


@lru_cache(maxsize=256)
def _studentised_range(num_entries: int, alpha: float) -> float:
    return float(stats.studentized_range.ppf(1 - alpha, num_entries, np.inf))


def nemenyi_critical_difference(num_entries: int, num_datasets: int, alpha: float = 0.05) -> float:
    """CD = q_α √(k(k+1) / 6N), with q_α the studentised range quantile over √2."""
    quantile = _studentised_range(num_entries, alpha) / math.sqrt(2)
    return quantile * math.sqrt(num_entries * (num_entries + 1) / (6 * num_datasets))


def nemenyi_p_values(mean_ranks: pd.Series, num_datasets: int) -> pd.DataFrame:
    """p-value of every pair of entries, adjusted for all pairs."""
    num_entries = len(mean_ranks)
    error = math.sqrt(num_entries * (num_entries + 1) / (6 * num_datasets))
    values = mean_ranks.to_numpy(dtype=float)
    z = np.abs(values[:, None] - values[None, :]) / error  # [k, k]
    upper = np.triu_indices(num_entries, 1)
    p = np.ones((num_entries, num_entries))
    p[upper] = stats.studentized_range.sf(z[upper] * math.sqrt(2), num_entries, np.inf)
    p[upper[1], upper[0]] = p[upper]
    return pd.DataFrame(p, index=mean_ranks.index, columns=mean_ranks.index)


def cliques(mean_ranks: pd.Series, critical_difference: float) -> list[list[str]]:
    """The bars of a critical-difference diagram: maximal runs of at least two entries that are not separable."""
    ordered = mean_ranks.sort_values(kind="stable")
    values = ordered.to_numpy(dtype=float)
    runs: list[tuple[int, int]] = []
    for start in range(len(values)):
        end = int(np.searchsorted(values, values[start] + critical_difference, side="right"))
        if end - start > 1 and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return [list(ordered.index[start:end]) for start, end in runs]


def tiers(mean_ranks: pd.Series, critical_difference: float) -> pd.Series:
    """Tier of each entry: a new one begins where an entry is separable from the best entry of the current tier."""
    ordered = mean_ranks.sort_values(kind="stable")
    tier, leader = 1, float(ordered.iloc[0]) if len(ordered) else 0.0
    assigned = []
    for rank in ordered:
        if rank - leader > critical_difference:
            tier, leader = tier + 1, float(rank)
        assigned.append(tier)
    return pd.Series(assigned, index=ordered.index, dtype=int).reindex(mean_ranks.index)


def holm(p_values: Sequence[float] | Floats) -> Floats:
    """Holm's step-down adjustment; NaN (no test possible) stays NaN and is not counted."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def wilcoxon_holm(means: pd.DataFrame) -> pd.DataFrame:
    """Signed-rank test of every pair over data sets, Holm-adjusted: columns a, b, p_value, p_holm.

    Scores of different data sets have different units; divide them by a scale of each data set first.
    """
    pairs = list(itertools.combinations(means.columns, 2))
    p_values = [_signed_rank(means[a] - means[b]) for a, b in pairs]
    table = pd.DataFrame(pairs, columns=["a", "b"])
    return table.assign(p_value=p_values, p_holm=holm(p_values))


def sets_for_signed_rank(num_pairs: int, alpha: float = 0.05) -> int:
    """Data sets from which on a signed-rank test can reject after Holm: its smallest p-value is 2^(1 − n) times pairs."""
    return 1 + math.ceil(math.log2(max(num_pairs, 1) / alpha))


def _signed_rank(differences: pd.Series) -> float:
    present = differences.dropna().to_numpy(dtype=float)
    if len(present) < 2:
        return math.nan
    if not present.any():
        return 1.0
    # The exact distribution wherever it holds: no zeros, no ties among the sizes.
    sizes = np.abs(present)
    exact = bool(sizes.all()) and len(np.unique(sizes)) == len(sizes) and len(sizes) <= 50
    if exact:
        return float(stats.wilcoxon(present, method="exact").pvalue)
    # The stubs know only the old name of this method.
    return float(stats.wilcoxon(present, None, "pratt", method="asymptotic").pvalue)  # type: ignore[call-overload]


@dataclass(frozen=True)
class PairedTest:
    difference: float  # mean over splits
    standard_error: float  # corrected for the overlap of training sets
    p_value: float
    num_splits: int


def corrected_variance(differences: Floats, test_to_train: float) -> float:
    """Variance of the mean over overlapping splits: (1/n + n_test/n_train) s²; s²/n would be far too small."""
    num_splits = len(differences)
    return (1 / num_splits + test_to_train) * float(np.var(differences, ddof=1))


def corrected_paired_test(differences: Floats, test_to_train: float) -> PairedTest:
    """Corrected resampled t-test on scores of two entries on identical splits; `test_to_train` is n_test/n_train."""
    differences = np.asarray(differences, dtype=float)
    differences = differences[~np.isnan(differences)]
    num_splits = len(differences)
    if num_splits < 2:
        return PairedTest(float(differences.mean()) if num_splits else math.nan, math.nan, math.nan, num_splits)
    mean = float(differences.mean())
    error = math.sqrt(corrected_variance(differences, test_to_train))
    if error == 0.0:
        return PairedTest(mean, 0.0, 1.0 if mean == 0.0 else 0.0, num_splits)
    return PairedTest(mean, error, 2 * float(stats.t.sf(abs(mean) / error, num_splits - 1)), num_splits)


def paired_tests(values: pd.DataFrame, test_to_train: float) -> pd.DataFrame:
    """`corrected_paired_test` of all pairs on one data set (splits x entries), Holm-adjusted.

    Columns a, b, difference (a − b), standard_error, p_value, p_holm, detectable (at 80 % power), splits.
    """
    return with_p_values(paired_differences(values, test_to_train))


def paired_differences(values: pd.DataFrame, test_to_train: float) -> pd.DataFrame:
    """All pairs on one data set: a, b, difference of means over their common splits, corrected standard error, splits."""
    first, second = np.triu_indices(values.shape[1], 1)
    scores = values.to_numpy(dtype=float)
    differences = scores[:, first] - scores[:, second]  # [splits, pairs]
    count = (~np.isnan(differences)).sum(0)
    usable = np.where(count >= 2, count, np.nan)
    mean = np.divide(np.nansum(differences, 0), count, out=np.full(len(count), np.nan), where=count > 0)
    variance = np.nansum((differences - mean) ** 2, 0) / (usable - 1)
    error = np.sqrt((1 / usable + test_to_train) * variance)
    names = np.asarray(values.columns, dtype=object)
    columns = {"a": names[first], "b": names[second], "difference": mean, "standard_error": error, "splits": count}
    return pd.DataFrame(columns)


def with_p_values(table: pd.DataFrame, families: str | None = None) -> pd.DataFrame:
    """Paired differences with p_value, p_holm and detectable; Holm's adjustment within each value of a column."""
    mean, error = table["difference"].to_numpy(), table["standard_error"].to_numpy()
    free = np.where(np.isnan(error), np.nan, table["splits"].to_numpy() - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(mean == 0, 0.0, np.abs(mean) / error)
    p_value = np.asarray(2 * stats.t.sf(statistic, free))
    detectable = (stats.t.ppf(0.975, free) + stats.t.ppf(0.8, free)) * error
    groups = table[families].to_numpy() if families is not None else np.zeros(len(table))
    p_holm = np.full(len(table), np.nan)
    for rows in pd.Series(np.arange(len(table))).groupby(groups).indices.values():
        p_holm[rows] = holm(p_value[rows])
    return table.assign(p_value=p_value, p_holm=p_holm, detectable=detectable)


@lru_cache(maxsize=8)
def _factors(alpha: float, power: float, most: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Numbers of splits, and quantiles that a difference must exceed in standard errors to be found with each."""
    counts = np.unique(np.geomspace(2, most, 200).round().astype(np.int64))
    return counts, np.asarray(stats.t.ppf(1 - alpha / 2, counts - 1) + stats.t.ppf(power, counts - 1))


def splits_needed(
    difference: float, deviation: float, test_to_train: float, alpha: float = 0.05, power: float = 0.8, most: int = 1000
) -> int | None:
    """Splits with which the corrected test finds this difference with the given power; None where `most` do not.

    Splits of the same rows share training data, so their number lowers the variance only to `test_to_train` · s².
    """
    counts, quantiles = _factors(alpha, power, most)
    enough = np.flatnonzero(quantiles * np.sqrt(1 / counts + test_to_train) * deviation <= abs(difference))
    return int(counts[enough[0]]) if len(enough) else None


def smallest_detectable_difference(
    differences: Floats, test_to_train: float, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The true difference that the corrected test would find with the given power, from the spread of these splits."""
    differences = np.asarray(differences, dtype=float)
    differences = differences[~np.isnan(differences)]
    if len(differences) < 2:
        return math.nan
    free = len(differences) - 1
    quantiles = stats.t.ppf(1 - alpha / 2, free) + stats.t.ppf(power, free)
    return float(quantiles) * math.sqrt(corrected_variance(differences, test_to_train))


def uniforms(index: npt.NDArray[np.int64], seed: int = 1) -> Floats:
    """The index-th numbers in [0, 1) of the stream mulberry32. The browser draws the same ones (`uniform` in board.js)."""
    mask = np.uint64(0xFFFFFFFF)

    def product(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        return (a * b) & mask

    state = (np.uint64(seed) + product(index.astype(np.uint64) + np.uint64(1), np.array([0x6D2B79F5], dtype=np.uint64))) & mask
    t = product(state ^ (state >> np.uint64(15)), state | np.uint64(1))
    t = ((t + product(t ^ (t >> np.uint64(7)), t | np.uint64(61))) & mask) ^ t
    return np.asarray((t ^ (t >> np.uint64(14))) / 2.0**32)


def two_level_bootstrap(values: pd.DataFrame, num_draws: int = 2000, seed: int = 1) -> pd.DataFrame:
    """Means of each column when data sets are redrawn, and splits within each: draws x entries.

    `values` (ranks or scores) has an index level `dataset`; rows of one data set are its splits. The random numbers of a
    draw depend on its place alone, so that the browser repeats them after a filter changes.
    """
    codes, _ = pd.factorize(values.index.get_level_values("dataset"), sort=True)
    weights, numbers = _bootstrap_weights(tuple(codes.tolist()), num_draws, seed), values.to_numpy(dtype=float)
    # Some draws at a time: as float64 all weights of a large store would be its largest array.
    pieces = (piece.astype(float) for piece in np.array_split(weights, -(-weights.size // MOST_INDICES)))
    means = np.concatenate([piece @ numbers / piece.sum(1, keepdims=True) for piece in pieces])
    return pd.DataFrame(means, columns=values.columns)


# Random numbers at a time: a bootstrap of a large store must not need gigabytes.
MOST_INDICES = 300_000


@functools.lru_cache(maxsize=2)
def _bootstrap_weights(codes_of_rows: tuple[int, ...], num_draws: int, seed: int) -> npt.NDArray[np.uint16]:
    """How often each draw has each row, [draws, rows]. Metrics share their blocks, so this is computed once for all."""
    codes = np.array(codes_of_rows)
    rows_of = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
    sizes = np.array([len(rows) for rows in rows_of])
    num_sets, largest = len(rows_of), int(sizes.max())
    table = np.stack([np.resize(rows, largest) for rows in rows_of])  # [datasets, largest]
    pieces = np.array_split(np.arange(num_draws), -(-num_draws * num_sets * largest // MOST_INDICES))
    return np.concatenate([_weights_of(draws, table, sizes, len(codes), seed) for draws in pieces])


def _weights_of(draws: npt.NDArray[np.int64], table: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], num_rows: int, seed: int) -> npt.NDArray[np.uint16]:
    """Weights of some draws; `table` [datasets, largest] has the rows of each data set."""
    num_sets, largest = table.shape
    start = (draws[:, None] * num_sets + np.arange(num_sets)) * (largest + 1)  # [draws, datasets]
    picked = (uniforms(start, seed) * num_sets).astype(np.int64)
    place = np.arange(largest)
    within = (uniforms(start[..., None] + 1 + place, seed) * sizes[picked][..., None]).astype(np.int64)
    chosen = table[picked[..., None], within]  # [draws, datasets, largest]
    used = place < sizes[picked][..., None]
    cell = (np.arange(len(draws))[:, None, None] * num_rows + chosen)[used]
    return np.bincount(cell, minlength=len(draws) * num_rows).reshape(len(draws), num_rows).astype(np.uint16)


def expanded_tail(num_datasets: int, confidence: float = 0.95) -> float:
    """Tail probability of a percentile interval that makes up for few units: Φ(−√(n/(n−1)) t_{n−1}).

    A plain percentile interval of 8 data sets covers about 89 % instead of 95 %.
    """
    if num_datasets < 2:
        return math.nan
    quantile = stats.t.ppf(0.5 + confidence / 2, num_datasets - 1)
    return float(stats.norm.cdf(-math.sqrt(num_datasets / (num_datasets - 1)) * quantile))


def expanded_interval(draws: pd.DataFrame, num_datasets: int, confidence: float = 0.95) -> pd.DataFrame:
    """Interval of each column of bootstrap draws: low, high; NaN with a single data set."""
    tail = expanded_tail(num_datasets, confidence)
    if math.isnan(tail):
        return pd.DataFrame({"low": math.nan, "high": math.nan}, index=draws.columns)
    low, high = np.quantile(draws.to_numpy(), [tail, 1 - tail], axis=0)
    return pd.DataFrame({"low": low, "high": high}, index=draws.columns)


def leave_one_dataset_out(values: pd.DataFrame) -> pd.DataFrame:
    """Mean ranks without each data set in turn: data sets left out x entries; `values` are ranks per block."""
    grouped = values.groupby(level="dataset")
    others = len(values) - grouped.size()
    return (values.sum() - grouped.sum()).div(others.where(others > 0), axis=0).rename_axis("left_out")


def targets(worst: float, best: float, count: int = 51) -> Floats:
    """Evenly spaced scores from just better than `worst` to `best`."""
    return np.linspace(worst, best, count + 1)[1:]


def time_to_targets(seconds: Floats, values: Floats, wanted: Floats, larger_is_better: bool) -> Floats:
    """Training seconds at which a curve first reaches each target; infinite where it never does."""
    sign = 1.0 if larger_is_better else -1.0
    scores = np.where(np.isnan(values), -np.inf, sign * np.asarray(values, dtype=float))
    reached = np.maximum.accumulate(scores) if len(scores) else scores
    first = np.searchsorted(reached, sign * np.asarray(wanted, dtype=float), side="left")
    return np.where(first < len(reached), np.append(seconds, np.inf)[first], np.inf)


def reached_share(times: Floats, grid: Floats) -> Floats:
    """Empirical distribution of times to target: share of targets reached by each time of the grid."""
    ordered = np.sort(np.asarray(times, dtype=float).ravel())
    return np.asarray(np.searchsorted(ordered, grid, side="right") / max(len(ordered), 1))


def area_under_curve(seconds: Floats, values: Floats) -> float:
    """Mean of a step curve over log time between its first and last instant; each value holds until the next."""
    widths = np.diff(np.log(seconds))
    if not len(widths) or widths.sum() == 0:
        return float(values[-1])
    return float((values[:-1] * widths).sum() / widths.sum())
