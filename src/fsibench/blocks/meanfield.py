"""Independent Gaussian weights of a tanh network with one output, seen through its linearisation at their means.

    q(w) = N(μ, diag s²)   ->   q(f) ≈ N( f(·; μ), J diag(s²) Jᵀ ),   J = ∂f/∂w at μ
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fsibench.blocks.batched import batched_network, split_layers, starting_parameters
from fsibench.blocks.draws import PREDICTION_ROWS, Box, by_rows, normal
from fsibench.blocks.gaussian import factor, moment_kl
from fsibench.blocks.jacobians import Linearisation, linearise
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.linalg import add_to_diagonal
from fsibench.blocks.networks import weight_shapes
from fsibench.blocks.stopping import Plan
from fsibench.blocks.training import Optimiser, leaf
from fsibench.blocks.validated import Training
from fsibench.predictive import Predictive


class MeanFieldWeights:
    """q(w): trainable means μ [P] and log scales log s [P]."""

    def __init__(
        self, widths: Sequence[int], initial_log_scale: float, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        self.widths = tuple(widths)
        start = starting_parameters(1, widths, "tanh", 0.1, generator, dtype)[0]
        self.means = leaf(start)
        self.log_scales = leaf(unit_log_scales(widths).to(start) + initial_log_scale)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.means, self.log_scales]

    def linearise(self, x: Tensor) -> Linearisation:
        return linearise(x, self.means, self.widths)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x; μ) [N] and Φ = J diag(s) [N, P], with covariance ΦΦᵀ, in the precision of x."""
        linearisation = linearise(x, self.means.to(x.dtype), self.widths)
        return linearisation.value, linearisation.jacobian() * self.log_scales.to(x.dtype).exp()

    def draw_weights(self, num_draws: int, generator: torch.Generator) -> Tensor:
        eps = normal(generator, num_draws, self.means.numel(), like=self.means)
        return torch.addcmul(self.means, self.log_scales.exp(), eps)  # [S, P]

    def networks(self, x: Tensor, weights: Tensor) -> Tensor:
        """The networks themselves, not linearised: [S, N]."""
        return by_rows(lambda rows: batched_network(rows, weights, self.widths, "tanh")[..., 0], x, PREDICTION_ROWS)


class NoisyMeanField:
    """q(w) and the noise of y: what methods train that see such weights as a process."""

    def __init__(
        self, x: Tensor, hidden: tuple[int, ...], log_scale: float, log_noise: float, generator: torch.Generator
    ) -> None:
        self.q = MeanFieldWeights((x.shape[1], *hidden, 1), log_scale, generator, x.dtype)
        self.log_noise = leaf(torch.full_like(self.q.means[:1], log_noise))
        self.box = Box.around(x)  # where context points come from
        self.noise_floor = 0.0  # least noise variance of predictions
        self.last_loss, self.last_kl = math.nan, math.nan

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.q.parameters, self.log_noise]

    @property
    def noise(self) -> Tensor:
        """σ²"""
        return noise_variance(self.log_noise)[0]

    @property
    def learned_noise(self) -> float:
        return self.noise.item()

    @property
    def predicted_noise(self) -> Tensor:
        return self.noise.clamp(min=self.noise_floor)

    def loss(self, batch: Any, num_rows: int, generator: torch.Generator) -> Tensor:
        """The negative objective per training row, of which there are `num_rows`."""
        raise NotImplementedError

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        raise NotImplementedError

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        return {"loss": self.last_loss, "kl": self.last_kl, "noise": self.noise.sqrt().item()}


Network = TypeVar("Network", bound=NoisyMeanField)


class MeanFieldTraining(Training[Network]):
    """A network of this kind and its optimiser."""

    def __init__(self, model: Network, learning_rate: float, batch_size: int) -> None:
        super().__init__(model)
        self.learning_rate, self.batch_size = learning_rate, batch_size

    def steps(self, data: Any, shares: Iterable[float], plan: Plan, generator: torch.Generator) -> Iterator[Network]:
        optimiser = Optimiser(self.model.parameters, self.learning_rate, plan.schedule)
        for share, batch in zip(shares, data.batches(self.batch_size, generator), strict=False):
            self.share = share
            self.model.last_loss = optimiser.minimise(self.model.loss(batch, len(data), generator), share)
            self.num_steps += 1
            yield self.model


def unit_log_scales(widths: Sequence[int]) -> Tensor:
    """log 1/√fan_in of each weight and 0 of each bias, [P]: with such scales layers keep the scale of their inputs."""
    scales = torch.zeros(sum((fan_in + 1) * fan_out for fan_in, fan_out in weight_shapes(widths)))
    for (weight, _), (fan_in, _) in zip(split_layers(scales, widths), weight_shapes(widths), strict=True):
        weight.fill_(-0.5 * math.log(fan_in))
    return scales


def regularised_kl(mean_q: Tensor, root_q: Tensor, mean_p: Tensor, covariance_p: Tensor, nugget: float) -> Tensor:
    """KL[ N(m_q, ΦΦᵀ + g I) ‖ N(m_p, K + g I) ] in float64, for m [C], Φ [C, P] and K [C, C]; p is a constant."""
    return moment_kl(mean_q, root_q, mean_p, factor(add_to_diagonal(covariance_p.double().clone(), nugget)), nugget)
