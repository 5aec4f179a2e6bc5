"""Student-t components of a predictive distribution, in standard units z = (y − μ)/s with ν degrees of freedom.

Everything is float64 on the CPU, where scores are computed; the distribution function and its inverse are scipy's.
"""

from __future__ import annotations

import math

import torch
from scipy import special
from torch import Tensor

# Nodes of the integral of F(1 − F), whose variable is stretched so that tails of any weight are covered.
STEP = 0.1
SMALLEST_TAIL = 1e-14


def log_density(z: Tensor, df: Tensor) -> Tensor:
    """log Γ((ν+1)/2) − log Γ(ν/2) − ½ log νπ − (ν+1)/2 log(1 + z²/ν)"""
    constant = torch.lgamma(0.5 * (df + 1.0)) - torch.lgamma(0.5 * df) - 0.5 * (math.pi * df).log()
    return constant - 0.5 * (df + 1.0) * torch.log1p(z.square() / df)


def cdf(z: Tensor, df: Tensor) -> Tensor:
    return torch.from_numpy(special.stdtr(df.double().numpy(), z.double().numpy())).to(z)


def inverse_cdf(probability: Tensor, df: Tensor) -> Tensor:
    found = special.stdtrit(df.double().cpu().numpy(), probability.double().cpu().numpy())
    return torch.from_numpy(found).to(probability)


def mean_absolute(z: Tensor, df: Tensor) -> Tensor:
    """E|T − z| = z (2 F(z) − 1) + 2 f(z) (ν + z²)/(ν − 1)"""
    return z * (2.0 * cdf(z, df) - 1.0) + 2.0 * log_density(z, df).exp() * (df + z.square()) / (df - 1.0)


def half_spread(df: Tensor) -> Tensor:
    """½ E|T − T'| = 2√ν/(ν − 1) · B(½, ν − ½)/B(½, ν/2)²"""
    beta = torch.from_numpy(special.beta(0.5, df.numpy() - 0.5) / special.beta(0.5, 0.5 * df.numpy()) ** 2)
    return 2.0 * df.sqrt() / (df - 1.0) * beta


def half_spread_of_mixture(loc: Tensor, scale: Tensor, df: Tensor, weights: Tensor) -> Tensor:
    """½ E|Y − Y'| = ∫ F(1 − F) dt at each point, for components [S, N] with weights that sum to one: [N].

    Trapezoid rule in u with t = centre + smallest scale · sinh(u): tails fall exponentially in u, and steps in u resolve the
    smallest scale wherever components are.
    """
    centre, unit = (weights * loc).sum(0), scale.amin(0)
    reach = (loc - centre).abs().amax(0) / unit
    # F · t falls as t^(1 − ν) beyond the components: the end is where that is negligible
    least = df.amin(0)
    end = -inverse_cdf(SMALLEST_TAIL ** (least / (least - 1.0)), least)
    longest = torch.asinh(reach + end * scale.amax(0) / unit)
    step = torch.minimum(torch.full_like(reach, STEP), 0.5 / (1.0 + reach))
    result = torch.empty_like(centre)
    for point in range(len(centre)):
        count = math.ceil(float(longest[point] / step[point]))
        u = torch.linspace(-1.0, 1.0, 2 * count + 1, dtype=torch.float64) * (count * step[point])  # [G]
        t = centre[point] + unit[point] * u.sinh()
        z = (t - loc[:, point, None]) / scale[:, point, None]  # [S, G]
        F = (weights[:, point, None] * cdf(z, df[:, point, None].expand_as(z))).sum(0)
        # 1 − F by symmetry, so that the upper tail keeps its digits
        rest = (weights[:, point, None] * cdf(-z, df[:, point, None].expand_as(z))).sum(0)
        result[point] = (F * rest * u.cosh()).sum() * step[point] * unit[point]
    return result
