"""Functions on a grid, for sets with one or two inputs: what the panels of a report need, as small plain lists.

Payload of the artifact `functions`, everything in original units:

    x           grid of inputs, the training range widened by a fifth on each side
    train_x/y   training rows (at most `MOST_ROWS` of them)
    draws       functions from the posterior, without noise, [draws][grid]
    prior_draws functions from the (learned) prior, or null
    quantiles   level -> predictive quantile on the grid
    samples     draws of y on the grid, noise included
    oracle      the true conditional as a mixture, {"loc": [S][grid], "scale": [S][grid]}, or null
    inducing    [{"train_seconds", "z"}], inducing inputs at each evaluation, or null

With two inputs: x and x2 (the axes), train_x/x2/y, and mean and sd of the predictive, [x2][x].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fsibench.contract import Posterior
from fsibench.data import Dataset, Prepared, Standardiser

GRID = 121
DRAWS = 20
SAMPLES = 50
FEW = 10
PLANE = 25
MOST_ROWS = 500
LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
DIGITS = 5


def inducing_inputs(posterior: Posterior, standard: Standardiser) -> list[float] | None:
    """Where the inducing inputs of a posterior lie, if it has any and they are scalars."""
    trace = getattr(posterior, "trace", None)
    z = (trace() if callable(trace) else {}).get("inducing_inputs")
    if not isinstance(z, Tensor) or z.dim() != 2 or z.shape[1] != 1:
        return None
    return _rounded(z.detach().cpu().double().numpy()[:, 0] * standard.x_scale[0] + standard.x_mean[0])


def payload(
    posterior: Posterior,
    prepared: Prepared,
    dataset: Dataset,
    inducing: list[dict[str, Any]],
    generator: torch.Generator,
) -> dict[str, Any]:
    if prepared.train_x.shape[1] == 2:
        return _plane(posterior, prepared, generator)
    standard = prepared.standardiser
    low, high = float(prepared.train_x.min()), float(prepared.train_x.max())
    margin = 0.2 * (high - low)
    x = torch.linspace(low - margin, high + margin, GRID, device=generator.device)[:, None]
    raw_x = x[:, 0].double().cpu().numpy() * standard.x_scale[0] + standard.x_mean[0]
    predictive = posterior.predict(x, generator).double().rescale(standard.y_scale, standard.y_mean)
    quantiles = predictive.quantile(torch.tensor(LEVELS))
    rows = slice(0, MOST_ROWS)
    return {
        "x": _rounded(raw_x),
        "train_x": _rounded(prepared.train_x[rows, 0].astype(float) * standard.x_scale[0] + standard.x_mean[0]),
        "train_y": _rounded(prepared.train_y[rows].astype(float) * standard.y_scale + standard.y_mean),
        "draws": _raw(posterior.draw(x, DRAWS, generator), standard),
        "prior_draws": _prior_draws(posterior, x, standard, generator),
        "quantiles": {f"{level:g}": _rounded(row.numpy()) for level, row in zip(LEVELS, quantiles, strict=True)},
        "samples": [_rounded(row.numpy()) for row in predictive.sample(SAMPLES, torch.Generator().manual_seed(0))],
        "oracle": _oracle(dataset, raw_x),
        "inducing": inducing or None,
    }


def small(content: dict[str, Any]) -> dict[str, Any]:
    """A payload with fewer draws: what is kept without being asked for."""
    return {key: value[:FEW] if key in ("draws", "prior_draws", "samples") and value else value for key, value in content.items()}


def _plane(posterior: Posterior, prepared: Prepared, generator: torch.Generator) -> dict[str, Any]:
    standard = prepared.standardiser
    axes = []
    for column in range(2):
        low, high = float(prepared.train_x[:, column].min()), float(prepared.train_x[:, column].max())
        margin = 0.1 * (high - low)
        axes.append(torch.linspace(low - margin, high + margin, PLANE, device=generator.device))
    second, first = torch.meshgrid(axes[1], axes[0], indexing="ij")
    x = torch.stack([first.reshape(-1), second.reshape(-1)], 1)
    predictive = posterior.predict(x, generator).double().rescale(standard.y_scale, standard.y_mean)
    raw = [axes[k].double().cpu().numpy() * standard.x_scale[k] + standard.x_mean[k] for k in range(2)]
    rows = prepared.train_x[:MOST_ROWS].astype(float) * standard.x_scale + standard.x_mean

    def table(values: Tensor) -> list[list[float]]:
        return [_rounded(row) for row in values.detach().cpu().numpy().reshape(PLANE, PLANE)]

    return {
        "x": _rounded(raw[0]),
        "x2": _rounded(raw[1]),
        "train_x": _rounded(rows[:, 0]),
        "train_x2": _rounded(rows[:, 1]),
        "mean": table(predictive.mean),
        "sd": table(predictive.variance.sqrt()),
    }


def _prior_draws(
    posterior: Posterior, x: Tensor, standard: Standardiser, generator: torch.Generator
) -> list[list[float]] | None:
    draw_prior = getattr(posterior, "draw_prior", None)
    return _raw(draw_prior(x, DRAWS, generator), standard) if callable(draw_prior) else None


def _oracle(dataset: Dataset, x: Any) -> dict[str, Any] | None:
    oracle = getattr(dataset, "oracle", None)
    if not callable(oracle):
        return None
    loc, scale = oracle(x[:, None])
    return {"loc": [_rounded(row) for row in loc], "scale": [_rounded(row) for row in scale]}


def _raw(draws: Tensor, standard: Standardiser) -> list[list[float]]:
    return [_rounded(row * standard.y_scale + standard.y_mean) for row in draws.detach().cpu().double().numpy()]


def _rounded(values: Any) -> list[float]:
    """Five significant digits: enough for a picture, a third of the size."""
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, dtype=float)]
