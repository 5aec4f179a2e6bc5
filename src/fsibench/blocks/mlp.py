"""Fully connected networks with parameters of their own, and distributions made of one: networks fed with noise.

All parameters of a network live in one flat leaf tensor, so that an optimiser step is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.draws import normal
from fsibench.blocks.networks import SLOPE, kept_scale, through_activation, weight_shapes

Layers = Sequence[tuple[Tensor, Tensor]]  # weights and biases of each layer


class MLP:
    """Leaky-ReLU network, linear output; all parameters in one flat leaf [W₁, b₁, W₂, b₂, ...].

    Weights start as N(0, weight_scale²), biases as N(0, bias_scale²), without fan-in scaling unless
    `weight_scale` is None: then N(0, 2 / ((1 + slope²) fan_in)), which keeps the size of activations.
    """

    def __init__(
        self,
        widths: Sequence[int],
        weight_scale: float | None,
        bias_scale: float,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.widths, self.shapes = tuple(widths), weight_shapes(widths)
        self.sizes = [size for fan_in, fan_out in weight_shapes(widths) for size in (fan_in * fan_out, fan_out)]
        like = torch.empty(0, dtype=dtype, device=generator.device)
        flat = normal(generator, sum(self.sizes), like=like)
        parts = torch.split_with_sizes(flat, self.sizes)
        for (fan_in, _), weight, bias in zip(weight_shapes(widths), parts[::2], parts[1::2], strict=True):
            weight *= kept_scale(fan_in) if weight_scale is None else weight_scale
            bias *= bias_scale
        self.flat = flat.requires_grad_(True)

    def __call__(
        self,
        x: Tensor,
        masks: Sequence[Tensor] | None = None,
        frozen: bool = False,
        hidden: list[Tensor] | None = None,
    ) -> Tensor:
        """x [N, widths[0]] -> [N, widths[-1]]. `masks` multiply the hidden activations (dropout, already scaled).

        With `frozen`, gradients reach x only. The hidden activations are appended to `hidden`, for use as constants.
        """
        flat = self.flat.detach() if frozen else self.flat
        return _MLPFunction.apply(x, flat, self, masks, hidden)  # type: ignore[no-any-return,no-untyped-call]

    def layers(self, flat: Tensor) -> Layers:
        """Weights [fan_in, fan_out] and biases [fan_out] of each layer, as views of `flat`."""
        parts = torch.split_with_sizes(flat, self.sizes)
        return [
            (weight.view(shape), bias)
            for shape, weight, bias in zip(self.shapes, parts[::2], parts[1::2], strict=True)
        ]


def mlp_forward(x: Tensor, layers: Layers, masks: Sequence[Tensor] | None = None) -> tuple[list[Tensor], Tensor]:
    """The inputs of each layer, x first, and the output: all that `mlp_backward` needs."""
    inputs = [x]
    for layer, (weight, bias) in enumerate(layers[:-1]):
        h = functional.leaky_relu_(torch.addmm(bias, inputs[-1], weight), SLOPE)
        inputs.append(h if masks is None else h.mul_(masks[layer]))
    weight, bias = layers[-1]
    return inputs, torch.addmm(bias, inputs[-1], weight)


def mlp_backward(
    gradient: Tensor,
    layers: Layers,
    inputs: Sequence[Tensor],
    masks: Sequence[Tensor] | None = None,
    slots: Layers | None = None,
    wants_x: bool = True,
) -> Tensor | None:
    """From the gradient of the output to that of x; those of weights and biases are written into `slots`.

    Leaky ReLU keeps the sign, so its derivative is read off its output, and so is that of a masked output: where the
    mask is zero the gradient is zero whatever the sign.
    """
    g = gradient
    for layer in range(len(layers) - 1, -1, -1):
        if slots is not None:
            torch.mm(inputs[layer].t(), g, out=slots[layer][0])
            torch.sum(g, 0, out=slots[layer][1])
        if layer == 0:
            break
        weight = layers[layer][0]
        # a matrix of one column: an outer product
        g = g * weight.t() if weight.shape[1] == 1 else torch.mm(g, weight.t())
        if masks:
            g.mul_(masks[layer - 1])
        g = through_activation(g, inputs[layer])
    return torch.mm(g, layers[0][0].t()) if wants_x else None


class _MLPFunction(torch.autograd.Function):
    """The network with its backward pass written out: a third of the operations that autograd would record."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, flat: Tensor, network: MLP, masks: Sequence[Tensor] | None, hidden: list[Tensor] | None
    ) -> Tensor:
        inputs, output = mlp_forward(x, network.layers(flat), masks)
        if hidden is not None:
            hidden.extend(inputs[1:])
        ctx.save_for_backward(flat, *inputs, *(masks or ()))
        ctx.network, ctx.num_layers = network, len(inputs)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, *saved = ctx.saved_tensors
        inputs, masks = saved[: ctx.num_layers], saved[ctx.num_layers :]
        wants_x, wants_flat = ctx.needs_input_grad[:2]
        flat_gradient = torch.empty_like(flat) if wants_flat else None
        slots = None if flat_gradient is None else ctx.network.layers(flat_gradient)
        x_gradient = mlp_backward(gradients[0], ctx.network.layers(flat), inputs, masks, slots, wants_x)
        return x_gradient, flat_gradient, None, None, None


class NoiseSampler:
    """Implicit distribution: a network fed with learned Gaussian noise, e = μ + exp(r/2) ξ with ξ ~ N(0, I).

    Draws are rows: [S, num_outputs]. The map is called the neural sampler of the approximate posterior.
    """

    def __init__(
        self,
        num_outputs: int,
        generator: torch.Generator,
        num_noise: int = 100,
        hidden_units: int = 50,
        weight_scale: float | None = 0.1,
        bias_scale: float = 0.1,
        mean_scale: float = 0.1,
        log_variance: tuple[float, float] = (-5.0, 0.1),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = MLP(
            (num_noise, hidden_units, hidden_units, num_outputs), weight_scale, bias_scale, generator, dtype
        )
        start = normal(generator, 2, num_noise, like=self.network.flat.detach())
        start[0] *= mean_scale
        start[1] = log_variance[0] + log_variance[1] * start[1]
        self.noise_map = start.requires_grad_(True)  # rows μ and r

    @property
    def parameters(self) -> list[Tensor]:
        return [self.network.flat, self.noise_map]

    def __call__(self, num_draws: int, generator: torch.Generator) -> Tensor:
        xi = normal(generator, num_draws, self.network.widths[0], like=self.noise_map)
        return _NoiseSamplerFunction.apply(xi, self.noise_map, self.network.flat, self.network)  # type: ignore[no-any-return,no-untyped-call]


class _NoiseSamplerFunction(torch.autograd.Function):
    """NN(μ + exp(r/2) ξ), with gradients ∂μ = Σₛ ∂eₛ and ∂r = ½ exp(r/2) Σₛ ξₛ ∂eₛ."""

    @staticmethod
    def forward(ctx: Any, xi: Tensor, noise_map: Tensor, flat: Tensor, network: MLP) -> Tensor:
        scale = (0.5 * noise_map[1]).exp_()
        inputs, output = mlp_forward(torch.addcmul(noise_map[0], scale, xi), network.layers(flat))
        ctx.save_for_backward(xi, scale, flat, *inputs)
        ctx.network = network
        return output  # [S, num_outputs]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        xi, scale, flat, *inputs = ctx.saved_tensors
        flat_gradient, map_gradient = torch.empty_like(flat), xi.new_empty(2, xi.shape[1])
        g = mlp_backward(gradients[0], ctx.network.layers(flat), inputs, slots=ctx.network.layers(flat_gradient))
        assert g is not None
        torch.sum(g, 0, out=map_gradient[0])
        torch.sum(g.mul_(xi), 0, out=map_gradient[1])
        map_gradient[1].mul_(scale).mul_(0.5)
        return None, map_gradient, flat_gradient, None
