"""The test rows that a cell predicted worst at its last look: enough to ask which rows of a data set are hard for all.

Payload of the artifact `hardest`, at most `NUM_ROWS` rows, the worst CRPS first, in original units:

    row        number of the row in the table that was divided, or null where test rows are fresh draws
    place      number of the row among the test rows of the split
    y          the target
    mean, sd   of the predictive
    crps       its score there
    x          the inputs, for sets with one or two of them; otherwise null
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsibench.data import Prepared
from fsibench.metrics import Prediction

NUM_ROWS = 10
MOST_INPUTS = 2
DIGITS = 5


def payload(prediction: Prediction, prepared: Prepared, chosen: Tensor | None = None) -> dict[str, Any]:
    """The worst rows of a prediction at all test rows, or at those whose numbers are `chosen`."""
    crps = prediction.crps
    worst = torch.argsort(crps, descending=True, stable=True)[:NUM_ROWS]
    places = worst if chosen is None else chosen[worst]
    there = prediction.predictive.rows(worst)
    numbers = {"y": prediction.y[worst], "mean": there.mean, "sd": there.variance.sqrt(), "crps": crps[worst]}
    rows = prepared.test_rows
    return {
        "row": None if rows is None else [int(rows[place]) for place in places],
        "place": places.tolist(),
        **{name: [_short(value) for value in values.tolist()] for name, values in numbers.items()},
        "x": _inputs(prepared, places),
    }


def _inputs(prepared: Prepared, places: Tensor) -> list[list[float]] | None:
    if prepared.test_x.shape[1] > MOST_INPUTS:
        return None
    x = prepared.test_x[places.numpy()] * prepared.standardiser.x_scale + prepared.standardiser.x_mean
    return [[_short(value) for value in row] for row in x.tolist()]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
