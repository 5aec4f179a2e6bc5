"""Log-density ratios of implicit distributions, by classification.

A classifier T that separates draws of q (label 1) from draws of p (label 0) with cross-entropy has its optimum at
T = log q − log p. The ratio is then differentiated through the draws only: the classifier is a constant there.
"""

from __future__ import annotations

from typing import Any

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
        self._counts = (0, 0)  # of the two classes, for which signs and shares were made

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Cross-entropy ½ [ mean softplus(−T(first)) + mean softplus(T(second)) ]."""
        return self._loss(torch.cat([first, second]), len(first))

    def _loss(self, both: Tensor, num_first: int) -> Tensor:
        counts = num_first, len(both) - num_first
        if counts != self._counts:
            self._counts, (self._signs, self._shares) = counts, _classes(counts, both)
        return torch.dot(functional.softplus(self.network(both).squeeze(1) * self._signs), self._shares)

    def improve(self, first: Tensor, second: Tensor, fraction: float) -> float:
        """One Adam step towards log(first / second) on draws taken as data; returns the cross-entropy before it."""
        return self._optimiser.minimise(self.loss(first.detach(), second.detach()), fraction)

    def improve_on_gaussian(self, standardised: Tensor, fraction: float, generator: torch.Generator) -> float:
        """The same against as many standard normal vectors, drawn in antithetic pairs: g and −g."""
        S, half = len(standardised), (len(standardised) + 1) // 2
        both = torch.empty(2 * S, standardised.shape[1], dtype=standardised.dtype, device=standardised.device)
        both[:S] = standardised.detach()
        torch.randn((half, both.shape[1]), generator=generator, out=both[S : S + half])
        torch.neg(both[S : 2 * S - half], out=both[S + half :])
        return self._optimiser.minimise(self._loss(both, S), fraction)

    def log_ratio(self, draws: Tensor) -> Tensor:
        """T at draws [S, M], differentiable in the draws and constant in the network: [S]."""
        return self.network(draws, frozen=True).squeeze(1)


def _classes(counts: tuple[int, int], like: Tensor) -> tuple[Tensor, Tensor]:
    """Signs of the logits, −1 for the first class and 1 for the second, and each draw's share of the mean."""
    first, second = (torch.ones(count, dtype=like.dtype, device=like.device) for count in counts)
    return torch.cat([-first, second]), torch.cat([0.5 / counts[0] * first, 0.5 / counts[1] * second])


class Moments:
    """Coordinate-wise mean and variance of draws [S, M]: the Gaussian of adaptive contrast.

    With q̄ the Gaussian that has the moments of the draws of q, E_q log q̄/p̄ is the divergence of two Gaussians. As a
    function of the draws it has the same value and the same gradient as the mean of log q̄ − log p̄ over the draws
    with the moments held constant, and costs less.
    """

    def __init__(self, draws: Tensor) -> None:
        moments: tuple[Tensor, Tensor, Tensor] = _MomentsFunction.apply(draws)  # type: ignore[no-untyped-call]
        self.mean, self.variance, self.standardised = moments  # [M], [M], and the draws themselves [S, M]
        self.scale = self.variance.detach().sqrt()

    def standardise(self, draws: Tensor) -> Tensor:
        """Other draws by these moments."""
        return (draws - self.mean.detach()) / self.scale

    def divergence(self, mean: Tensor | float, log_variance: Tensor) -> Tensor:
        """KL( N(these moments) ‖ N(mean, e^log_variance) ), with gradients to the draws and to both arguments."""
        return diagonal_gaussian_kl(self.mean, self.variance.log(), mean, log_variance)


class _MomentsFunction(torch.autograd.Function):
    """Mean, variance and standardised draws in few passes over the draws, forwards and backwards.

    Gradients of the mean and the variance are exact; standardised draws count the moments as constants.
    """

    @staticmethod
    def forward(ctx: Any, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = draws.mean(0)
        centred = draws - mean
        variance = centred.square().mean(0).add_(SMALLEST_VARIANCE)
        scale = variance.sqrt()
        standardised = centred.div_(scale)
        ctx.save_for_backward(standardised, scale)
        return mean, variance, standardised

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        standardised, scale = ctx.saved_tensors
        of_mean, of_variance, of_standardised = gradients
        # 1/S ∂mean + 2/S (w − m) ∂variance + ∂standardised / scale
        share = 1.0 / len(standardised)
        gradient = torch.addcmul(share * of_mean, standardised, 2.0 * share * scale * of_variance)
        return gradient.addcmul_(of_standardised, scale.reciprocal())
