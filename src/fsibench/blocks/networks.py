"""Small fully connected networks, built for speed on one thread.

Weights are stored input-major: a layer is `h @ W + b` with W of shape [fan_in, fan_out]. Activations are leaky ReLU with
slope 0.2 unless said otherwise. Parameters of a network live in one flat leaf tensor, so that an optimiser step is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.draws import normal, uniform

Nonlinearity = Literal["leaky_relu", "tanh"]
SLOPE = 0.2
# Under a square root: its derivative at zero is infinite, and a row of zeros (a constant input) gives exactly zero.
TINY = 1e-16


def activation(x: Tensor, nonlinearity: Nonlinearity = "leaky_relu") -> Tensor:
    return x.tanh() if nonlinearity == "tanh" else functional.leaky_relu(x, SLOPE)


def weight_shapes(widths: Sequence[int]) -> list[tuple[int, int]]:
    """[(fan_in, fan_out), ...] of the layers between consecutive widths."""
    return list(pairwise(widths))


def num_weights(widths: Sequence[int]) -> int:
    return sum(fan_in * fan_out for fan_in, fan_out in weight_shapes(widths))


def split_weights(flat: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Weight matrices [..., fan_in, fan_out] out of flat vectors [..., P]."""
    shapes = weight_shapes(widths)
    parts = torch.split_with_sizes(flat, [fan_in * fan_out for fan_in, fan_out in shapes], dim=-1)
    return [part.view(*part.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)]


def split_biases(flat: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """Bias vectors [fan_out] out of one flat vector."""
    return tuple(torch.split_with_sizes(flat, list(widths[1:]), dim=-1))


def scaled_weights(widths: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Flat starting weights [P], each layer at its `kept_scale`."""
    like = torch.empty(0, dtype=dtype, device=generator.device)
    layers = [
        kept_scale(fan_in) * normal(generator, fan_in * fan_out, like=like)
        for fan_in, fan_out in weight_shapes(widths)
    ]
    return torch.cat(layers)


def sampled_network(
    x: Tensor, weights: Tensor, biases: Tensor, widths: Sequence[int], dropout: DropoutMasks | None = None
) -> Tensor:
    """S networks with one output: x [N, D], flat weights [S, P], shared flat biases -> [S, N].

    `x` may also be [S, N, D]: each network at inputs of its own. Dropout acts on every layer's output, the last one
    included, independently for each (network, input, unit).
    """
    masks = None
    if dropout is not None and dropout.rate > 0.0:
        S, N = len(weights), x.shape[-2]
        masks = [dropout.masks(S * N, width, weights).view(S, N, width) for width in widths[1:]]
    return _SampledNetworkFunction.apply(x, weights, biases, tuple(widths), masks)  # type: ignore[no-any-return,no-untyped-call]


def sampled_hidden(
    x: Tensor, weights: Tensor, biases: Tensor, widths: Sequence[int], nonlinearity: Nonlinearity = "leaky_relu"
) -> Tensor:
    """The last hidden layer of S networks: x [N, D], flat weights [S, P'] of all layers but the last -> [S, N, H].

    Biases are flat, shared [...] or one set per network [S, ...].
    """
    matrices, offsets = split_weights(weights, widths[:-1]), split_biases(biases, widths)
    h = x.expand(len(weights), *x.shape)
    for matrix, offset in zip(matrices, offsets[:-1], strict=True):
        h = activation(torch.baddbmm(offset.unsqueeze(-2), h, matrix), nonlinearity)
    return h


def sampled_values(
    x: Tensor, weights: Tensor, biases: Tensor, widths: Sequence[int], nonlinearity: Nonlinearity
) -> Tensor:
    """`sampled_network` for any nonlinearity and for biases that differ from network to network, by autograd: [S, N]."""
    H = widths[-2]
    h = sampled_hidden(x, weights[:, :-H], biases, widths, nonlinearity)
    return (h * weights[:, None, -H:]).sum(-1) + biases[..., -1:]


def process_features(
    x: Tensor,
    means: Tensor,
    log_scales: Tensor,
    biases: Tensor,
    widths: Sequence[int],
    noise: Tensor,
    nonlinearity: Nonlinearity = "leaky_relu",
) -> tuple[Tensor, Tensor]:
    """Moments of a Bayesian network with factorised Gaussian weights, those of its last layer integrated out.

    S draws of the hidden layers (`noise` [S, P] standard normal, the last layer's share unused) give m(x) [N] and
    Φ [N, S(H + 1)] with covariance ΦΦᵀ, by the law of total covariance with W ~ N(μ, diag σ²) the weights of the last
    layer:

        m = 1/S Σ h_s μ + b,   ΦΦᵀ = 1/S Σ h_s diag σ² h_sᵀ + 1/(S − 1) Σ (h_s μ − m + b)(h_s μ − m + b)ᵀ
    """
    S, H = len(noise), widths[-2]
    hidden_weights = torch.addcmul(means[:-H], log_scales[:-H].exp(), noise[:, :-H])  # [S, P']
    h = sampled_hidden(x, hidden_weights, biases, widths, nonlinearity)  # [S, N, H]
    given_hidden = h @ means[-H:]  # [S, N]
    average = given_hidden.mean(0)
    within = (h * (log_scales[-H:].exp() / S**0.5)).transpose(0, 1).flatten(1)  # [N, S H]
    between = ((given_hidden - average) / (S - 1) ** 0.5).mT  # [N, S]
    return average + biases[-1], torch.cat([within, between], 1)


class _SampledNetworkFunction(torch.autograd.Function):
    """Batched products, with the backward pass written out.

    A matrix with a single column is multiplied elementwise and summed: several times faster than a batched product.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weights: Tensor,
        biases: Tensor,
        widths: tuple[int, ...],
        masks: list[Tensor] | None,
    ) -> Tensor:
        matrices, offsets = split_weights(weights, widths), split_biases(biases, widths)
        inputs = [x if x.dim() == 3 else x.expand(len(weights), *x.shape)]  # [S, N, D]
        for layer, (matrix, offset) in enumerate(zip(matrices[:-1], offsets[:-1], strict=True)):
            h = functional.leaky_relu_(torch.baddbmm(offset, inputs[-1], matrix), SLOPE)  # [S, N, H]
            inputs.append(h if masks is None else h.mul_(masks[layer]))
        out = (inputs[-1] * matrices[-1].mT).sum(-1).add_(offsets[-1])  # [S, N]
        if masks is not None:
            out.mul_(masks[-1].squeeze(-1))
        ctx.save_for_backward(weights, *inputs, *(masks or ()))
        ctx.widths, ctx.shared_inputs = widths, x.dim() == 2
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, *saved = ctx.saved_tensors
        matrices = split_weights(weights, ctx.widths)
        inputs, masks = saved[: len(matrices)], saved[len(matrices) :]
        weight_gradient = torch.empty_like(weights)
        slots = split_weights(weight_gradient, ctx.widths)
        bias_gradients = []
        out_gradient = gradients[0] * masks[-1].squeeze(-1) if masks else gradients[0]
        g = out_gradient.unsqueeze(-1)  # [S, N, 1]
        for layer in range(len(matrices) - 1, -1, -1):
            last = layer == len(matrices) - 1
            if g.shape[1] == 1:  # one input per network: an outer product
                torch.mul(inputs[layer].mT, g, out=slots[layer])
            elif last:
                slots[layer].copy_((inputs[layer] * g).sum(1, keepdim=True).mT)
            else:
                slots[layer].copy_(torch.bmm(inputs[layer].mT, g))
            bias_gradients.append(g.sum((0, 1)))
            if layer == 0:
                break
            g = g * matrices[layer].mT if last else torch.bmm(g, matrices[layer].mT)
            if masks:
                g.mul_(masks[layer - 1])
            g = torch.ops.aten.leaky_relu_backward(g, inputs[layer], SLOPE, True)
        x_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = torch.bmm(g, matrices[0].mT)
            x_gradient = x_gradient.sum(0) if ctx.shared_inputs else x_gradient
        return x_gradient, weight_gradient, torch.cat(bias_gradients[::-1]), None, None


class DropoutMasks:
    """Independent masks for every element, survivors scaled by 1/(1 − rate)."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        self.rate, self.generator = rate, generator

    def masks(self, rows: int, columns: int, like: Tensor) -> Tensor:
        keep = 1.0 - self.rate
        # a uniform number and a comparison: several times faster than `bernoulli_`
        return uniform(self.generator, rows, columns, like=like).lt_(keep).div_(keep)


def gaussian_layer(
    h: Tensor, mean: Tensor, variance: Tensor, bias: Tensor, num_draws: int | None, generator: torch.Generator
) -> Tensor:
    """Local reparameterisation: pre-activations of a layer with independent Gaussian weights, drawn directly.

    Given the activations h, h @ W is Gaussian with mean h @ E[W] and variance h² @ Var[W]; drawing it costs fan_out
    normals instead of fan_in × fan_out. Valid where each (row, sample) has weights of its own.
    `num_draws` adds a leading sample axis: [N, fan_in] -> [S, N, fan_out]; None keeps the shape's leading axes.
    """
    location = torch.addmm(bias, h, mean)
    spread = (torch.mm(h.square(), variance) + TINY).sqrt()
    shape = location.shape if num_draws is None else (num_draws, *location.shape)
    return torch.addcmul(location, spread, normal(generator, *shape, like=h))


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
        self.widths = tuple(widths)
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
        return _MLPFunction.apply(x, flat, self.widths, self.sizes, masks, hidden)  # type: ignore[no-any-return,no-untyped-call]

    def layers(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights [fan_in, fan_out] and biases [fan_out] of each layer, as views of `flat`."""
        return _layers(flat, self.widths, self.sizes)


def kept_scale(fan_in: int, nonlinearity: Nonlinearity = "leaky_relu") -> float:
    """Standard deviation of weights that keeps the mean square of activations from layer to layer, of small ones for tanh."""
    gain = 1.0 if nonlinearity == "tanh" else 2.0 / (1.0 + SLOPE**2)
    return float((gain / fan_in) ** 0.5)


class _MLPFunction(torch.autograd.Function):
    """The network with its backward pass written out: a third of the operations that autograd would record.

    Leaky ReLU keeps the sign, so its derivative is read off its output, and so is that of a masked output: where the
    mask is zero the gradient is zero whatever the sign.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        flat: Tensor,
        widths: tuple[int, ...],
        sizes: list[int],
        masks: Sequence[Tensor] | None,
        hidden: list[Tensor] | None,
    ) -> Tensor:
        layers = _layers(flat, widths, sizes)
        inputs = [x]
        for layer, (weight, bias) in enumerate(layers[:-1]):
            h = functional.leaky_relu_(torch.addmm(bias, inputs[-1], weight), SLOPE)
            inputs.append(h if masks is None else h.mul_(masks[layer]))
        weight, bias = layers[-1]
        if hidden is not None:
            hidden.extend(inputs[1:])
        ctx.save_for_backward(flat, *inputs, *(masks or ()))
        ctx.widths, ctx.sizes, ctx.num_layers = widths, sizes, len(layers)
        return torch.addmm(bias, inputs[-1], weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, *saved = ctx.saved_tensors
        inputs, masks = saved[: ctx.num_layers], saved[ctx.num_layers :]
        wants_x, wants_flat = ctx.needs_input_grad[:2]
        flat_gradient = torch.empty_like(flat) if wants_flat else None
        slots = _layers(flat_gradient, ctx.widths, ctx.sizes) if flat_gradient is not None else []
        layers = _layers(flat, ctx.widths, ctx.sizes)
        (g,) = gradients
        for layer in range(ctx.num_layers - 1, -1, -1):
            if slots:
                torch.mm(inputs[layer].t(), g, out=slots[layer][0])
                torch.sum(g, 0, out=slots[layer][1])
            if layer == 0:
                break
            g = torch.mm(g, layers[layer][0].t())
            if masks:
                g.mul_(masks[layer - 1])
            g = torch.ops.aten.leaky_relu_backward(g, inputs[layer], SLOPE, True)
        return (torch.mm(g, layers[0][0].t()) if wants_x else None), flat_gradient, None, None, None, None


def _layers(flat: Tensor, widths: Sequence[int], sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    parts = torch.split_with_sizes(flat, sizes)
    return [
        (weight.view(shape), bias)
        for shape, weight, bias in zip(weight_shapes(widths), parts[::2], parts[1::2], strict=True)
    ]


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
        mean, log_variance = self.noise_map.unbind()
        xi = normal(generator, num_draws, mean.numel(), like=mean)
        draws: Tensor = self.network(torch.addcmul(mean, (0.5 * log_variance).exp(), xi))
        return draws  # [S, num_outputs]
