"""Small fully connected networks, built for speed on one thread.

Weights are stored input-major: a layer is `h @ W + b` with W of shape [fan_in, fan_out]. Activation everywhere: leaky
ReLU with slope 0.2. Parameters of a network live in one flat leaf tensor, so that an optimiser step is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

SLOPE = 0.2
# Under a square root: its derivative at zero is infinite, and a row of zeros (a constant input) gives exactly zero.
TINY = 1e-16


def activation(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, SLOPE)


def weight_shapes(widths: Sequence[int]) -> list[tuple[int, int]]:
    """[(fan_in, fan_out), ...] of the layers between consecutive widths."""
    return list(pairwise(widths))


def num_weights(widths: Sequence[int]) -> int:
    return sum(fan_in * fan_out for fan_in, fan_out in weight_shapes(widths))


def split_weights(flat: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Weight matrices [..., fan_in, fan_out] out of flat vectors [..., P]."""
    shapes = weight_shapes(widths)
    parts = flat.split([fan_in * fan_out for fan_in, fan_out in shapes], dim=-1)
    return [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]


def split_biases(flat: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Bias vectors [fan_out] out of one flat vector."""
    return flat.split(list(widths[1:]), dim=-1)


def sampled_network(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], dropout: DropoutMasks | None = None
) -> Tensor:
    """S networks with one output at shared inputs: x [N, D], weights [S, fan_in, fan_out] -> [S, N].

    `x` may also be [S, N, D]: each network at inputs of its own.
    """
    S = weights[0].shape[0]
    h = x if x.dim() == 3 else x.expand(S, *x.shape)  # [S, N, D]
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = torch.baddbmm(bias, h, weight)  # [S, N, fan_out]
        if dropout is not None:
            h = dropout.apply(layer, h)
        if layer < len(weights) - 1:
            h = activation(h)
    return h.squeeze(-1)


class DropoutMasks:
    """Independent masks per layer and element, survivors scaled by 1/(1 − rate); `layers` limits where they act."""

    def __init__(self, rate: float, generator: torch.Generator, layers: Sequence[int] | None = None) -> None:
        self.rate, self.generator, self.layers = rate, generator, layers

    def apply(self, layer: int, h: Tensor) -> Tensor:
        if self.rate == 0.0 or (self.layers is not None and layer not in self.layers):
            return h
        keep = torch.empty_like(h).bernoulli_(1.0 - self.rate, generator=self.generator)
        return h * keep.div_(1.0 - self.rate)


def gaussian_layer(
    h: Tensor, mean: Tensor, variance: Tensor, bias: Tensor, num_samples: int | None, generator: torch.Generator
) -> Tensor:
    """Local reparameterisation: pre-activations of a layer with independent Gaussian weights, drawn directly.

    Given the activations h, h @ W is Gaussian with mean h @ E[W] and variance h² @ Var[W]; drawing it costs fan_out
    normals instead of fan_in × fan_out. Valid where each (row, sample) has weights of its own.
    `num_samples` adds a leading sample axis: [N, fan_in] -> [S, N, fan_out]; None keeps the shape's leading axes.
    """
    location = torch.addmm(bias, h, mean)
    spread = (torch.mm(h.square(), variance) + TINY).sqrt()
    shape = location.shape if num_samples is None else (num_samples, *location.shape)
    noise = torch.randn(shape, generator=generator, dtype=h.dtype, device=h.device)
    return torch.addcmul(location, spread, noise)
