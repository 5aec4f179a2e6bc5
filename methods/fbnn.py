"""Functional variational Bayesian neural networks: the KL is between processes, seen at finitely many points.

Sun, Zhang, Shi, Grosse: Functional variational Bayesian neural networks, ICLR 2019. A network with factorised Gaussian
weights is the posterior process q; the prior p is a Gaussian process or anything that can be sampled. Minimised:

    −1/(B S) Σ_ns log N(y_n | f_s(x_n), σ²) + λ β KL[ q(f^M + g ε) ‖ p(f^M + g ε) ],   M = batch ∪ R random points

with β the KL warm-up and injected noise g ε that keeps the KL between finite networks finite. Its gradient needs
scores only,

    ∇KL = E_q[ (∂f/∂φ)ᵀ (∇ log q(f) − ∇ log p(f)) ],

and `score` says what they are:

- `faithful`, the published spectral Stein estimator, for s_p fitted on prior draws and evaluated at posterior draws. What
  is differentiated is the surrogate 1/S Σₛ (s_q − s_p)ᵀ f_s with constant scores; its value means nothing. On function
  values the estimator misses most of the score.
- `whitened`, the same in decorrelated coordinates. The covariance of a hundred draws has to be shrunk, the KL with it.
- `gaussian`, the default: q and p as Gaussians with the moments of their networks, which draws of the hidden layers give
  without error of the output layer (`blocks.networks.process_features`). KL and data term are then closed forms;
  what is not Gaussian in q and p is ignored.

For prior=gp, s_p and the moments of p are exact. Each function has one weight vector at all its inputs.

λ is 1/N with `kl_weight=data`, 1/B with `batch` as in the authors' code. The KL at a batch is less than that of the
process: with 1/N and 100 points the noise is under-estimated the longer it trains, with 200 hardly.
`preset=released` and `preset=seed` are the published forms.
Before the first step, on the clock, type-II maximum likelihood fits the GP prior, and of the network prior the one scale
of all weights (`prior_scale` gives it instead); no gradient reaches either later. Random points come from the range of
the training inputs (the authors' script also looks at test inputs). Deviation: biases are trained constants, as in the
other networks here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.gaussian import factor, gaussian_kl
from fsibench.blocks.kernels import GaussianProcess, fitted_process
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.linalg import gram
from fsibench.blocks.networks import kept_scale, num_weights, process_features, sampled_network, weight_shapes
from fsibench.blocks.priors import BNNPrior
from fsibench.blocks.stein import spectral_score, whitened_score
from fsibench.blocks.training import Optimiser, Schedule, leaf, require_at_least, warm_up
from fsibench.contract import Budget, Data, Method
from fsibench.errors import UsageError
from fsibench.predictive import Predictive

CHUNK_ROWS = 200


@dataclass(frozen=True)
class FBNN(Method):
    """Functional variational BNN; the KL between processes at measurement points, by moments or spectral Stein scores."""

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
    score: Literal["gaussian", "whitened", "faithful"] = "gaussian"
    kl_weight: Literal["batch", "data"] = "data"
    explained: float = 0.99  # share of the spectrum that the faithful estimator keeps; the whitened one keeps 0.95
    num_functions: int = 100  # draws that scores are estimated from
    num_networks: int = 50  # draws of the hidden layers, with score=gaussian
    num_test_functions: int = 200
    batch_size: int = 200
    num_random: int = 5
    random_points: Literal["uniform", "perturbed"] = "uniform"  # in the box of the data, or rows moved a little
    injected_noise: float = 0.01  # g
    hidden_units: int = 50
    hidden_layers: int = 2
    learning_rate: float = 1.5e-2
    schedule: Schedule = "cosine"
    warm_up: float = 0.2
    initial_log_scale: float = -3.0  # of the weights' standard deviations under q
    initial_log_noise: float = -2.0
    # With prior=bnn, of its weights: in units that keep the size of activations; None: the one of highest evidence
    prior_scale: float | None = None
    prior_bias_scale: float = 1.0  # of its biases, which are constants drawn once
    prior_log_scale: float | None = None  # instead of it, the mean of random log scales with sd 2
    prior_rows: int = 500  # at most so many rows choose the scale of the network prior
    gp_rows: int = 1000  # and fit the GP prior

    def __post_init__(self) -> None:
        require_at_least(2, num_functions=self.num_functions, num_networks=self.num_networks)
        if self.prior_scale is not None and self.prior_scale <= 0.0:
            raise UsageError(f"prior_scale multiplies standard deviations, it must be above 0, got {self.prior_scale}.")
        if self.prior_scale is not None and self.prior_log_scale is not None:
            raise UsageError("prior_scale and prior_log_scale both set the scales of the prior's weights: give one.")

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
        hidden = (self.hidden_units,) * self.hidden_layers
        if self.prior_log_scale is not None:
            log_scale = (self.prior_log_scale, 2.0)
            return BNNPrior(train.num_inputs, generator, hidden, log_scale=log_scale, dtype=train.x.dtype)
        prior = BNNPrior(train.num_inputs, generator, hidden, 0.0, None, self.prior_bias_scale, train.x.dtype)
        if self.prior_scale is None:
            prior.fit_scale(train.x, train.y, generator, self.prior_rows)
            return prior
        with torch.no_grad():
            prior.log_scales += math.log(self.prior_scale)
        return prior


class FunctionalNetwork:
    """The posterior process: a network with independent Gaussian weights, and the surrogate of its KL to the prior."""

    def __init__(
        self, options: FBNN, train: Data, prior: BNNPrior | GaussianProcess, generator: torch.Generator
    ) -> None:
        self.options, self.train, self.prior = options, train, prior
        self.last_loss, self.last_kl = math.nan, math.nan
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
        terms = self.gaussian_terms if self.options.score == "gaussian" else self.sampled_terms
        data_term, kl = terms(batch, points, generator)
        weight = 1.0 / (len(batch) if self.options.kl_weight == "batch" else len(self.train))  # λ
        return weight * beta * kl - data_term

    def sampled_terms(self, batch: Data, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean log-likelihood of draws, and the KL's surrogate."""
        f = self.functions(points, self.options.num_functions, generator)  # [S, |M|]
        data_term = alpha_energy(batch.y, f[:, : len(batch)], 0.0, noise_variance(self.log_noise), alpha=0.0).mean()
        return data_term, self.kl_surrogate(f, points, generator)

    def gaussian_terms(self, batch: Data, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean expected log-likelihood and KL[N(m_q, K_q + g² I) ‖ N(m_p, K_p + g² I)]."""
        B, noise = len(batch), self.draw_noise(self.options.num_networks, generator)
        mean, features = process_features(points, self.means, self.log_scales, self.biases, self.widths, noise)
        variance = features[:B].square().sum(1)
        data_term = alpha_energy(batch.y, mean[None, :B], variance, noise_variance(self.log_noise), alpha=0.0).mean()
        kl = gaussian_kl(mean.double(), self.blurred_factor(features), *self.prior_moments(points, generator))
        self.last_kl = kl.item()
        return data_term, kl

    @torch.no_grad()
    def prior_moments(self, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean of p and the Cholesky factor of its covariance with g² I added, in float64."""
        if isinstance(self.prior, GaussianProcess):
            L = self.prior.factor(points, self.options.injected_noise**2)
            return torch.zeros_like(L[0]), L
        mean, features = self.prior.moments(points, self.prior.draw_noise(self.options.num_networks, generator))
        return mean.double(), self.blurred_factor(features)

    def blurred_factor(self, features: Tensor) -> Tensor:
        """Cholesky factor of ΦΦᵀ + g² I, in float64: g² is small beside ΦΦᵀ."""
        K = gram(features)
        return factor(K + self.options.injected_noise**2 * torch.eye(len(K), dtype=K.dtype, device=K.device))

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

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        shape = (num_draws, self.means.numel())
        return torch.randn(shape, generator=generator, dtype=self.means.dtype, device=self.means.device)

    def draw_weights(self, num_draws: int, generator: torch.Generator) -> Tensor:
        return torch.addcmul(self.means, self.log_scales.exp(), self.draw_noise(num_draws, generator))  # [S, P]

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
        kl = {"kl": self.last_kl} if self.options.score == "gaussian" else {}  # the surrogate's value means nothing
        return {"loss": self.last_loss, "noise": noise, **kl, "weight_scale": self.log_scales.exp().mean().item()}
