"""Bayes by backprop: mean-field Gaussian variational inference over the weights of a small network.

Blundell, Cornebise, Kavukcuoglu, Wierstra: Weight uncertainty in neural networks, ICML 2015. The model is the one
that the SIP paper compares with under this name: random weights q(w) = Π_j N(m_j, e^{s_j}), trained constant biases,
prior N(0, e^τ I) with a learned τ. `prior=scale_mixture` is Blundell's fixed prior instead.

Objective per observation, with β the KL warm-up:

    −1/B Σ_i 1/S Σₛ log N(y_i | f_s(x_i), v) + β/N KL(q ‖ p)

Each (point, sample) pair has weights of its own, so pre-activations can be drawn directly (local
reparameterisation); predictions use one weight vector per sample at all inputs: coherent functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import diagonal_gaussian_entropy, diagonal_gaussian_kl, mean_alpha_energy
from fsibench.blocks.draws import normal, uniform
from fsibench.blocks.likelihoods import LOG_2PI, noise_variance
from fsibench.blocks.local_draws import local_draws
from fsibench.blocks.networks import num_weights, sampled_network
from fsibench.blocks.training import (
    Optimiser,
    Schedule,
    late_kl,
    leaf,
    progress,
    require_at_least,
    steps_of,
    warm_up,
)
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive


@dataclass(frozen=True)
class BBB(Method):
    """Mean-field Gaussian weights, local reparameterisation, learned prior scale."""

    name: ClassVar[str] = "bbb"
    waivers: ClassVar[Mapping[str, str]] = {
        "comes_near_the_exact_posterior": "with the KL at its published weight the network under-fits 200 rows",
    }
    paper: ClassVar[str] = "Blundell et al., Weight uncertainty in neural networks, ICML 2015"
    reproduces: ClassVar[str] = "BBB"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # as the SIP paper has it, with the epochs of its authors' script: constant rate, ten draws per point; the paper names a warm-up for other methods
        "paper": {
            "epochs": 2000,
            "batch_size": 10, "num_draws": 10, "learning_rate": 1e-4, "schedule": "constant", "warm_up": 0.2,
            "initial_log_variance": -5.0, "initial_log_prior": -5.0, "initial_log_noise": 0.01,
            "num_test_draws": 100,
        },
        "released": {
            "epochs": 2000,
            "batch_size": 10, "num_draws": 10, "learning_rate": 1e-4, "schedule": "constant", "warm_up": 0.1,
            "initial_log_variance": -5.0, "initial_log_prior": -5.0, "initial_log_noise": 0.01,
            "num_test_draws": 100,
        },
    }  # fmt: skip
    search: ClassVar[Space] = {
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "batch_size": (10, 25, 50, 100, 200),
        "num_draws": (1, 2, 4, 8),
        "warm_up": Between(0.0, 0.2),
        "initial_log_variance": Between(-12.0, -3.0),
        "initial_log_prior": Between(-5.0, 0.0),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: Literal["gaussian", "scale_mixture"] = "gaussian"
    hidden_units: int = 50
    num_draws: int = 4  # draws per data point and step
    num_test_draws: int = 200
    batch_size: int = 50
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    epochs: int = 0  # length of the schedule, after which the fit ends; 0 means that of the budget
    warm_up: float = 0.2  # share of the schedule over which the KL's weight rises to 1; beyond a fifth a variant
    initial_log_variance: float = -8.0  # s, of each weight under q
    initial_log_prior: float = -2.0  # τ
    initial_log_noise: float = -2.0  # λ
    # π N(0, σ₁²) + (1 − π) N(0, σ₂²), for prior=scale_mixture only
    mixture_weight: float = 0.5
    mixture_log_scales: tuple[float, float] = (0.0, -6.0)

    def __post_init__(self) -> None:
        require_at_least(
            1, hidden_units=self.hidden_units, num_draws=self.num_draws, num_test_draws=self.num_test_draws,
            batch_size=self.batch_size,
        )  # fmt: skip
        require_at_least(0, epochs=self.epochs)
        if not 0.0 < self.mixture_weight < 1.0:
            raise ValueError(f"mixture_weight lies strictly between 0 and 1, got {self.mixture_weight}")

    def published_column(self) -> str:
        return self.reproduces if self.prior == "gaussian" else ""

    def departure(self) -> str:
        return late_kl(self.warm_up)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[MeanFieldNetwork]:
        model = MeanFieldNetwork(self, train.num_inputs, generator, train.x.dtype)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        schedule = progress(lambda: budget.fraction, steps_of(self.epochs, len(train), self.batch_size))
        for fraction, batch in zip(schedule, train.batches(self.batch_size, generator), strict=False):
            loss = model.loss(batch, len(train), warm_up(fraction, self.warm_up), generator)
            model.last_loss = optimiser.minimise(loss, fraction)
            yield model


class MeanFieldNetwork:
    """q(w) and what it implies: the objective's terms, predictions, draws."""

    def __init__(self, options: BBB, num_inputs: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        self.options = options
        self.widths = (num_inputs, options.hidden_units, options.hidden_units, 1)
        self.last_loss = math.nan
        P = num_weights(self.widths)
        like = torch.empty(0, dtype=dtype, device=generator.device)
        self.means = leaf(0.1 * normal(generator, P, like=like))  # m
        self.log_variances = leaf(options.initial_log_variance + 0.1 * normal(generator, P, like=like))  # s
        self.biases = leaf(0.1 * normal(generator, sum(self.widths[1:]), like=like))
        self.log_noise = leaf(like.new_tensor(options.initial_log_noise))  # λ
        self.log_prior = leaf(like.new_tensor(options.initial_log_prior))  # τ

    @property
    def parameters(self) -> list[Tensor]:
        return [self.means, self.log_variances, self.biases, self.log_noise, self.log_prior]

    def loss(self, batch: Data, num_data: int, beta: float, generator: torch.Generator) -> Tensor:
        f = self.local_draws(batch.x, self.options.num_draws, generator)  # [S, B]
        data_term = mean_alpha_energy(batch.y, f, None, self.log_noise, alpha=0.0)
        return beta / num_data * self.kl(generator) - data_term

    def local_draws(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """f_s(x_i) with fresh weights for every (s, i), by local reparameterisation: [S, N]."""
        return local_draws(x, self.means, self.log_variances, self.biases, self.widths, num_draws, generator)

    def kl(self, generator: torch.Generator) -> Tensor:
        """KL(q ‖ p): closed form for the Gaussian prior, E_q log p estimated from the draws for the scale mixture."""
        if self.options.prior == "gaussian":
            return diagonal_gaussian_kl(self.means, self.log_variances, 0.0, self.log_prior)
        weights = self.draw_weights(self.options.num_draws, generator)  # [S, P]
        log_p = scale_mixture_log_density(weights, self.options.mixture_weight, self.options.mixture_log_scales)
        return -diagonal_gaussian_entropy(self.log_variances) - log_p.sum(-1).mean()

    def draw_weights(self, num_draws: int, generator: torch.Generator) -> Tensor:
        noise = normal(generator, num_draws, self.means.numel(), like=self.means)
        return torch.addcmul(self.means, (0.5 * self.log_variances).exp(), noise)  # [S, P]

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return sampled_network(x, self.draw_weights(num_draws, generator), self.biases, self.widths)

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Networks with weights from the prior and the trained biases."""
        w = normal(generator, num_draws, self.means.numel(), like=x)
        if self.options.prior == "gaussian":
            w *= (0.5 * self.log_prior).exp()
        else:
            wide, narrow = (math.exp(scale) for scale in self.options.mixture_log_scales)
            is_wide = uniform(generator, *w.shape, like=x) < self.options.mixture_weight
            w *= torch.where(is_wide, wide, narrow)
        return sampled_network(x, w, self.biases, self.widths)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        loc = self.draw(x, self.options.num_test_draws, generator)
        return Predictive(loc, noise_variance(self.log_noise).sqrt())

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        explained: dict[str, float | Tensor] = {
            "loss": self.last_loss,
            "noise": noise_variance(self.log_noise).sqrt().item(),
        }
        if self.options.prior == "gaussian":
            explained["prior_scale"] = (0.5 * self.log_prior).exp().item()
            explained["kl"] = diagonal_gaussian_kl(self.means, self.log_variances, 0.0, self.log_prior).item()
        return explained


def scale_mixture_log_density(w: Tensor, weight: float, log_scales: tuple[float, float]) -> Tensor:
    """log( π N(w | 0, σ₁²) + (1 − π) N(w | 0, σ₂²) ), elementwise."""
    (first, second), shares = log_scales, (math.log(weight), math.log1p(-weight))
    squares = -0.5 * w.square()
    return torch.logaddexp(
        squares * math.exp(-2.0 * first) + (shares[0] - first), squares * math.exp(-2.0 * second) + (shares[1] - second)
    ) - 0.5 * LOG_2PI
