"""Small fully connected networks, built for speed on one thread.

Weights are stored input-major: a layer is `h @ W + b` with W of shape [fan_in, fan_out]. Activations are leaky ReLU with
slope 0.2 unless said otherwise. Here: networks whose weights are drawn, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.draws import normal, uniform

Nonlinearity = Literal["leaky_relu", "tanh"]
SLOPE = 0.2
# Without gradients, networks are evaluated a few at a time: this many activations of a layer (1 MB) stay in the cache.
ACTIVATIONS_AT_ONCE = 250_000


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
    masks = _all_masks(dropout, len(weights), x, widths)
    if masks is None and not torch.is_grad_enabled():
        return _sampled_values(x, weights, biases, widths)
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


def process_features(
    x: Tensor,
    means: Tensor,
    log_scales: Tensor,
    biases: Tensor,
    widths: Sequence[int],
    noise: Tensor,
    nonlinearity: Nonlinearity = "leaky_relu",
    bias_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Moments of a Bayesian network with factorised Gaussian weights, those of its last layer integrated out.

    S draws of the hidden layers (`noise` [S, P] standard normal, the last layer's share unused) give m(x) [N] and
    Φ [N, S(H + 1)] with covariance ΦΦᵀ, by the law of total covariance with W ~ N(μ, diag σ²) the weights of the last
    layer:

        m = 1/S Σ h_s μ + b,   ΦΦᵀ = 1/S Σ h_s diag σ² h_sᵀ + 1/(S − 1) Σ (h_s μ − m + b)(h_s μ − m + b)ᵀ

    Biases are shared [...], or those of the hidden layers are draws [S, ...] as well; `bias_scale` is the standard deviation of
    the output's bias b, whose square is then added to ΦΦᵀ.
    """
    S, H = len(noise), widths[-2]
    hidden_weights = torch.addcmul(means[:-H], log_scales[:-H].exp(), noise[:, :-H])  # [S, P']
    h = sampled_hidden(x, hidden_weights, biases, widths, nonlinearity)  # [S, N, H]
    given_hidden = h @ means[-H:]  # [S, N]
    average = given_hidden.mean(0)
    within = (h * (log_scales[-H:].exp() / S**0.5)).transpose(0, 1).flatten(1)  # [N, S H]
    between = ((given_hidden - average) / (S - 1) ** 0.5).mT  # [N, S]
    of_bias = [] if bias_scale is None else [bias_scale.expand(len(x), 1)]
    return average + biases[..., -1].mean(), torch.cat([within, between, *of_bias], 1)


def gaussian_network(
    x: Tensor,
    means: Tensor,
    log_scales: Tensor,
    biases: Tensor,
    widths: Sequence[int],
    noise: Tensor,
    dropout: DropoutMasks | None = None,
    fixed_rows: int = 0,
) -> Tensor:
    """`sampled_network` with weights m + exp(r) ∘ ε for `noise` ε [S, P], in one step of autograd: [S, N].

    The first `fixed_rows` of x are data: their gradient is not computed and reads zero.
    """
    masks = _all_masks(dropout, len(noise), x, widths)
    if masks is None and not torch.is_grad_enabled():
        return _sampled_values(x, torch.addcmul(means, log_scales.exp(), noise), biases, widths)
    return _GaussianNetworkFunction.apply(x, means, log_scales, biases, noise, tuple(widths), masks, fixed_rows)  # type: ignore[no-any-return,no-untyped-call]


def _all_masks(
    dropout: DropoutMasks | None, num_networks: int, x: Tensor, widths: Sequence[int]
) -> list[Tensor] | None:
    if dropout is None or dropout.rate == 0.0:
        return None
    S, N = num_networks, x.shape[-2]
    return [dropout.masks(S * N, width, x).view(S, N, width) for width in widths[1:]]


def network_pieces(num_networks: int, num_rows: int, widths: Sequence[int]) -> Iterator[slice]:
    """Networks that are evaluated together where no gradient is wanted, so that their activations stay in the cache."""
    size = max(1, ACTIVATIONS_AT_ONCE // max(1, num_rows * max(widths)))
    return (slice(start, start + size) for start in range(0, num_networks, size))


def _sampled_values(x: Tensor, weights: Tensor, biases: Tensor, widths: Sequence[int]) -> Tensor:
    """The output [S, N] alone: nothing is kept for a backward pass."""
    out = torch.empty(len(weights), x.shape[-2], dtype=weights.dtype, device=weights.device)
    for piece in network_pieces(len(weights), x.shape[-2], widths):
        out[piece] = _sampled_forward(x[piece] if x.dim() == 3 else x, weights[piece], biases, widths, None)[1]
    return out


def _sampled_forward(
    x: Tensor, weights: Tensor, biases: Tensor, widths: Sequence[int], masks: Sequence[Tensor] | None
) -> tuple[list[Tensor], Tensor]:
    """The inputs of each layer [S, N, width] and the output [S, N].

    A matrix with a single column is multiplied elementwise and summed: several times faster than a batched product.
    """
    matrices, offsets = split_weights(weights, widths), split_biases(biases, widths)
    inputs = [x if x.dim() == 3 else x.expand(len(weights), *x.shape)]  # [S, N, D]
    for layer, (matrix, offset) in enumerate(zip(matrices[:-1], offsets[:-1], strict=True)):
        h = functional.leaky_relu_(torch.baddbmm(offset, inputs[-1], matrix), SLOPE)  # [S, N, H]
        inputs.append(h if masks is None else h.mul_(masks[layer]))
    out = (inputs[-1] * matrices[-1].mT).sum(-1).add_(offsets[-1])  # [S, N]
    if masks is not None:
        out.mul_(masks[-1].squeeze(-1))
    return inputs, out


def _sampled_backward(
    gradient: Tensor, weights: Tensor, inputs: Sequence[Tensor], widths: Sequence[int], masks: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient of the output [S, N] to those of weights [S, P], biases and the first layer [S, N, H]."""
    matrices = split_weights(weights, widths)
    weight_gradient = torch.empty_like(weights)
    slots = split_weights(weight_gradient, widths)
    out_gradient = gradient * masks[-1].squeeze(-1) if masks else gradient
    bias_gradients = [out_gradient.sum().view(1)]
    last = len(matrices) - 1
    # a single column: products of a vector with matrices
    slots[last].copy_(torch.bmm(out_gradient.unsqueeze(1), inputs[last]).mT)
    g = out_gradient.unsqueeze(-1) * matrices[last].mT  # [S, N, H]
    for layer in range(last - 1, -1, -1):
        if masks:
            g.mul_(masks[layer])
        g = through_activation(g, inputs[layer + 1])
        if g.shape[1] == 1:  # one input per network: an outer product
            torch.mul(inputs[layer].mT, g, out=slots[layer])
        else:
            slots[layer].copy_(torch.bmm(inputs[layer].mT, g))
        bias_gradients.append(g.sum((0, 1)))
        if layer > 0:
            g = torch.bmm(g, matrices[layer].mT)
    return weight_gradient, torch.cat(bias_gradients[::-1]), g


class _SampledNetworkFunction(torch.autograd.Function):
    """Batched products, with the backward pass written out."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weights: Tensor, biases: Tensor, widths: tuple[int, ...], masks: list[Tensor] | None
    ) -> Tensor:
        inputs, out = _sampled_forward(x, weights, biases, widths, masks)
        ctx.save_for_backward(weights, *inputs, *(masks or ()))
        ctx.widths, ctx.shared_inputs = widths, x.dim() == 2
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, *saved = ctx.saved_tensors
        count = len(ctx.widths) - 1
        of_weights, of_biases, g = _sampled_backward(gradients[0], weights, saved[:count], ctx.widths, saved[count:])
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = torch.bmm(g, split_weights(weights, ctx.widths)[0].mT)
            of_x = of_x.sum(0) if ctx.shared_inputs else of_x
        return of_x, of_weights, of_biases, None, None


class _GaussianNetworkFunction(torch.autograd.Function):
    """∂m = Σₛ ∂Wₛ and ∂r = exp(r) Σₛ εₛ ∂Wₛ, with W the sampled weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, means: Tensor, log_scales: Tensor, biases: Tensor, noise: Tensor, widths: tuple[int, ...],
        masks: list[Tensor] | None, fixed_rows: int,
    ) -> Tensor:  # fmt: skip
        scales = log_scales.exp()
        weights = torch.addcmul(means, scales, noise)  # [S, P]
        inputs, out = _sampled_forward(x, weights, biases, widths, masks)
        ctx.save_for_backward(scales, noise, weights, *inputs, *(masks or ()))
        ctx.widths, ctx.fixed_rows = widths, fixed_rows
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scales, noise, weights, *saved = ctx.saved_tensors
        count = len(ctx.widths) - 1
        of_weights, of_biases, g = _sampled_backward(gradients[0], weights, saved[:count], ctx.widths, saved[count:])
        of_x = None
        if ctx.needs_input_grad[0]:
            rows = torch.bmm(g[:, ctx.fixed_rows :], split_weights(weights, ctx.widths)[0].mT).sum(0)
            of_x = functional.pad(rows, (0, 0, ctx.fixed_rows, 0))
        of_means = of_weights.sum(0)
        of_log_scales = of_weights.mul_(noise).sum(0).mul_(scales)
        return of_x, of_means, of_log_scales, of_biases, None, None, None, None


class DropoutMasks:
    """Independent masks for every element, survivors scaled by 1/(1 − rate)."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        self.rate, self.generator = rate, generator

    def masks(self, rows: int, columns: int, like: Tensor) -> Tensor:
        keep = 1.0 - self.rate
        # a uniform number and a comparison: several times faster than `bernoulli_`
        return uniform(self.generator, rows, columns, like=like).lt_(keep).div_(keep)


def kept_scale(fan_in: int, nonlinearity: Nonlinearity = "leaky_relu") -> float:
    """Standard deviation of weights that keeps the mean square of activations from layer to layer, of small ones for tanh."""
    gain = 1.0 if nonlinearity == "tanh" else 2.0 / (1.0 + SLOPE**2)
    return float((gain / fan_in) ** 0.5)


def through_activation(gradient: Tensor, output: Tensor) -> Tensor:
    """Gradient before a leaky ReLU, from that behind it, which it overwrites, and the output."""
    through: Tensor = torch.ops.aten.leaky_relu_backward(gradient, output, SLOPE, True, grad_input=gradient)
    return through
