"""Tractable function-space variational inference: a KL between functions, by linearising the network.

Rudner, Chen, Teh, Gal: Tractable function-space variational inference in Bayesian neural networks, NeurIPS 2022. Weights
q(w) = N(μ, diag s²) and p(w) = N(μ₀, diag s₀²) are pushed forward to function values at context points C by linearising the
network at their means,

    q(f_C) ≈ N( f(C; μ), J_μ diag(s²) J_μᵀ ),   p(f_C) ≈ N( f(C; μ₀), J_μ₀ diag(s₀²) J_μ₀ᵀ ),

and the objective, maximised in μ, s and the noise variance σ², is

    N/B Σ_n E_q(w)[ log N(y_n | f(x_n; w), σ²) ] − KL[ q(f_C) ‖ p(f_C) ].

The first term is estimated with draws of the network itself, not linearised, and so are predictions. μ₀ is the
network at its start, frozen. s₀ = `prior_scale` in units of 1/√fan_in, and of 1 for biases.

As in the authors' code, C is one fresh set of points per step (the paper takes the largest KL of several sets) and 10⁻⁶ is
added to both diagonals. Deviations: points are uniform in the box of the training inputs; all layers are random (the
released configuration fixes all but the last); tanh. With `stop=validated`, held-out rows choose how far a fit goes and the least
noise of its predictions (`blocks.validated`): long fits follow the rows of small tables too closely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.draws import normal
from fsibench.blocks.jacobians import linearise
from fsibench.blocks.meanfield import MeanFieldTraining, NoisyMeanField, regularised_kl, unit_log_scales
from fsibench.blocks.training import Schedule, require_at_least
from fsibench.blocks.validated import fitted
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

JITTER = 1e-6


@dataclass(frozen=True)
class TFSVI(Method):
    """Mean-field weights with the KL taken between linearised functions at random inputs."""

    name: ClassVar[str] = "tfsvi"
    paper: ClassVar[str] = "Rudner et al., Tractable function-space variational inference, NeurIPS 2022"
    reproduces: ClassVar[str] = "TFSVI"
    search: ClassVar[Space] = {
        "hidden_layers": (1, 2),
        "num_context": (100, 200, 400),
        "num_draws": (5, 10, 20),
        "batch_size": (25, 50, 100, 200),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "prior_scale": Between(0.3, 3.0, log=True),
        "initial_log_scale": Between(-6.0, -1.0),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    hidden_layers: int = 1
    hidden_units: int = 50
    num_context: int = 200  # |C|; with few points long fits interpolate the training rows
    num_draws: int = 10  # draws of the weights per step
    num_test_draws: int = 200
    batch_size: int = 50
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    # How far a fit goes and the least noise of its predictions: found on held-out rows where there are 20 to 2,000; or the whole budget, and as learned.
    stop: Literal["validated", "budget"] = "validated"
    prior_scale: float = 1.0  # s₀
    initial_log_scale: float = -3.0  # of s, in the same units
    initial_log_noise: float = -2.0

    def __post_init__(self) -> None:
        require_at_least(
            1, hidden_layers=self.hidden_layers, hidden_units=self.hidden_units, num_context=self.num_context,
            num_draws=self.num_draws, num_test_draws=self.num_test_draws, batch_size=self.batch_size,
        )  # fmt: skip
        if not self.prior_scale > 0.0:
            raise ValueError(f"prior_scale must be positive, got {self.prior_scale}")

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[FunctionSpaceNetwork]:
        def start() -> MeanFieldTraining[FunctionSpaceNetwork]:
            return MeanFieldTraining(FunctionSpaceNetwork(self, train.x, generator), self.learning_rate, self.batch_size)

        yield from fitted(start, self, train, budget, generator)


class FunctionSpaceNetwork(NoisyMeanField):
    """q(w), the frozen prior, and the noise."""

    def __init__(self, options: TFSVI, x: Tensor, generator: torch.Generator) -> None:
        hidden = (options.hidden_units,) * options.hidden_layers
        super().__init__(x, hidden, options.initial_log_scale, options.initial_log_noise, generator)
        self.options = options
        self.prior_means = self.q.means.detach().clone()  # μ₀
        self.prior_scales = options.prior_scale * unit_log_scales(self.q.widths).exp().to(self.prior_means)  # s₀
        # the same, as those of weights and biases of each layer
        self.layer_scales = [(options.prior_scale / math.sqrt(n), options.prior_scale) for n in self.q.widths[:-1]]

    def loss(self, batch: Data, num_rows: int, generator: torch.Generator) -> Tensor:
        f = self.q.networks(batch.x, self.q.draw_weights(self.options.num_draws, generator))  # [S, B]
        data_term = alpha_energy(batch.y, f, 0.0, self.noise, alpha=0.0).mean()
        kl = self.kl(self.box.draw(self.options.num_context, generator))
        self.last_kl = kl.item()
        return kl / num_rows - data_term

    def kl(self, context: Tensor) -> Tensor:
        """KL[q(f_C) ‖ p(f_C)]"""
        with torch.no_grad():
            prior = linearise(context, self.prior_means, self.q.widths)
            covariance = prior.shared_covariance(self.layer_scales)  # [C, C]
        return regularised_kl(*self.q.moments(context), prior.value, covariance, JITTER)

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.q.networks(x, self.q.draw_weights(num_draws, generator))

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        eps = normal(generator, num_draws, len(self.prior_means), like=x)
        return self.q.networks(x, torch.addcmul(self.prior_means, self.prior_scales, eps))

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, self.options.num_test_draws, generator), self.predicted_noise.sqrt())
