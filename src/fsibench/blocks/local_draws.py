"""Local reparameterisation: outputs of a network with independent Gaussian weights, drawn layer by layer.

Given the activations h of a layer, h @ W is Gaussian with mean h @ E[W] and variance h² @ Var[W]; drawing it costs fan_out
normals instead of fan_in × fan_out. Valid where each (row, sample) has weights of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.draws import normal
from fsibench.blocks.networks import SLOPE, split_biases, split_weights, through_activation

# Under a square root: its derivative at zero is infinite, and a row of zeros (a constant input) gives exactly zero.
TINY = 1e-16


def local_draws(
    x: Tensor,
    means: Tensor,
    log_variances: Tensor,
    biases: Tensor,
    widths: Sequence[int],
    num_draws: int,
    generator: torch.Generator,
) -> Tensor:
    """f_s(x_i) with fresh weights for every (s, i): x [N, D], flat means and log variances [P], flat biases -> [S, N]."""
    draws = _LocalDraws.apply(x, means, log_variances, biases, tuple(widths), num_draws, generator)  # type: ignore[no-untyped-call]
    return draws.view(num_draws, len(x))  # type: ignore[no-any-return]


class _LocalDraws(torch.autograd.Function):
    """With a = h M + b + √(h² V) ∘ ε of a layer and g its gradient, γ = g ∘ ε / 2√(h² V):

    ∂M = hᵀ g,   ∂V = (h²)ᵀ γ,   ∂b = Σ g,   ∂h = g Mᵀ + 2h ∘ γ Vᵀ.

    The first layer has the same h for all draws: g and γ are summed over them first.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, means: Tensor, log_variances: Tensor, biases: Tensor, widths: tuple[int, ...],
        num_draws: int, generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        V = log_variances.exp()
        layers = zip(split_weights(means, widths), split_weights(V, widths), split_biases(biases, widths), strict=True)
        saved, h = [], x
        for layer, (mean, variance, bias) in enumerate(layers):
            squares = h.square()
            location, spread = torch.addmm(bias, h, mean), torch.mm(squares, variance).add_(TINY).sqrt_()
            shape = location.shape if layer else (num_draws, *location.shape)
            noise = normal(generator, *shape, like=h)
            saved += [h, squares, spread, noise]
            h = torch.addcmul(location, spread, noise)
            if layer == 0:
                h = h.flatten(0, 1)  # [S N, H]
            if layer < len(widths) - 2:
                h = functional.leaky_relu_(h, SLOPE)
        ctx.save_for_backward(means, V, *saved)
        ctx.widths = widths
        return h  # [S N, 1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        means, V, *saved = ctx.saved_tensors
        of_means, of_variances = torch.empty_like(means), torch.empty_like(V)
        M, M_slots = split_weights(means, ctx.widths), split_weights(of_means, ctx.widths)
        V_layers, V_slots = split_weights(V, ctx.widths), split_weights(of_variances, ctx.widths)
        of_biases = []
        (g,) = gradients
        for layer in range(len(M) - 1, -1, -1):
            h, squares, spread, noise = saved[4 * layer : 4 * layer + 4]
            if layer == 0:
                g = g.view(noise.shape)
                weighted, g = (g * noise).sum(0), g.sum(0)
            else:
                weighted = g * noise
            weighted.div_(spread).mul_(0.5)
            torch.mm(h.t(), g, out=M_slots[layer])
            torch.mm(squares.t(), weighted, out=V_slots[layer])
            of_biases.append(g.sum(0))
            if layer > 0:
                through_variance = torch.mm(weighted, V_layers[layer].t()).mul_(h)
                g = torch.addmm(through_variance, g, M[layer].t(), beta=2.0)
                g = through_activation(g, h)
        return None, of_means, of_variances.mul_(V), torch.cat(of_biases[::-1]), None, None, None
