"""Is A better than B? Every pair of entries in one metric, over data sets and splits.

Scores of different data sets have different units. Differences are therefore taken in standard deviations of the target
(metrics in its unit) or as they are (log densities, shares), and turned so that a positive one means that A is better.

    win, tie, loss      data sets by the sign of the mean difference, splits by the sign of each
    interval            95 %, of the mean difference on one data set, corrected for overlapping splits
    signed rank         Bayesian signed-rank test over data set means (Benavoli et al. 2014), with a region of practical
                        equivalence: probability that A is better, that it does not matter, that B is better
    hierarchical        data sets as draws of a population: δ_i ~ N(δ₀, σ₀²), d_i ~ N(δ_i, v_i) with v_i the corrected
                        variance; p(σ₀) flat. The same three probabilities for the mean of a new data set. Corani et al.
                        (2017) use a Student distribution for δ_i and sample; here σ₀ is integrated on a grid.

Means over few data sets prove little; the probabilities say how little.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.pairs import split_scores, unit_scale
from fsibench.reports.analysis.results import Floats

# Differences below this do not matter: 1 % of the target's standard deviation, 0.01 nats, one percentage point.
REGION = 0.01
NUM_DRAWS = 5000
NUM_SCALES = 80
MOST_PAIRS = 2000
COLUMNS = ("difference", "standard_error", "low", "high", "wins", "losses", "splits", "needed")


@dataclass(frozen=True)
class Odds:
    """Probability that A is better, that the two are equivalent, that B is better."""

    better: float
    same: float
    worse: float


@dataclass(frozen=True)
class Duel:
    """A against B in one metric. `sets` has one row per data set and the columns `COLUMNS`."""

    a: str
    b: str
    sets: pd.DataFrame
    signed_rank: Odds
    hierarchical: Odds

    @property
    def record(self) -> tuple[int, int, int]:
        """Data sets won, tied and lost by A."""
        difference = self.sets["difference"]
        return int((difference > 0).sum()), int((difference == 0).sum()), int((difference < 0).sum())

    @property
    def settled(self) -> int:
        """Data sets on which the interval excludes zero."""
        return int(((self.sets["low"] > 0) | (self.sets["high"] < 0)).sum())


def duels(overview: Overview, metric: str) -> dict[tuple[str, str], Duel]:
    """Every pair of ranked entries, (a, b) in the order of the ranking."""
    values = split_scores(overview, metric)
    if values.empty:
        return {}
    sign = 1.0 if overview.results.metrics[metric].larger_is_better else -1.0
    scores = sign * ranking.significant(values)
    scores = scores.div(unit_scale(overview, metric).reindex(scores.index.get_level_values("dataset")).to_numpy(), axis=0)
    order = [str(entry) for entry in overview.board.index if entry in scores.columns]
    pairs = list(itertools.islice(itertools.combinations(range(len(order)), 2), MOST_PAIRS))
    table = np.stack([
        _one_set(part.to_numpy(dtype=float), pairs, overview.test_to_train[str(dataset)])
        for dataset, part in scores[order].groupby(level="dataset", observed=True)
    ])  # fmt: skip  # [datasets, pairs, columns]
    index = pd.Index(sorted(scores.index.get_level_values("dataset").unique()), name="dataset")
    return {(order[a], order[b]): _duel(order[a], order[b], table[:, k], index) for k, (a, b) in enumerate(pairs)}


def _duel(a: str, b: str, table: Floats, index: pd.Index) -> Duel:
    sets = pd.DataFrame(table, index=index, columns=list(COLUMNS))
    sets = sets[sets["splits"] > 0]  # where both were run
    means, errors = sets["difference"].to_numpy(), sets["standard_error"].to_numpy()
    return Duel(a, b, sets, signed_rank(means[np.isfinite(means)]), hierarchical(means, errors))


def _one_set(scores: Floats, pairs: list[tuple[int, int]], test_to_train: float) -> Floats:
    """`COLUMNS` of every pair on one data set; scores [splits, entries] -> [pairs, columns]."""
    first, second = np.array(pairs, dtype=int).reshape(-1, 2).T
    differences = scores[:, first] - scores[:, second]  # [splits, pairs]
    count = np.isfinite(differences).sum(0)
    mean = np.divide(np.nansum(differences, 0), count, out=np.full(len(pairs), np.nan), where=count > 0)
    usable = np.where(count > 1, count, np.nan)
    deviation = np.sqrt(np.nansum((differences - mean) ** 2, 0) / (usable - 1))
    error = np.sqrt(1 / usable + test_to_train) * deviation
    reach = stats.t.ppf(0.975, np.fmax(count - 1, 1)) * error
    needed = [_needed(mean[k], deviation[k], test_to_train) for k in range(len(pairs))]
    wins, losses = (differences > 0).sum(0), (differences < 0).sum(0)
    return np.stack([mean, error, mean - reach, mean + reach, wins, losses, count, needed], 1)


def _needed(difference: float, deviation: float, test_to_train: float) -> float:
    """Splits that would settle a data set; infinite where no number would, NaN where one split says nothing."""
    if not math.isfinite(deviation) or not math.isfinite(difference):
        return math.nan
    count = statistics.splits_needed(difference, deviation, test_to_train)
    return math.inf if count is None else float(count)


@lru_cache(maxsize=64)
def _weights(count: int) -> Floats:
    """Draws of a Dirichlet process posterior over `count` observations and one prior observation at zero."""
    parameters = np.concatenate([[0.5], np.ones(count)])
    draws: Floats = np.random.default_rng(0).dirichlet(parameters, size=NUM_DRAWS)
    return draws


def signed_rank(differences: Floats, region: float = REGION) -> Odds:
    """Bayesian signed-rank test: which of the three is the most probable, over draws of the data sets' weights."""
    if not len(differences):
        return Odds(math.nan, math.nan, math.nan)
    values = np.concatenate([[0.0], differences])
    sums = values[:, None] + values[None, :]
    weights = _weights(len(differences))

    def probability(inside: npt.NDArray[np.bool_]) -> Floats:
        return np.asarray(((weights @ inside.astype(float)) * weights).sum(1))

    shares = np.stack([probability(sums > 2 * region), probability(np.abs(sums) <= 2 * region),
                       probability(sums < -2 * region)])  # fmt: skip
    wins = np.bincount(shares.argmax(0), minlength=3) / NUM_DRAWS
    return Odds(*map(float, wins))


def hierarchical(means: Floats, errors: Floats, region: float = REGION) -> Odds:
    """P(δ_new above, within, below the region) for the mean difference δ_new on a new data set."""
    usable = np.isfinite(means) & np.isfinite(errors)
    means, variances = means[usable], np.maximum(errors[usable] ** 2, 1e-12)
    if len(means) < 3:  # a flat prior on the scale needs three data sets
        return Odds(math.nan, math.nan, math.nan)
    widest = 10 * max(float(np.ptp(means)), float(np.sqrt(variances.max())), 1e-9)
    scales = np.geomspace(widest * 1e-4, widest, NUM_SCALES)  # [K]
    precision = 1 / (variances + scales[:, None] ** 2)  # [K, D]
    total = precision.sum(1)
    centre = (precision * means).sum(1) / total
    # log p(σ₀ | d) = −½ Σ log(v_i + σ₀²) − ½ log Σ 1/(v_i + σ₀²) − ½ Σ (d_i − μ̂)²/(v_i + σ₀²); flat in σ₀ on a log grid.
    log_weight = 0.5 * np.log(precision).sum(1) - 0.5 * np.log(total)
    log_weight += -0.5 * (precision * (means - centre[:, None]) ** 2).sum(1) + np.log(scales)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    spread = np.sqrt(1 / total + scales**2)  # δ_new | σ₀ ~ N(μ̂, 1/Σ + σ₀²)
    above = float((weight * stats.norm.sf((region - centre) / spread)).sum())
    below = float((weight * stats.norm.cdf((-region - centre) / spread)).sum())
    return Odds(above, max(1.0 - above - below, 0.0), below)


def verdict(duel: Duel, num_sets: int) -> str:
    """One sentence: who wins, how surely, and what would settle the rest."""
    won, tied, _ = duel.record
    odds = duel.signed_rank
    parts = [f"{duel.a} is better than {duel.b} on {won} of {num_sets} data sets" + (f", equal on {tied}" if tied else "")]
    parts[0] += f"; {duel.settled} of them are settled (95 % interval without zero)"
    parts.append(f"over data sets, {duel.a} is better with probability {odds.better:.2f}, equivalent {odds.same:.2f}, "
                 f"worse {odds.worse:.2f}")  # fmt: skip
    open_sets = duel.sets[(duel.sets["low"] <= 0) & (duel.sets["high"] >= 0)]
    finite = open_sets["needed"][np.isfinite(open_sets["needed"])]
    if len(finite):
        parts.append(f"up to {int(finite.max())} splits would settle {len(finite)} more")
    hopeless = int(np.isinf(open_sets["needed"]).sum())
    if hopeless:
        parts.append(f"on {hopeless} no number of splits of the same rows would")
    return "; ".join(parts) + "."
