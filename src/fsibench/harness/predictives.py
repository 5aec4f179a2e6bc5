"""Predictive distributions that a cell keeps (`--keep predictives`), small enough for a store, and scoring them later.

Payload of the artifact `predictives`, for the last look, everything but y in standardised units and float16:

    y            targets of the rows that were scored, float64, original units
    shift, scale of the target: original = scale · standardised + shift
    loc, sd      components [S, N], for at most `MOST_COMPONENTS` equally weighted Gaussians, or
    quantiles    values at `LEVELS` [Q, N], for everything else; such a predictive has no density any more

Half precision keeps three digits, so a score from a kept predictive differs from the original in about the fourth.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsibench.errors import StoreError
from fsibench.predictive import Predictive, SamplePredictive

MOST_COMPONENTS = 40
LEVELS = tuple((k + 0.5) / 100 for k in range(100))


def payload(predictive: Predictive, y: Tensor, scale: float, shift: float) -> dict[str, Any]:
    """A predictive in original units and its targets, as JSON-able content."""
    standard = predictive.double().rescale(1.0 / scale, -shift / scale)
    content: dict[str, Any] = {"y": _packed(y, np.float64), "shift": shift, "scale": scale}
    if type(predictive) is Predictive and predictive.weights is None and predictive.num_components <= MOST_COMPONENTS:
        return {**content, "loc": _packed(standard.loc, np.float16), "sd": _packed(standard.scale, np.float16)}
    return {**content, "quantiles": _packed(standard.quantile(torch.tensor(LEVELS, dtype=torch.float64)), np.float16)}


def restored(content: dict[str, Any]) -> tuple[Predictive, Tensor]:
    """The predictive in original units, and y."""
    try:
        y = _unpacked(content["y"], np.float64)
        predictive: Predictive
        if "quantiles" in content:
            levels = torch.tensor(LEVELS, dtype=torch.float64)
            predictive = SamplePredictive.from_quantiles(levels, _unpacked(content["quantiles"], np.float16))
        else:
            sd = _unpacked(content["sd"], np.float16).clamp(min=1e-4)  # half precision rounds tiny scales to zero
            predictive = Predictive(_unpacked(content["loc"], np.float16), sd)
        return predictive.rescale(float(content["scale"]), float(content["shift"])), y
    except (KeyError, ValueError, TypeError, zlib.error) as error:
        raise StoreError(f"a kept predictive cannot be read: {error}; run the cell again with --keep predictives.") from None


def _packed(values: Tensor, dtype: Any) -> dict[str, Any]:
    array = values.detach().cpu().numpy().astype(dtype)
    return {"shape": list(array.shape), "data": base64.b64encode(zlib.compress(array.tobytes())).decode()}


def _unpacked(content: dict[str, Any], dtype: Any) -> Tensor:
    flat = np.frombuffer(zlib.decompress(base64.b64decode(content["data"])), dtype=dtype)
    return torch.from_numpy(flat.astype(np.float64)).reshape(content["shape"])
