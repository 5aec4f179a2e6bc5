"""The metric list: scores, store columns, exports and reports all read it, so a metric is one entry here or in a plugin.

A metric is a number of a predictive distribution on test rows, in the target's own units. Foreign ones come from the
entry-point group `fsibench.metrics` (value: a Metric, or a module with METRICS).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.errors import Diverged
from fsibench.predictive import Predictive

# Twenty equal bins: the histogram, and the coverage of every central interval of 10 %, 20 %, ... 90 %.
PIT_BINS = 20


@dataclass(frozen=True)
class Prediction:
    """What a metric sees: the predictive distribution and the answers, float64, in the target's own units."""

    predictive: Predictive
    y: Tensor


@dataclass(frozen=True)
class Metric:
    """One number of a prediction. `unit` is `target` (the target's own), `nats` or empty."""

    key: str
    label: str
    unit: str
    larger_is_better: bool
    compute: Callable[[Prediction], float]


METRICS = (
    Metric("rmse", "RMSE", "target", False, lambda p: float((p.predictive.mean - p.y).square().mean().sqrt())),
    Metric("ll", "LL", "nats", True, lambda p: float(p.predictive.log_prob(p.y).mean())),
    Metric("crps", "CRPS", "target", False, lambda p: float(p.predictive.crps(p.y).mean())),
    Metric("sharpness", "sharpness", "target", False, lambda p: float(p.predictive.variance.sqrt().mean())),
)


def score(predictive: Predictive, y: Tensor) -> dict[str, float]:
    """Every metric of the list, by key; a value that is not finite means that the method diverged."""
    prediction = Prediction(predictive.double(), y.double())
    if not bool(torch.isfinite(predictive.loc).all()) or not bool((predictive.scale > 0).all()):
        raise Diverged("the predictive distribution is not finite")
    values = {metric.key: metric.compute(prediction) for metric in METRICS}
    for name, value in values.items():
        if not abs(value) < float("inf"):
            raise Diverged(f"{name} is {value}")
    return values


def pit_counts(predictive: Predictive, y: Tensor) -> tuple[int, ...]:
    """How many probability integral transforms fall into each of `PIT_BINS` equal bins."""
    pit = predictive.double().cdf(y.double())
    bins = (pit * PIT_BINS).long().clamp(0, PIT_BINS - 1)
    return tuple(torch.bincount(bins, minlength=PIT_BINS).tolist())


def concatenate(parts: list[Predictive]) -> Predictive:
    return Predictive(torch.cat([part.loc for part in parts], 1), torch.cat([part.scale for part in parts], 1))
