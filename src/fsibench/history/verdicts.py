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
    middle = float(worse.mean())
    half = 0.0 if len(worse) == 1 and middle == 0.0 else students_half_width(worse)
    return Change(middle, middle - half, middle + half)


def students_half_width(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Half of Student's interval of a mean; one value tells nothing about its own spread."""
    if len(values) < 2:
        return math.inf
    return float(stats.t.ppf(0.5 + LEVEL / 2, len(values) - 1) * values.std(ddof=1)) / math.sqrt(len(values))


def trimmed_mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Mean of the middle three fifths."""
    return float(stats.trim_mean(values, 0.2))


def duet_change(copies: Sequence[Sequence[float]]) -> Change:
    """Log-ratios of pairs of rounds, by copy of the processes, as per cent with Student's interval of the copies.

    A copy counts as one value, its trimmed mean: what sets one copy apart stays for all of its rounds. Resampling so few
    values gives intervals that are too narrow where copies differ by more than their rounds do.
    """
    middles = np.array([trimmed_mean(np.asarray(copy)) for copy in copies])
    middle, half = float(middles.mean()), students_half_width(middles)
    return Change(_per_cent(middle), _per_cent(middle - half), _per_cent(middle + half))


def mean_change(changes: Sequence[Change]) -> Change:
    """Several measurements by processes of their own: the mean, with the mean of their intervals."""
    middle, low, high = np.mean([(one.middle, one.low, one.high) for one in changes], axis=0)
    return Change(float(middle), float(low), float(high))


def separated_change(base: Sequence[float], head: Sequence[float]) -> Change:
    """Peak memory of a few processes on each side, in per cent: medians, and the range of all ratios."""
    ratios = np.log(np.asarray(head)[None, :] / np.asarray(base)[:, None])
    middle = math.log(float(np.median(head)) / float(np.median(base)))
    if len(base) < 2:
        return Change(_per_cent(middle), -math.inf, math.inf)
    return Change(_per_cent(middle), _per_cent(float(ratios.min())), _per_cent(float(ratios.max())))


def _per_cent(log_ratio: float) -> float:
    return 100.0 * math.expm1(log_ratio)
