"""Gaussian observation noise with a learned variance."""

from __future__ import annotations

import math

from torch import Tensor

LOG_2PI = math.log(2.0 * math.pi)

# Noise below a thousandth of the target's standard deviation cannot be told from zero in float32, and a constant
# target would otherwise drive the variance to zero.
MINIMUM_NOISE_VARIANCE = 1e-6


def noise_variance(log_noise: Tensor) -> Tensor:
    """v = e^λ + v_min, for the trained parameter λ."""
    return log_noise.exp() + MINIMUM_NOISE_VARIANCE


def gaussian_log_density(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(y | mean, variance), elementwise."""
    return -0.5 * (LOG_2PI + variance.log() + (y - mean).square() / variance)
