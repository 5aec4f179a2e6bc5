"""Log-density ratios of implicit distributions, by classification.

A classifier T that separates draws of q (label 1) from draws of p (label 0) with cross-entropy has its optimum at
T = log q − log p. The ratio is then differentiated through the draws only: the classifier is a constant there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.likelihoods import LOG_2PI
from fsibench.blocks.networks import MLP
from fsibench.blocks.training import Optimiser, Schedule

# Standardisation divides by this at least: draws that have collapsed to a point stay finite.
SMALLEST_SCALE = 1e-6


class Discriminator:
    """T: draws [S, M] -> log-ratio [S], a leaky-ReLU network with its own optimiser."""

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        learning_rate: float,
        schedule: Schedule = "constant",
        hidden_units: int = 50,
        weight_scale: float | None = 0.05,
        bias_scale: float = 0.05,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = MLP((num_inputs, hidden_units, hidden_units, 1), weight_scale, bias_scale, generator, dtype)
        self._optimiser = Optimiser([self.network.flat], learning_rate, schedule)

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Cross-entropy ½ [ mean softplus(−T(first)) + mean softplus(T(second)) ]."""
        logits = self.network(torch.cat([first, second])).squeeze(1)
        signs = torch.ones_like(logits)
        signs[: len(first)] = -1.0
        shares = torch.full_like(logits, 0.5 / len(second))
        shares[: len(first)] = 0.5 / len(first)
        return torch.dot(functional.softplus(logits * signs), shares)

    def improve(self, first: Tensor, second: Tensor, fraction: float) -> float:
        """One Adam step towards log(first / second) on draws taken as data; returns the cross-entropy before it."""
        return self._optimiser.minimise(self.loss(first.detach(), second.detach()), fraction)

    def log_ratio(self, draws: Tensor) -> Tensor:
        """T at draws [S, M], differentiable in the draws and constant in the network: [S]."""
        return self.network(draws, frozen=True).squeeze(1)


class Standardiser:
    """Coordinate-wise mean and scale of draws, detached: the Gaussian of adaptive contrast."""

    def __init__(self, draws: Tensor) -> None:
        variance, mean = torch.var_mean(draws.detach(), 0, correction=0)
        self.mean, self.scale = mean, variance.sqrt().clamp_(min=SMALLEST_SCALE)  # [M]

    def __call__(self, draws: Tensor) -> Tensor:
        return (draws - self.mean) / self.scale

    def log_density(self, standardised: Tensor) -> Tensor:
        """log N(draw | mean, scale²) from the standardised draw: [S, M] -> [S]."""
        constant = self.scale.log().sum() + 0.5 * LOG_2PI * self.scale.numel()
        return -0.5 * standardised.square().sum(1) - constant
