"""Mixtures of Gaussians with one scale per point, summed on a grid: a fast Gauss transform in one dimension.

At a point with scale σ the distribution function is F(t) = Σₛ wₛ Φ((t − μₛ)/σ). On a grid of step σ/2 each component
belongs to its nearest node c, and a Taylor series in its distance δ from it (|δ| ≤ σ/4) gives

    F⁽ᵐ⁾(t) = Σ_c Σ_k M_k(c) Φ⁽ᵏ⁺ᵐ⁾((t − c)/σ),    M_k(c) = Σ_{s near c} wₛ (−δₛ/σ)ᵏ / k!

with derivatives in units of σ. Components are visited once, to sum up M; F at all nodes is then a convolution with
a kernel of 29 nodes. Between nodes F is the Taylor series about the nearest one. With seven and eight terms the
error of F is below 1e-8. The cost per point is O(S + nodes) where direct sums cost O(S · nodes).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Grid step and reach of the kernel in units of σ; beyond the reach Φ is 0 or 1 to 1e-12.
STEP = 0.5
REACH = 14
# Terms of the series for F alone, where errors of components cancel, and for F between nodes.
TERMS, TERMS_BETWEEN_NODES = 7, 8
# Elements of the largest temporary, the input windows of the convolution.
CHUNK_ELEMENTS = 500_000
# Steps of Newton's method on the series between two nodes.
QUANTILE_STEPS = 8


@dataclass(frozen=True)
class GridDistribution:
    """F⁽ᵐ⁾ at the nodes `start + STEP σ j` of each point: `values` [M, n, G], derivatives in units of σ."""

    start: Tensor  # [n]
    scale: Tensor  # [n]
    values: Tensor

    @property
    def half_spread(self) -> Tensor:
        """∫ F(1 − F) dt by the trapezoid rule, whose error at this step is far below that of F: [n]."""
        F = self.values[0]
        return (F * (1.0 - F)).sum(1) * (STEP * self.scale)

    def cdf(self, t: Tensor) -> Tensor:
        """F at t [Z, n] or at thresholds [Z, 1] shared by all points: [Z, n]."""
        position = (t - self.start) / (STEP * self.scale)  # [Z, n]
        node = position.round().clamp_(0, self.values.shape[2] - 1)
        distance = (position - node).mul_(STEP)
        outside = distance.abs() > 0.5
        F = self._series(node.long(), distance)[0]
        # The grid ends where F is 0 or 1 to 1e-12.
        return torch.where(outside, (distance > 0).double(), F).clamp_(0.0, 1.0)

    def quantile(self, levels: Tensor) -> Tensor:
        """The t with F(t) = level, [Q, n]."""
        F = self.values[0]
        wanted = levels.expand(len(F), -1).contiguous()  # [n, Q]
        right = torch.searchsorted(F, wanted).clamp_(1, F.shape[1] - 1)
        low, high = F.gather(1, right - 1), F.gather(1, right)
        nearer = torch.where(wanted - low < high - wanted, right - 1, right).mT.contiguous()  # [Q, n]
        low_end, high_end = (right.mT - 1 - nearer) * STEP, (right.mT - nearer) * STEP
        distance = (wanted - low).div_((high - low).clamp_min(1e-300)).clamp_(0.0, 1.0).mT * STEP + low_end
        for _ in range(QUANTILE_STEPS):
            value, slope = self._series(nearer, distance)
            gap = value - levels[:, None]
            high_end, low_end = torch.where(gap > 0, distance, high_end), torch.where(gap > 0, low_end, distance)
            step = distance - gap / slope
            inside = (step >= low_end) & (step <= high_end)  # else halve the bracket
            distance = torch.where(inside, step, 0.5 * (low_end + high_end))
        return self.start + self.scale * (nearer * STEP + distance)

    def _series(self, node: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
        """F and its derivative at a distance (in units of σ) from a node, both [Z, n]."""
        index = node.mT.contiguous()  # [n, Z]
        value = slope = torch.zeros_like(distance)
        for order in range(len(self.values) - 1, -1, -1):
            slope = slope * distance + value
            value = value * distance + self.values[order].gather(1, index).mT / math.factorial(order)
        return value, slope


def nodes_needed(loc: Tensor, scale: Tensor) -> Tensor:
    """Number of grid nodes at each point for components `loc` [S, N] of scale [N]."""
    return ((loc.amax(0) - loc.amin(0)) / (STEP * scale)).ceil() + (2 * REACH + 2)


def distributions(
    loc: Tensor, scale: Tensor, weights: Tensor | None, num_nodes: Tensor, derivatives: bool
) -> Iterator[tuple[Tensor, GridDistribution]]:
    """Pieces of the points [N] (their numbers, and their distributions on a grid), of about equal width each."""
    per_node = TERMS_BETWEEN_NODES**2 if derivatives else 3 * TERMS
    for points in _pieces(num_nodes, per_node):
        part = None if weights is None else weights[:, points]
        found = _distribution(loc[:, points], scale[points], part, int(num_nodes[points].max()), derivatives)
        yield torch.arange(len(num_nodes))[points], found


def _pieces(num_nodes: Tensor, elements_per_node: int) -> Iterator[slice | Tensor]:
    """Points that share a grid: neighbours where all need about as many nodes, else points of like numbers of nodes."""
    alike = bool(num_nodes.max() <= 2.0 * num_nodes.mean())
    order = None if alike else num_nodes.argsort()
    first = 0
    while first < len(num_nodes):
        nodes = float(num_nodes.max() if order is None else num_nodes[order[first]] * 1.2)
        size = max(1, int(CHUNK_ELEMENTS / (elements_per_node * nodes)))
        yield slice(first, first + size) if order is None else order[first : first + size]
        first += size


def _distribution(
    loc: Tensor, scale: Tensor, weights: Tensor | None, num_nodes: int, derivatives: bool
) -> GridDistribution:
    start = loc.amin(0) - (STEP * REACH) * scale
    position = (loc - start) / (STEP * scale)  # [S, n]
    node = position.round()
    terms = TERMS_BETWEEN_NODES if derivatives else TERMS
    moments = _moments(node, (node - position).mul_(STEP), weights, num_nodes, terms)  # [n, K, G]
    return GridDistribution(start, scale, _convolved(moments, 4, terms) if derivatives else _convolved(moments, 32, 1))


def _moments(node: Tensor, distance: Tensor, weights: Tensor | None, num_nodes: int, terms: int) -> Tensor:
    """M_k at each node, [n, K, G]."""
    S, n = node.shape
    place = (node.long() + torch.arange(n) * num_nodes).reshape(-1).numpy()
    power = torch.full_like(node, 1.0 / S) if weights is None else weights.clone()
    moments = []
    for order in range(terms):
        moments.append(np.bincount(place, power.reshape(-1).numpy(), n * num_nodes).reshape(n, num_nodes))
        power *= distance / (order + 1)
    return torch.from_numpy(np.stack(moments, 1))


def _convolved(moments: Tensor, block: int, num_orders: int) -> Tensor:
    """F⁽ᵐ⁾ at the nodes, [M, n, G], `block` nodes at a time."""
    n, terms, num_nodes = moments.shape
    spare = -num_nodes % block
    padded = torch.nn.functional.pad(moments, (REACH, REACH + spare))
    found = torch.nn.functional.conv1d(padded, _kernel(block, terms, num_orders), stride=block)  # [n, M·block, blocks]
    values = found.reshape(n, num_orders, block, -1).permute(1, 0, 3, 2).reshape(num_orders, n, -1)[:, :, :num_nodes].contiguous()
    # Components to the left of the kernel's reach count whole.
    values[0, :, REACH + 1 :] += moments[:, 0, : num_nodes - REACH - 1].cumsum(1)
    return values


@functools.cache
def _kernel(block: int, terms: int, num_orders: int) -> Tensor:
    """Φ⁽ᵏ⁺ᵐ⁾ at node i minus node c, [M·block, K, window], for windows of `block + 2 REACH` nodes."""
    i, c = torch.arange(block)[:, None], torch.arange(block + 2 * REACH) - REACH
    offset = i - c  # [block, window]
    z = STEP * offset.double()
    derivative = _derivatives_of_cdf(z, num_orders + terms)
    inside = (offset.abs() <= REACH).double()
    stacked = torch.stack([torch.stack([derivative[k + m] * inside for k in range(terms)], 1) for m in range(num_orders)])
    return stacked.reshape(num_orders * block, terms, block + 2 * REACH)


def _derivatives_of_cdf(z: Tensor, count: int) -> list[Tensor]:
    """Φ, φ, φ', ...: Φ⁽ᵏ⁺¹⁾ = (−1)ᵏ He_k φ with He_{k+1} = z He_k − k He_{k−1}."""
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2.0 * math.pi)
    found = [0.5 * torch.special.erfc(-z / math.sqrt(2.0)), density]
    before, now = torch.zeros_like(z), torch.ones_like(z)
    for k in range(1, count):
        before, now = now, z * now - (k - 1) * before
        found.append((-1) ** k * now * density)
    return found
