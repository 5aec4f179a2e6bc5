"""One verdict for two measurements of a series.

A change is counted so that worse is positive: per cent for times, memory, RMSE and CRPS, nats for log scores, plain
differences for pure numbers such as a calibration error. Its interval says what the measurement can tell, the
tolerance what would matter:

    regression          the whole interval is worse than nothing, and its middle worse than the tolerance
    worse within noise  the middle is worse than the tolerance, but the interval reaches no change
    improved            the mirror image of a regression
    unchanged           everything else
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from fsibench import metrics
from fsibench.errors import UsageError

Verdict = Literal["improved", "unchanged", "worse within noise", "regression"]
# An alarm must be rare among dozens of series: two-sided intervals of 99 %.
LEVEL = 0.99
BOOTSTRAPS = 2000


@dataclass(frozen=True)
class Scale:
    """How a series is judged: the unit of its change, its sign, and what size matters."""

    unit: Literal["%", "nats", ""]
    larger_is_better: bool
    tolerance: float


TIME = Scale("%", False, 3.0)
MEMORY = Scale("%", False, 3.0)
SECONDS_TO_TARGET = Scale("%", False, 20.0)  # a single run of each side, not a duet
TOLERANCES: dict[str, float] = {"nats": 0.01, "%": 1.0, "": 0.02}


def scale_of(kind: str, function: str, unit: str) -> Scale:
    """By the kind of benchmark; of tracked values by the metric that the function is named after."""
    if kind == "time":
        return TIME
    if kind == "peak" or unit == "MB":
        return MEMORY
    key = function.removeprefix("track_")
    if key == "seconds_to_target":
        return SECONDS_TO_TARGET
    metric = metrics.known().get(key)
    if metric is None:
        raise UsageError(f"{function} is named after no metric; `fsibench list metrics` shows the names.")
    change: Literal["%", "nats", ""] = "%" if metric.unit == "target" else "nats" if metric.unit == "nats" else ""
    return Scale(change, metric.larger_is_better, TOLERANCES[change])


@dataclass(frozen=True)
class Change:
    """How much worse the second side is, with an interval."""

    middle: float
    low: float
    high: float

    def verdict(self, tolerance: float) -> Verdict:
        if self.middle > tolerance:
            return "regression" if self.low > 0.0 else "worse within noise"
        return "improved" if self.middle < -tolerance and self.high < 0.0 else "unchanged"


def paired_change(base: Sequence[float], head: Sequence[float], scale: Scale) -> Change:
    """Scores by split, the same splits on both sides: the mean difference with Student's interval."""
    if len(base) != len(head) or len(base) == 0:
        raise ValueError("paired values must be as many on both sides, and at least one")
    first, second = np.asarray(base), np.asarray(head)
    # per cent of the mean: a split with a small value must not count for more
    size = abs(float(first.mean())) / 100.0 if scale.unit == "%" else 1.0
    differences = (second - first) / size
    worse = -differences if scale.larger_is_better else differences
    middle, spread = float(worse.mean()), float(worse.std(ddof=1)) if len(worse) > 1 else 0.0
    if len(worse) < 2 and middle != 0.0:
        return Change(middle, -math.inf, math.inf)  # one pair tells nothing about its own spread
    half = float(stats.t.ppf(0.5 + LEVEL / 2, max(len(worse) - 1, 1))) * spread / math.sqrt(len(worse))
    return Change(middle, middle - half, middle + half)


def trimmed_mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Mean of the middle three fifths, along the last axis."""
    return stats.trim_mean(values, 0.2, axis=-1)


def duet_change(copies: Sequence[Sequence[float]]) -> Change:
    """Log-ratios of pairs of rounds, by copy of the processes, as per cent with a bootstrap interval.

    Copies are drawn with replacement, and pairs within each, so that what sets one copy apart widens the interval.
    """
    generator = np.random.default_rng(0)
    length = min(len(copy) for copy in copies)
    pairs = np.array([copy[:length] for copy in copies])  # [C, P]
    chosen = generator.integers(len(pairs), size=(BOOTSTRAPS, len(pairs), 1))
    within = generator.integers(length, size=(BOOTSTRAPS, len(pairs), length))
    draws = trimmed_mean(pairs[chosen, within].reshape(BOOTSTRAPS, -1))
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Change(_per_cent(float(trimmed_mean(pairs.ravel()))), _per_cent(float(low)), _per_cent(float(high)))


def separated_change(base: Sequence[float], head: Sequence[float]) -> Change:
    """Peak memory of a few processes on each side, in per cent: medians, and the range of all ratios."""
    ratios = np.log(np.asarray(head)[None, :] / np.asarray(base)[:, None])
    middle = math.log(float(np.median(head)) / float(np.median(base)))
    return Change(_per_cent(middle), _per_cent(float(ratios.min())), _per_cent(float(ratios.max())))


def _per_cent(log_ratio: float) -> float:
    return 100.0 * math.expm1(log_ratio)
