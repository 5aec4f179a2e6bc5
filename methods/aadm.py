"""Adversarial alpha-divergence minimisation, and adversarial variational Bayes as its limit alpha = 0.

Rodríguez-Santana, Hernández-Lobato: Adversarial α-divergence minimization for Bayesian approximate inference,
Neurocomputing 2022; Mescheder, Nowozin, Geiger: Adversarial variational Bayes, ICML 2017.

q_φ(w) over the weights of a small network is a network fed with noise. Its divergence from the prior N(0, e^τ I) is
found by adaptive contrast: with m, s² the coordinate-wise moments of the draws and w̃ = (w − m)/s,

    log q(w)/p(w) = T(w̃) + log N(w | m, s²) − log N(w | 0, e^τ),

where the discriminator T separates w̃ from standard normal vectors; the expectation of the two Gaussians has a closed form. Minimised, per observation:

    −1/B Σ_i ℓ_α(y_i) + β/N E_q[ log q(w)/p(w) ]

with ℓ_α the alpha-energy, and E_q log N(y | f(x; w), v) at alpha = 0. β rises over the `warm_up`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.adversarial import Discriminator, Moments, adaptive_contrast
from fsibench.blocks.divergences import mean_alpha_energy
from fsibench.blocks.draws import PREDICTION_ROWS, by_rows, normal
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.mlp import NoiseSampler
from fsibench.blocks.networks import num_weights, sampled_network, scaled_weights
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

RELEASED: Mapping[str, Any] = {
    "num_draws": 10, "weights": "per_point", "num_test_draws": 100, "batch_size": 10, "learning_rate": 1e-4,
    "sampler_learning_rate": 1e-4, "discriminator_learning_rate": 1e-3, "schedule": "constant", "warm_up": 0.1, "initialisation": "released",
    "initial_log_noise": 0.01, "initial_log_prior": -5.0, "discriminator_draws": "fresh", "epochs": 2000,
}  # fmt: skip


@dataclass(frozen=True)
class AADM(Method):
    """Implicit posterior over weights, adaptive contrast, alpha-energy."""

    name: ClassVar[str] = "aadm"
    paper: ClassVar[str] = (
        "Rodríguez-Santana and Hernández-Lobato, Adversarial α-divergence minimization for Bayesian approximate "
        "inference, Neurocomputing 2022"
    )
    reproduces: ClassVar[str] = "AADM"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the SIP paper's comparison: warm-up over a fifth of the training; it does not say which draws train T, nor
        # for how long, so the epochs are the script's
        "paper": {**RELEASED, "warm_up": 0.2, "discriminator_draws": "previous"},
        "released": RELEASED,
    }
    search: ClassVar[Space] = {
        "learning_rate": Between(5e-4, 2e-2, log=True),
        "sampler_learning_rate": Between(1e-4, 5e-3, log=True),
        "discriminator_learning_rate": Between(3e-4, 1e-2, log=True),
        "batch_size": (25, 50, 100, 200),
        "num_draws": (8, 16, 32, 64),
        "warm_up": Between(0.0, 0.2),
        "initial_spread": Between(0.005, 0.5, log=True),
        "initial_log_prior": Between(-5.0, 0.0),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    alpha: float = 0.5  # 0 is adversarial variational Bayes
    hidden_units: int = 50
    num_draws: int = 16  # weight vectors per data point, or per step when shared
    weights: Literal["per_point", "shared"] = "shared"
    num_test_draws: int = 200
    batch_size: int = 100
    learning_rate: float = 3e-3  # of biases, noise and prior
    # of q's network: a weight that it draws sums 50 units, so a step of Adam moves it 50 times as far as its own rate says
    sampler_learning_rate: float = 3e-4
    discriminator_learning_rate: float = 3e-3  # constant: T has to keep up with q to the end
    schedule: Schedule = "cosine"
    epochs: int = 0  # length of the schedule, after which the fit ends; 0 means that of the budget
    warm_up: float = 0.2  # share of the schedule over which the KL's weight rises to 1
    # The discriminator learns from the draws of the step before (independent of those it then judges, and free), or from
    # fresh ones (as released).
    discriminator_draws: Literal["previous", "fresh"] = "previous"
    initialisation: Literal["scaled", "released"] = "scaled"
    initial_spread: float = 0.02  # of the draws around their start, relative to the scale of their layer (scaled only)
    initial_log_noise: float = -2.0  # λ
    initial_log_prior: float = -3.0  # τ

    def __post_init__(self) -> None:
        require_at_least(
            1, hidden_units=self.hidden_units, num_draws=self.num_draws, num_test_draws=self.num_test_draws,
            batch_size=self.batch_size,
        )  # fmt: skip
        require_at_least(0, epochs=self.epochs)
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha is a number from 0 to 1, got {self.alpha}")

    def published_column(self) -> str:
        return self.reproduces if self.alpha == type(self).alpha else ""

    def departure(self) -> str:
        return late_kl(self.warm_up)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[ImplicitWeights]:
        model = ImplicitWeights(self, train.num_inputs, generator, train.x.dtype)
        discriminator = make_discriminator(self, model.num_weights, generator, train.x.dtype)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        of_sampler = Optimiser(model.sampler.parameters, self.sampler_learning_rate, self.schedule)
        schedule = progress(lambda: budget.fraction, steps_of(self.epochs, len(train), self.batch_size))
        for fraction, batch in zip(schedule, train.batches(self.batch_size, generator), strict=False):
            w = model.sampler(model.num_draws(len(batch)), generator)  # [B S or S, P]
            if self.discriminator_draws == "fresh":
                fresh = Moments(model.draw_weights(len(batch), generator)).standardised
                cross_entropy = discriminator.improve_on_gaussian(fresh, fraction, generator)
            contrast = adaptive_contrast(w, model.log_prior, discriminator)
            loss = warm_up(fraction, self.warm_up) / len(train) * contrast.kl - model.data_term(batch, w)
            value = optimiser.minimise(loss, fraction)
            of_sampler.step(fraction)
            if self.discriminator_draws == "previous":  # only now, for the next step
                cross_entropy = discriminator.improve_on_gaussian(
                    contrast.standardised, fraction, generator, contrast.hidden
                )
            model.last = {"loss": value, "kl": contrast.kl.detach(), "discriminator_loss": cross_entropy}
            yield model


@dataclass(frozen=True)
class AVB(AADM):
    """The same implementation at alpha = 0: the data term is the expected log-likelihood."""

    name: ClassVar[str] = "avb"
    paper: ClassVar[str] = "Mescheder et al., Adversarial variational Bayes, ICML 2017"
    reproduces: ClassVar[str] = "AVB"

    alpha: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha != 0.0:
            raise ValueError(f"avb is aadm at alpha = 0; for alpha = {self.alpha} ask for aadm[alpha={self.alpha}]")


class ImplicitWeights:
    """q_φ(w) and what it implies: the objective's terms, predictions, draws."""

    def __init__(self, options: AADM, num_inputs: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        self.options = options
        self.widths = (num_inputs, options.hidden_units, options.hidden_units, 1)
        self.num_weights = num_weights(self.widths)
        self.sampler = make_sampler(options, self.widths, generator, dtype)
        biases = normal(generator, sum(self.widths[1:]), like=self.sampler.network.flat.detach())
        self.biases = leaf(0.1 * biases)
        self.log_noise = leaf(biases.new_tensor(options.initial_log_noise))  # λ
        self.log_prior = leaf(biases.new_tensor(options.initial_log_prior))  # τ
        self.last: dict[str, float | Tensor] = {}

    @property
    def parameters(self) -> list[Tensor]:
        """All but the sampler's, which learn at a rate of their own."""
        return [self.biases, self.log_noise, self.log_prior]

    def num_draws(self, num_points: int) -> int:
        return self.options.num_draws * (num_points if self.options.weights == "per_point" else 1)

    @torch.no_grad()
    def draw_weights(self, num_points: int, generator: torch.Generator) -> Tensor:
        """As many as a step draws, without gradients."""
        return self.sampler(self.num_draws(num_points), generator)

    def data_term(self, batch: Data, w: Tensor) -> Tensor:
        """Mean alpha-energy of the batch."""
        f = self.outputs(batch.x, w)  # [S, B]
        return mean_alpha_energy(batch.y, f, None, self.log_noise, self.options.alpha)

    def outputs(self, x: Tensor, w: Tensor) -> Tensor:
        """f(x_i; w): all vectors at all points, or S vectors of its own for each point: [S, B]."""
        if self.options.weights == "shared":
            return sampled_network(x, w, self.biases, self.widths)
        own_inputs = x.repeat_interleave(self.options.num_draws, 0).unsqueeze(1)  # [B S, 1, D]
        return sampled_network(own_inputs, w, self.biases, self.widths).view(len(x), -1).mT

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self._functions(x, self.sampler(num_draws, generator))

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Networks with weights from N(0, e^τ) and the trained biases."""
        w = (0.5 * self.log_prior).exp() * normal(generator, num_draws, self.num_weights, like=x)
        return self._functions(x, w)

    def _functions(self, x: Tensor, w: Tensor) -> Tensor:
        return by_rows(lambda rows: sampled_network(rows, w, self.biases, self.widths), x, PREDICTION_ROWS)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        loc = self.draw(x, self.options.num_test_draws, generator)
        return Predictive(loc, noise_variance(self.log_noise).sqrt())

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        numbers: dict[str, float | Tensor] = {name: float(value) for name, value in self.last.items()}
        numbers["noise"] = noise_variance(self.log_noise).sqrt().item()
        numbers["prior_scale"] = (0.5 * self.log_prior).exp().item()
        return numbers


def make_sampler(
    options: AADM, widths: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
) -> NoiseSampler:
    """q_φ(w). Scaled start: draws spread a little around weights that suit their layers."""
    P = num_weights(widths)
    if options.initialisation == "released":
        return NoiseSampler(P, generator, dtype=dtype)
    sampler = NoiseSampler(P, generator, weight_scale=None, mean_scale=0.0, log_variance=(0.0, 0.0), dtype=dtype)
    hidden = sampler.network.widths[-2]
    with torch.no_grad():
        sampler.network.flat[-P * (hidden + 1) : -P] *= options.initial_spread
        sampler.network.flat[-P:] = scaled_weights(widths, generator, dtype)
    return sampler


def make_discriminator(
    options: AADM, num_inputs: int, generator: torch.Generator, dtype: torch.dtype
) -> Discriminator:
    scale = 0.1 if options.initialisation == "released" else None
    rate = options.discriminator_learning_rate
    return Discriminator(
        num_inputs, generator, rate, weight_scale=scale, bias_scale=0.1, dtype=dtype
    )
