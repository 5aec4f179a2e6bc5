"""Distances from the exact posterior beside scores on test rows, and how far their orders of entries agree.

Only problems with a reference posterior have these columns. Entries with prior=reference have the prior of the reference, on
problems with a Gaussian process those with prior=reference_gp; all others learn or choose their own, so that their distance is
not one of inference alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from fsibench.metrics import known

Floats = npt.NDArray[np.float64]

DISTANCES = ("w2", "kl", "mean", "sd", "energy")
SCORES = ("ll", "crps")
FIRST = "truth_w2"  # what every evaluation of a problem with a reference has
NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of a distance with a score, mean over problems, with a 95 % bootstrap interval."""

    distance: str
    score: str
    value: float
    low: float
    high: float
    problems: int
    entries: int


def has_reference_prior(entry: str, dataset: str) -> bool:
    wanted = "prior=reference_gp" if dataset.startswith("reference-gp-") else "prior=reference"
    return wanted in entry.partition("[")[2].removesuffix("]").split(",")


def table(finals: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds for each problem and entry: seconds, distances inside and outside, scores; the same prior first."""
    columns = [f"truth_{name}{place}" for name in DISTANCES for place in ("", "_outside")]
    wanted = [name for name in ("train_seconds", *columns, *SCORES) if name in finals]
    means = finals.groupby(["dataset", "entry"], observed=True)[wanted].mean().reset_index()
    same = [has_reference_prior(str(entry), str(dataset)) for entry, dataset in zip(means["entry"], means["dataset"], strict=True)]
    means.insert(2, "same_prior", same)
    return means.sort_values(["dataset", "same_prior", "truth_w2"], ascending=[True, False, True], ignore_index=True)


def correlations(means: pd.DataFrame, seed: int = 1) -> list[Correlation]:
    """Rank correlation of closeness to the posterior with the test score: +1 when both order entries alike.

    Problems and entries are resampled, both are a choice among many: problems that have the same entries get the same draws of them.
    """
    found = []
    problems = [part for _, part in means.astype({"entry": str}).sort_values("entry").set_index("entry").groupby("dataset", observed=True)]
    for distance in DISTANCES:
        for score in SCORES:
            wide = [part[[f"truth_{distance}", score]].dropna() for part in problems]
            wide = [part for part in wide if len(part) >= 4]
            if wide:
                found.append(_correlation(distance, score, wide, seed))
    return found


def _correlation(distance: str, score: str, parts: list[pd.DataFrame], seed: int) -> Correlation:
    """`parts`: one table per problem, entries x (distance, score)."""
    signs = np.array([1.0, -1.0 if known()[score].larger_is_better else 1.0])  # small distances are good
    problems = [part.to_numpy(float) * signs for part in parts]
    values = np.array([_spearman(part[None])[0] for part in problems])
    generator = np.random.default_rng(seed)
    teams = {tuple(part.index): len(part) for part in parts}
    drawn = {team: generator.integers(size, size=(NUM_RESAMPLES, size)) for team, size in teams.items()}
    by_entry = np.stack([_spearman(problem[drawn[tuple(part.index)]]) for problem, part in zip(problems, parts, strict=True)])  # [problems, resamples]
    chosen = generator.integers(len(problems), size=by_entry.shape)
    resampled = _mean(np.take_along_axis(by_entry, chosen, 0))
    low, high = np.nanquantile(resampled, [0.025, 0.975]) if np.isfinite(resampled).any() else (np.nan, np.nan)
    return Correlation(distance, score, float(_mean(values[:, None])[0]), float(low), float(high), len(problems), max(map(len, problems)))


def _mean(values: Floats) -> Floats:
    """Over the first axis, leaving out what does not exist; nan where nothing does."""
    exists = np.isfinite(values)
    count = exists.sum(0)
    return np.asarray(np.where(count > 0, np.where(exists, values, 0.0).sum(0) / np.maximum(count, 1), np.nan))


def _spearman(pairs: Floats) -> Floats:
    """Rank correlations of pairs [R, n, 2], [R]: Pearson's of mean ranks; nan where one side is constant."""
    ranks = stats.rankdata(pairs, axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    spread = np.sqrt(np.square(ranks).sum(1).prod(1))
    covariance = ranks.prod(2).sum(1)
    return np.asarray(np.where(spread > 0, covariance / np.where(spread > 0, spread, 1.0), np.nan))
