"""The integrated posterior of a network with one hidden layer of tanh units, with a gradient that is mostly matrix products.

With Φ [N, K] the activations and a column of ones, S the prior scales of the output layer, v = σ²/β and the symbols of
`IntegratedNetwork` (F = ΦS), everything but two products with Φ happens in K × K algebra on the Gram matrix of [Φ, y]:

    M = S B⁻¹ S/v,   m = S μ,   ∂U/∂Φ = Φ M − (y − Φm) mᵀ/v = [Φ, y] [M + m mᵀ/v; −mᵀ/v]

The gradient is computed in the precision of the data, the energy of the Metropolis test in float64. Kicks are a function of
the position alone, so trajectories are reversible and preserve volume whatever the rounding of the gradient: draws
are exact, a rough gradient would only cost acceptance.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fsibench.blocks.weight_posterior import IntegratedNetwork

# 2 · 20 through the sigmoid gives an activation of exactly one: the column of the output bias.
ALWAYS_ON = 40.0


class SingleLayerNetwork(IntegratedNetwork):
    """As `IntegratedNetwork`, for one hidden layer of tanh units and a prior with mean zero."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        centred = not bool(self.means.any()) and not bool(self.bias_means.any())
        if len(self.widths) != 3 or self.nonlinearity != "tanh" or not centred:
            raise ValueError("expected one hidden layer of tanh units and a prior with mean zero")
        D, H = self.widths[:2]
        self.rows = torch.cat([self.x, torch.ones_like(self.x[:, :1])], 1)  # [N, D + 1]
        extra = torch.zeros(1, D + 1, 2, dtype=self.x.dtype, device=self.x.device)
        extra[0, D, 0] = ALWAYS_ON
        self.extra_columns = extra
        self.identity = torch.eye(H + 1, dtype=torch.float64, device=self.x.device)
        constant = torch.cat([self.scales[: D * H], self.bias_scales[:H]]).view(1, D + 1, H)
        self.fixed = constant, torch.cat([self.scales[D * H :], self.bias_scales[-1:]])[None].double()

    def first_layer(self, sampled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights above biases [C, D + 1, H], their factors on ξ [C or 1, D + 1, H], and output scales S [C, K] in float64."""
        D, H = self.widths[:2]
        if not self.spreads.hierarchical:
            factors, scales = self.fixed
            # ξ holds the weights of one input after the other, then the biases
            return sampled[:, :-1].view(len(sampled), D + 1, H) * factors, factors, scales.expand(len(sampled), -1)
        per_layer, weights, biases = self.unpack(self.centred(sampled))
        bias_factors = self.bias_scales[:H].expand(len(sampled), 1, H)
        stacked = torch.cat([weights[0], biases[0]], 1)
        bias = self.bias_scales[-1].expand(len(sampled), 1)
        scales = torch.cat([per_layer[-1].squeeze(-1), bias], 1).double()
        return stacked, torch.cat([per_layer[0], bias_factors], 1), scales

    def activations(self, stacked: Tensor) -> Tensor:
        """[Φ, y] as [C, N, K + 1]."""
        columns = torch.cat([2.0 * stacked, self.extra_columns.expand(len(stacked), -1, -1)], 2)
        values = torch.matmul(self.rows, columns).sigmoid_().mul_(2.0).sub_(1.0)  # tanh a = 2 sigmoid(2a) − 1
        values[:, :, -1] = self.y
        return values

    def gradient(self, sampled: Tensor) -> Tensor:
        stacked, factors, S = self.first_layer(sampled)
        values = self.activations(stacked)
        exponential, noise = self.noise_variances(sampled)
        K, H, N, beta = S.shape[1], self.widths[1], len(self.y), self.power
        gram = (values.mT @ values).double()  # [C, K + 1, K + 1]
        inner, cross = gram[:, :K, :K], gram[:, :K, K:]
        v = noise / beta
        precision = 1.0 / v[:, None, None]
        products = S[:, :, None] * S[:, None, :]
        L, failed = torch.linalg.cholesky_ex(self.identity + precision * products * inner)
        L = torch.where((failed != 0)[:, None, None], math.nan, L)
        inverse = torch.cholesky_inverse(L)  # B⁻¹
        m = S[:, :, None] * (inverse @ (precision * S[:, :, None] * cross))
        right = gram.new_zeros(gram.shape)
        right[:, :K, :K] = precision * (products * inverse + m @ m.mT)
        right[:, K, :K] = -(precision * m).squeeze(-1)
        G = values @ right.to(values.dtype)  # ∂U/∂Φ, [C, N, K + 1]
        through = torch.ops.aten.tanh_backward(G, values)
        slopes = torch.matmul(self.rows.mT, through)[:, :, :H]  # ∂U/∂W over ∂U/∂b
        squares = (gram[:, K, K] - 2.0 * (m * cross).sum((1, 2)) + (m * (inner @ m)).sum((1, 2))).clamp_min(0.0)
        trace = inverse.diagonal(dim1=1, dim2=2).sum(1)
        slope = (-squares / v.square() + (trace - K) / v) / beta + beta * N / noise
        parts = [(slopes * factors).flatten(1)]  # weights of one input after the other, then the biases
        if self.spreads.hierarchical:
            # Φ scales with nothing, F = ΦS with s_2: ∂U/∂log s_2 is the trace of Φᵀ ∂U/∂Φ over the hidden units
            outer = (gram[:, :K] * right[:, :, :K].mT).sum(2)[:, :H].sum(1, keepdim=True).to(values.dtype)
            first = slopes[:, :-1] * stacked[:, :-1]  # [C, D, H]
            inputs = first.sum(2)
            parts += [self.spreads.layer * inputs.sum(1, keepdim=True), self.spreads.layer * outer]
            parts += [self.spreads.input * inputs]
        noise_gradient = 0.5 * slope * exponential * self.spreads.noise
        return sampled + torch.cat([*parts, noise_gradient[:, None].to(values.dtype)], 1)

    def potential(self, sampled: Tensor) -> tuple[Tensor, Tensor]:
        return self.energy(sampled), self.gradient(sampled)

    def energy(self, sampled: Tensor) -> Tensor:
        """U in float64: [C]."""
        stacked, _, S = self.first_layer(sampled)
        values = torch.matmul(self.rows.double(), stacked.double()).tanh_()
        F = torch.cat([values, torch.ones_like(values[:, :, :1])], 2) * S[:, None, :]
        noise, t = self.noise_variances(sampled)[1], self.y.double()[:, None]
        v = noise / self.power
        mu, L = self.output_posterior(F, t.expand(len(F), -1, 1), v)
        squares = (t - F @ mu).square().sum((1, 2))
        log_determinant = 2.0 * L.diagonal(dim1=1, dim2=2).log().sum(1)
        fit = squares / v + mu.square().sum((1, 2)) + log_determinant + self.power * len(self.y) * noise.log()
        return 0.5 * (fit + sampled.double().square().sum(1))
