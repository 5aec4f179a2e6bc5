"""Log-density ratios of implicit distributions, by classification.

A classifier T that separates draws of q (label 1) from draws of p (label 0) with cross-entropy has its optimum at
T = log q − log p. The ratio is then differentiated through the draws only: the classifier is a constant there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.divergences import diagonal_gaussian_kl
from fsibench.blocks.networks import MLP
from fsibench.blocks.training import Optimiser, Schedule

# Added to every variance: draws that have collapsed to a point stay finite.
SMALLEST_VARIANCE = 1e-12


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


class Moments:
    """Coordinate-wise mean and variance of draws [S, M]: the Gaussian of adaptive contrast.

    With q̄ the Gaussian that has the moments of the draws of q, E_q log q̄/p̄ is the divergence of two Gaussians. As a
    function of the draws it has the same value and the same gradient as the mean of log q̄ − log p̄ over the draws
    with the moments held constant, and costs less.
    """

    def __init__(self, draws: Tensor) -> None:
        self.mean = draws.mean(0)  # [M]
        self.centred = draws - self.mean.detach()  # [S, M]
        # the mean's own derivative drops out: centred draws add up to zero
        self.variance = self.centred.square().mean(0) + SMALLEST_VARIANCE  # [M]
        self.scale = self.variance.detach().sqrt()

    @property
    def standardised(self) -> Tensor:
        """The draws themselves, standardised; gradients flow through the draws, not through the moments."""
        return self.centred / self.scale

    def standardise(self, draws: Tensor) -> Tensor:
        """Other draws by these moments."""
        return (draws - self.mean.detach()) / self.scale

    def divergence(self, mean: Tensor | float, log_variance: Tensor) -> Tensor:
        """KL( N(these moments) ‖ N(mean, e^log_variance) ), with gradients to the draws and to both arguments."""
        return diagonal_gaussian_kl(self.mean, self.variance.log(), mean, log_variance)
