"""Derivatives of a network's one output in its parameters, written out, and the linear-Gaussian models they give.

With h_l the input of layer l and g_l = ∂f/∂a_l the derivative in its pre-activations, ∂f/∂W_l = h_l ⊗ g_l and
∂f/∂b_l = g_l. Everything is made of plain differentiable operations, so gradients pass through the Jacobian itself.

For weights w ~ N(μ, diag s²) the network linearised at μ is Gaussian with covariance J diag(s²) Jᵀ. Its diagonal needs
no Jacobian: Σ_l [ h_l² S_l ∘ g_l² + s_b² g_l² ], summed over units. Nor does all of it where the weights of a layer share one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.batched import split_layers


@dataclass(frozen=True)
class Linearisation:
    """A tanh network with one output at N inputs, and its derivatives in factors.

    `value` [N]; `inputs` h_l [N, fan_in] and `slopes` g_l [N, fan_out], one of each per layer.
    """

    value: Tensor
    inputs: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    widths: tuple[int, ...]

    def jacobian(self) -> Tensor:
        """J [N, P], columns in the order of the flat parameters."""
        parts = []
        for h, g in zip(self.inputs, self.slopes, strict=True):
            parts += [(h.unsqueeze(2) * g.unsqueeze(1)).flatten(1), g]
        return torch.cat(parts, 1)

    def variance(self, weight_variances: Tensor) -> Tensor:
        """Diagonal of J diag(s²) Jᵀ [N], for s² [P], without J."""
        total = torch.zeros_like(self.value)
        layers = split_layers(weight_variances, self.widths)
        for h, g, (of_weights, of_biases) in zip(self.inputs, self.slopes, layers, strict=True):
            total = total + (torch.addmm(of_biases, h.square(), of_weights) * g.square()).sum(1)
        return total

    def shared_covariance(self, scales: Sequence[tuple[float, float]]) -> Tensor:
        """J diag(s²) Jᵀ [N, N] in float64, where the weights of layer l have one scale s_l and its biases another, t_l:

            Σ_l ( s_l² h_l h_lᵀ + t_l² ) ∘ g_l g_lᵀ
        """
        total = torch.zeros(len(self.value), len(self.value), dtype=torch.float64, device=self.value.device)
        for h, g, (s, t) in zip(self.inputs, self.slopes, scales, strict=True):
            h, g = h.double(), g.double()
            total += torch.add(s**2 * (h @ h.mT), t**2) * (g @ g.mT)
        return total


def linearise(x: Tensor, flat: Tensor, widths: Sequence[int]) -> Linearisation:
    """The network with parameters `flat` [P] at x [N, D], linearised in its parameters."""
    layers = split_layers(flat, widths)
    inputs = [x]
    for weight, bias in layers[:-1]:
        inputs.append(torch.addmm(bias, inputs[-1], weight).tanh())
    weight, bias = layers[-1]
    value = torch.addmm(bias, inputs[-1], weight)[:, 0]  # [N]
    slopes = [torch.ones_like(value)[:, None]]  # of the output itself
    for h, (weight, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
        # ∂f/∂a_l = (∂f/∂a_{l+1} W_{l+1}ᵀ) ∘ (1 − h²)
        slopes.append((slopes[-1] @ weight.mT) * (1.0 - h.square()))
    return Linearisation(value, tuple(inputs), tuple(slopes[::-1]), tuple(widths))
