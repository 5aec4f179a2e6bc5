"""Scores of a predictive distribution on test rows, in the target's own units. One place for all methods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsibench.errors import Diverged
from fsibench.predictive import Predictive

# Twenty equal bins: the histogram, and the coverage of every central interval of 10 %, 20 %, ... 90 %.
PIT_BINS = 20


def score(predictive: Predictive, y: Tensor) -> dict[str, Any]:
    """RMSE of the predictive mean, mean log density, mean CRPS, mean predictive sd, and PIT counts."""
    predictive, y = predictive.double(), y.double()
    if not bool(torch.isfinite(predictive.loc).all()) or not bool((predictive.scale > 0).all()):
        raise Diverged("the predictive distribution is not finite")
    values = {
        "rmse": float((predictive.mean - y).square().mean().sqrt()),
        "ll": float(predictive.log_prob(y).mean()),
        "crps": float(predictive.crps(y).mean()),
        "sharpness": float(predictive.variance.sqrt().mean()),
    }
    for name, value in values.items():
        if not abs(value) < float("inf"):
            raise Diverged(f"{name} is {value}")
    return {**values, "pit": pit_counts(predictive.cdf(y))}


def pit_counts(pit: Tensor) -> list[int]:
    """How many probability integral transforms fall into each of `PIT_BINS` equal bins."""
    bins = (pit * PIT_BINS).long().clamp(0, PIT_BINS - 1)
    return torch.bincount(bins, minlength=PIT_BINS).tolist()


def concatenate(parts: list[Predictive]) -> Predictive:
    return Predictive(torch.cat([part.loc for part in parts], 1), torch.cat([part.scale for part in parts], 1))
