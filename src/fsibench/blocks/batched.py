"""M networks of one shape with weights of their own, trained and evaluated in one batched pass.

Parameters of a network are one row: weights [fan_in, fan_out] and biases [fan_out] of each layer in turn, as in
`mlp.MLP`. Activation: leaky ReLU, or tanh where derivatives of the network are to be smooth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.draws import normal
from fsibench.blocks.networks import SLOPE, kept_scale, network_pieces, weight_shapes

Activation = Literal["leaky_relu", "tanh"]


def num_parameters(widths: Sequence[int]) -> int:
    """P, weights and biases of one network."""
    return sum(fan_in * fan_out + fan_out for fan_in, fan_out in weight_shapes(widths))


def split_layers(flat: Tensor, widths: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Weights [..., fan_in, fan_out] and biases [..., fan_out] of each layer, as views of flat parameters [..., P]."""
    shapes = weight_shapes(widths)
    sizes = [size for fan_in, fan_out in shapes for size in (fan_in * fan_out, fan_out)]
    parts = torch.split_with_sizes(flat, sizes, dim=-1)
    return [
        (weight.view(*flat.shape[:-1], *shape), bias)
        for shape, weight, bias in zip(shapes, parts[::2], parts[1::2], strict=True)
    ]


def interleaved(weights: Tensor, biases: Tensor, widths: Sequence[int]) -> Tensor:
    """Flat parameters [M, P] out of all weights and all biases, each [M, ...] and layer by layer."""
    shapes = weight_shapes(widths)
    of_weights = torch.split_with_sizes(weights, [fan_in * fan_out for fan_in, fan_out in shapes], dim=-1)
    of_biases = torch.split_with_sizes(biases, [fan_out for _, fan_out in shapes], dim=-1)
    return torch.cat([part for pair in zip(of_weights, of_biases, strict=True) for part in pair], dim=-1)


def starting_parameters(
    num_networks: int,
    widths: Sequence[int],
    activation: Activation,
    bias_scale: float,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> Tensor:
    """Random parameters [M, P]: weights that keep the scale of activations from layer to layer."""
    like = torch.empty(0, dtype=dtype, device=generator.device)
    flat = normal(generator, num_networks, num_parameters(widths), like=like)
    for (weight, bias), (fan_in, _) in zip(split_layers(flat, widths), weight_shapes(widths), strict=True):
        weight *= kept_scale(fan_in) if activation == "leaky_relu" else 1.0 / math.sqrt(fan_in)
        bias *= bias_scale
    return flat


def batched_network(
    x: Tensor,
    flat: Tensor,
    widths: Sequence[int],
    activation: Activation = "leaky_relu",
    masks: Sequence[Tensor] | None = None,
) -> Tensor:
    """M networks: x [N, D] or [M, N, D] and flat parameters [M, P] -> [M, N, widths[-1]].

    `masks` [M, N, width] multiply the inputs and each hidden layer in turn (dropout, already scaled).
    """
    if not torch.is_grad_enabled():
        return _values(x, flat, widths, activation, masks)
    return _BatchedNetwork.apply(x, flat, tuple(widths), activation, masks)  # type: ignore[no-any-return,no-untyped-call]


def _values(
    x: Tensor, flat: Tensor, widths: Sequence[int], activation: Activation, masks: Sequence[Tensor] | None
) -> Tensor:
    """The outputs alone, some networks at a time: nothing is kept for a backward pass."""
    out = torch.empty(len(flat), x.shape[-2], widths[-1], dtype=flat.dtype, device=flat.device)
    for piece in network_pieces(len(flat), x.shape[-2], widths):
        own_masks = None if masks is None else [mask[piece] for mask in masks]
        out[piece] = _forward(x if x.dim() == 2 else x[piece], flat[piece], widths, activation, own_masks)[2]
    return out


def _forward(
    x: Tensor, flat: Tensor, widths: Sequence[int], activation: Activation, masks: Sequence[Tensor] | None
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Inputs of every layer, outputs of the hidden ones (which masks turn into inputs), and the networks' output."""
    layers = split_layers(flat, widths)
    h = x if x.dim() == 3 else x.expand(len(flat), *x.shape)  # [M, N, D]
    inputs, outputs = [h if masks is None else h * masks[0]], []
    for layer, (weight, bias) in enumerate(layers[:-1], 1):
        h = torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight)  # [M, N, H]
        h = functional.leaky_relu_(h, SLOPE) if activation == "leaky_relu" else tanh_(h)
        outputs.append(h)
        inputs.append(h if masks is None else h * masks[layer])
    weight, bias = layers[-1]
    return inputs, outputs, torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight)


class _BatchedNetwork(torch.autograd.Function):
    """Batched products with the backward pass written out: no gradient of a view is ever padded to the whole row.

    Both activations have derivatives that can be read off their outputs.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, flat: Tensor, widths: tuple[int, ...], activation: Activation, masks: Sequence[Tensor] | None
    ) -> Tensor:
        inputs, outputs, out = _forward(x, flat, widths, activation, masks)
        ctx.save_for_backward(flat, *inputs, *outputs, *(masks or ()))
        ctx.widths, ctx.activation, ctx.shared_inputs = widths, activation, x.dim() == 2
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, *saved = ctx.saved_tensors
        layers = split_layers(flat, ctx.widths)
        count = len(layers)
        inputs, outputs, masks = saved[:count], saved[count : 2 * count - 1], saved[2 * count - 1 :]
        flat_gradient = torch.empty_like(flat)
        slots = split_layers(flat_gradient, ctx.widths)
        (g,) = gradients  # [M, N, width]
        for layer in range(count - 1, -1, -1):
            slots[layer][0].copy_(torch.bmm(inputs[layer].mT, g))
            slots[layer][1].copy_(g.sum(1))
            if layer == 0 and not ctx.needs_input_grad[0]:
                break
            g = torch.bmm(g, layers[layer][0].mT)
            if masks:
                g.mul_(masks[layer])
            if layer > 0:
                g = _through_activation(g, outputs[layer - 1], ctx.activation)
        x_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = g.sum(0) if ctx.shared_inputs else g
        return x_gradient, flat_gradient, None, None, None


def tanh_(x: Tensor) -> Tensor:
    """tanh in place, as 2 σ(2x) − 1: half the time of `torch.tanh`, equal to the last digit of numbers near one."""
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def _through_activation(gradient: Tensor, output: Tensor, activation: Activation) -> Tensor:
    through: Tensor
    if activation == "leaky_relu":
        through = torch.ops.aten.leaky_relu_backward(gradient, output, SLOPE, True)
    else:
        through = torch.ops.aten.tanh_backward(gradient, output)
    return through
