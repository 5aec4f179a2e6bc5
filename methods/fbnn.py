"""Functional variational Bayesian neural networks: the KL is between processes, seen at finitely many points.

Sun, Zhang, Shi, Grosse: Functional variational Bayesian neural networks, ICLR 2019. A network with factorised Gaussian
weights is the posterior process q; the prior p is a Gaussian process or anything that can be sampled. Minimised:

    −1/(B S) Σ_ns log N(y_n | f_s(x_n), σ²) + λ β KL[ q(f^M + g ε) ‖ p(f^M + g ε) ],   M = batch ∪ R random points

with β the KL warm-up and injected noise g ε that keeps the KL between finite networks finite. Its gradient needs
scores only,

    ∇KL = E_q[ (∂f/∂φ)ᵀ (∇ log q(f) − ∇ log p(f)) ],

so what is differentiated is the surrogate 1/S Σₛ (s_q − s_p)ᵀ f_s with constant scores; its value means nothing. s_q
comes from the spectral Stein estimator, s_p too for prior=bnn (fitted on prior draws, evaluated at posterior draws);
for prior=gp it is −(K + g² I)⁻¹ f. Each function has one weight vector at all its inputs.

`score=faithful` is the published estimator, which on function values misses most of the score; `whitened` estimates in
decorrelated coordinates. `kl_weight=batch` is λ = 1/B as in the authors' code, `data` is λ = 1/N, the evidence bound.
The default is whitened with 1/B at B = 50: with 1/N the noise is under-estimated the longer it trains.
`preset=released` and `preset=seed` are the published forms.
The GP prior is fitted by type-II maximum likelihood before the first step, on the clock. The network prior is fixed:
no gradient reaches it. Random points come from the range of the training inputs (the authors' script also looks at
test inputs). Deviation: biases are trained constants, as in the other networks here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.kernels import GaussianProcess, fitted_process
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.networks import kept_scale, num_weights, sampled_network, weight_shapes
from fsibench.blocks.priors import BNNPrior
from fsibench.blocks.stein import spectral_score, whitened_score
from fsibench.blocks.training import Optimiser, Schedule, leaf, warm_up
from fsibench.contract import Budget, Data, Method
from fsibench.predictive import Predictive

CHUNK_ROWS = 200


@dataclass(frozen=True)
class FBNN(Method):
    """Functional variational BNN; the functional KL by spectral Stein scores at random measurement points."""

    name: ClassVar[str] = "fbnn"
    paper: ClassVar[str] = "Sun et al., Functional variational Bayesian neural networks, ICLR 2019"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the authors' script for small UCI sets
        "released": {
            "prior": "gp", "score": "faithful", "kl_weight": "batch", "num_functions": 100, "num_test_functions": 100,
            "batch_size": 20, "num_random": 5, "injected_noise": 0.01, "learning_rate": 1e-3, "schedule": "constant",
            "warm_up": 0.0, "initial_log_scale": -2.0, "initial_log_noise": -1.4, "hidden_layers": 1,
        },
        # the SIP paper's fBNN_BNN, with the noise learned (its script fixes it to the variance of raw targets)
        "seed": {
            "prior": "bnn", "score": "faithful", "kl_weight": "batch", "num_functions": 100, "num_test_functions": 500,
            "batch_size": 10, "num_random": 5, "injected_noise": 0.01, "learning_rate": 1e-3, "schedule": "constant",
            "warm_up": 0.2, "initial_log_scale": -5.0, "prior_log_scale": -5.0, "hidden_layers": 2,
        },
    }  # fmt: skip

    prior: Literal["bnn", "gp"] = "bnn"
    score: Literal["faithful", "whitened"] = "whitened"
    kl_weight: Literal["batch", "data"] = "batch"
    explained: float = 0.99  # share of the spectrum that the faithful estimator keeps; the whitened one keeps 0.95
    num_functions: int = 100
    num_test_functions: int = 200
    batch_size: int = 50
    num_random: int = 5
    random_points: Literal["uniform", "perturbed"] = "uniform"  # in the box of the data, or rows moved a little
    injected_noise: float = 0.01  # g
    hidden_units: int = 50
    hidden_layers: int = 2
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    warm_up: float = 0.2
    initial_log_scale: float = -3.0  # of the weights' standard deviations under q
    initial_log_noise: float = -2.0
    # None: prior weights of scale 1/√fan_in up to a constant; a number: the mean of random log scales with sd 2
    prior_log_scale: float | None = None
    gp_rows: int = 1000  # at most so many rows fit the GP prior

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[FunctionalNetwork]:
        prior = self.make_prior(train, budget, generator)
        model = FunctionalNetwork(self, train, prior, generator)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        for batch in train.batches(self.batch_size, generator):
            fraction = budget.fraction
            loss = model.loss(batch, warm_up(fraction, self.warm_up), generator)
            model.last_loss = optimiser.minimise(loss, fraction)
            yield model

    def make_prior(self, train: Data, budget: Budget, generator: torch.Generator) -> BNNPrior | GaussianProcess:
        if self.prior == "gp":
            rows = torch.randperm(len(train), generator=generator, device=train.x.device)[: self.gp_rows]
            return fitted_process(train.x[rows], train.y[rows], stop=lambda: budget.fraction > 1.0 / 3.0)
        log_scale = None if self.prior_log_scale is None else (self.prior_log_scale, 2.0)
        hidden = (self.hidden_units,) * self.hidden_layers
        mean_scale = 0.0 if log_scale is None else 0.05
        return BNNPrior(train.num_inputs, generator, hidden, mean_scale, log_scale, dtype=train.x.dtype)


class FunctionalNetwork:
    """The posterior process: a network with independent Gaussian weights, and the surrogate of its KL to the prior."""

    def __init__(
        self, options: FBNN, train: Data, prior: BNNPrior | GaussianProcess, generator: torch.Generator
    ) -> None:
        self.options, self.train, self.prior, self.last_loss = options, train, prior, math.nan
        self.widths = (train.num_inputs, *([options.hidden_units] * options.hidden_layers), 1)
        self.low, self.high = train.x.amin(0), train.x.amax(0)
        x = train.x
        scales = torch.cat([
            x.new_full((fan_in * fan_out,), kept_scale(fan_in)) for fan_in, fan_out in weight_shapes(self.widths)
        ])
        normal = torch.randn(num_weights(self.widths), generator=generator, dtype=x.dtype, device=x.device)
        self.means = leaf(scales * normal)
        self.log_scales = leaf(torch.full_like(self.means, options.initial_log_scale))
        self.biases = leaf(x.new_zeros(sum(self.widths[1:])))
        self.log_noise = leaf(x.new_full((1,), options.initial_log_noise))

    @property
    def parameters(self) -> list[Tensor]:
        return [self.means, self.log_scales, self.biases, self.log_noise]

    def loss(self, batch: Data, beta: float, generator: torch.Generator) -> Tensor:
        points = torch.cat([batch.x, self.random_points(generator)])  # M
        f = self.functions(points, self.options.num_functions, generator)  # [S, |M|]
        data_term = alpha_energy(batch.y, f[:, : len(batch)], 0.0, noise_variance(self.log_noise), alpha=0.0).mean()
        weight = 1.0 / (len(batch) if self.options.kl_weight == "batch" else len(self.train))
        return weight * beta * self.kl_surrogate(f, points, generator) - data_term

    def kl_surrogate(self, f: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        """1/S Σₛ (s_q(f_s) − s_p(f_s))ᵀ f_s, scores held constant: its gradient is that of the KL."""
        noisy = self.with_noise(f.detach(), generator)
        difference = self.posterior_score(noisy) - self.prior_score(noisy, points, generator)
        return (difference.to(f.dtype) * f).sum(1).mean()

    def posterior_score(self, f: Tensor) -> Tensor:
        """∇ log q at draws of q."""
        if self.options.score == "whitened":
            return whitened_score(f)
        return spectral_score(f, explained=self.options.explained)

    def prior_score(self, f: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        """∇ log p at draws of q."""
        if isinstance(self.prior, GaussianProcess):
            return self.prior.score(f, points, self.options.injected_noise**2)
        with torch.no_grad():
            draws = self.with_noise(self.prior.draw(points, self.options.num_functions, generator), generator)
        if self.options.score == "whitened":
            return whitened_score(draws, f)
        return spectral_score(draws, f, self.options.explained)

    def with_noise(self, f: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(f.shape, generator=generator, dtype=f.dtype, device=f.device)
        return f + self.options.injected_noise * noise

    def random_points(self, generator: torch.Generator) -> Tensor:
        """Measurement points besides the batch, within the range of the training inputs: [R, D]."""
        shape = (self.options.num_random, self.train.num_inputs)
        x = self.train.x
        if self.options.random_points == "uniform":
            share = torch.rand(shape, generator=generator, dtype=x.dtype, device=x.device)
            return self.low + (self.high - self.low) * share
        rows = torch.randint(len(self.train), shape[:1], generator=generator, device=x.device)
        moved = x[rows] + 0.5 * torch.randn(shape, generator=generator, dtype=x.dtype, device=x.device)
        return torch.clamp(moved, self.low, self.high)

    def draw_weights(self, num_draws: int, generator: torch.Generator) -> Tensor:
        shape = (num_draws, self.means.numel())
        noise = torch.randn(shape, generator=generator, dtype=self.means.dtype, device=self.means.device)
        return torch.addcmul(self.means, self.log_scales.exp(), noise)  # [S, P]

    def functions(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Draws of q at x, one weight vector for each: [S, N]."""
        return sampled_network(x, self.draw_weights(num_draws, generator), self.biases, self.widths)

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        weights = self.draw_weights(num_draws, generator)
        return torch.cat([sampled_network(rows, weights, self.biases, self.widths) for rows in x.split(CHUNK_ROWS)], 1)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        loc = self.draw(x, self.options.num_test_functions, generator)
        return Predictive(loc, noise_variance(self.log_noise).sqrt())

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        if isinstance(self.prior, GaussianProcess):
            return self.prior.draw(x, num_draws, generator).to(x.dtype)
        noise = self.prior.draw_noise(num_draws, generator)
        return torch.cat([self.prior.functions(rows, noise) for rows in x.split(CHUNK_ROWS)], 1)

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        noise = noise_variance(self.log_noise).sqrt().item()
        return {"loss": self.last_loss, "noise": noise, "weight_scale": self.log_scales.exp().mean().item()}
