"""How far a prediction is from the exact posterior, on test rows inside or outside the training data.

Marginals of y are compared row by row and averaged; joint draws of f are compared as vectors over the rows. Lengths are in
standard deviations of the training targets, so that problems can be compared. With Q the quantile functions, p the
exact and q the predicted density:

    W2² = ∫ (Q_p − Q_q)² dτ,   KL = E_p[log p − log q],   energy = 2 E|X − Y| − E|X − X'| − E|Y − Y'|

Integrals over τ and expectations under p are means over the hundred levels that a reference keeps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fsibench.references.files import LEVELS, Floats, Reference

if TYPE_CHECKING:
    from torch import Tensor

    from fsibench.predictive import Predictive

Rows = npt.NDArray[np.int64]
# Draws of the reference that enter an energy distance: as many as a method is asked for.
JOINT_DRAWS = 200


def rows_of(reference: Reference, inside: bool) -> Rows:
    return np.flatnonzero(reference.inside == inside)


def wasserstein(predictive: Predictive, reference: Reference, rows: Rows) -> float:
    """Mean over rows of the Wasserstein-2 distance between the marginals of y."""
    import torch

    quantiles = predictive.rows(torch.from_numpy(rows)).quantile(torch.tensor(LEVELS, dtype=torch.float64))  # [L, n]
    gaps = quantiles.numpy().T - reference.quantiles[rows]
    return float(np.sqrt(np.square(gaps).mean(1)).mean() / reference.scale)


def divergence(predictive: Predictive, reference: Reference, rows: Rows) -> float:
    """Mean over rows of KL(exact ‖ predicted) of y, in nats; nan where the prediction has no density."""
    import torch

    part = predictive.rows(torch.from_numpy(rows))
    at = torch.from_numpy(reference.quantiles[rows].T.copy())  # [L, n]
    predicted = np.stack([part.log_prob(values).numpy() for values in at])
    return float((reference.log_density[rows].T - predicted).mean())


def mean_error(predictive: Predictive, reference: Reference, rows: Rows) -> float:
    """Root mean square over rows of the difference of the predictive means."""
    gaps = predictive.mean.numpy()[rows] - reference.mean[rows]
    return float(np.sqrt(np.square(gaps).mean()) / reference.scale)


def sd_error(predictive: Predictive, reference: Reference, rows: Rows) -> float:
    """Root mean square over rows of the difference of the predictive standard deviations of y."""
    exact = np.sqrt(np.square(reference.sd[rows]) + reference.noise_variance)
    gaps = np.sqrt(predictive.variance.numpy()[rows]) - exact
    return float(np.sqrt(np.square(gaps).mean()) / reference.scale)


def energy_distance(functions: Tensor, reference: Reference, rows: Rows) -> float:
    """Between joint draws of f [S, T] and those of the reference: zero in expectation where both are of one distribution."""
    exact = reference.draws[:, rows].astype(np.float64)
    exact = exact[np.linspace(0, len(exact) - 1, JOINT_DRAWS).round().astype(int)]
    return energy(functions.numpy()[:, rows], exact) / (reference.scale * math.sqrt(len(rows)))


def energy(first: Floats, second: Floats) -> float:
    """2 E|X − Y| − E|X − X'| − E|Y − Y'| from draws [S, n] and [S', n], without the zero distances of a draw to itself."""
    from scipy.spatial.distance import cdist, pdist

    return float(2.0 * cdist(first, second).mean() - pdist(first).mean() - pdist(second).mean())
