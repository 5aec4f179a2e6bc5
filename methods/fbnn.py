"""Functional variational Bayesian neural networks: the KL is between processes, seen at finitely many points.

Sun, Zhang, Shi, Grosse: Functional variational Bayesian neural networks, ICLR 2019. A network with factorised Gaussian
weights is the posterior process q; the prior p is a Gaussian process or anything that can be sampled. Minimised:

    −1/(B S) Σ_ns log N(y_n | f_s(x_n), σ²) + λ β KL[ q(f^M + g ε) ‖ p(f^M + g ε) ],   M = batch ∪ R random points

with β the KL warm-up and injected noise g ε that keeps the KL between finite networks finite. Its gradient needs
scores only,

    ∇KL = E_q[ (∂f/∂φ)ᵀ (∇ log q(f) − ∇ log p(f)) ],

which the spectral Stein estimator finds from draws (`blocks.stein`): s_q at its own draws, s_p fitted on draws of the prior and
evaluated at draws of q. What is differentiated is the surrogate 1/S Σₛ (s_q − s_p)ᵀ f_s with constant scores
(`kl_surrogate`); its value means nothing. For prior=gp, s_p is exact. Each function has one weight vector at all inputs.

λ is a hyper-parameter of the paper. As in its code and in that of the SIP paper it is 1/B (`kl_weight=batch`), with batches of 20 rows, or 500 of a
large table; the evidence bound, and the SIP paper as printed, have 1/N (`kl_weight=data`). On function values, whose coordinates are strongly correlated, the estimator
misses most of the score, and with 1/N what is left does not hold long fits: they interpolate the training rows
(docs/tuning.md). `score=whitened` estimates in decorrelated coordinates. The first steps (`start_steps`) have no KL and
are cheap, data term alone: scores take most of a step, and what small budgets lack is steps.

Before the first step, on the clock, evidence fits the GP prior, and of a network prior the one scale of all weights
(`prior_scale` gives it instead); no gradient reaches either later. Random points come from the range of the training
inputs (the authors' scripts also look at test inputs, and for large tables widen that range by half on each side). Deviation: biases are
trained constants, activations leaky ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.draws import normal
from fsibench.blocks.functional_network import FunctionalNetwork, process_prior
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.priors import GaussianProcessPrior, Prior, make_prior, prior_class
from fsibench.blocks.stein import spectral_score, whitened_score
from fsibench.blocks.training import Optimiser, Schedule, late_kl, require_at_least, warm_up
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.errors import UsageError

# Draws per step while the KL has no weight.
START_DRAWS = 5
# Batches of the authors' scripts for small and for large tables.
SMALL_BATCH, LARGE_BATCH = 20, 500
LARGE_ROWS = 2_000


@dataclass(frozen=True)
class FBNN(Method):
    """Functional variational BNN; the KL between processes at measurement points, by spectral Stein scores."""

    name: ClassVar[str] = "fbnn"
    paper: ClassVar[str] = "Sun et al., Functional variational Bayesian neural networks, ICLR 2019"
    reproduces: ClassVar[str] = "fBNN_BNN"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the authors' script for small UCI sets
        "released": {
            "prior": "gp", "kl_weight": "batch", "num_draws": 100, "num_test_draws": 100, "batch_size": 20,
            "num_random": 5, "injected_noise": 0.01, "learning_rate": 1e-3, "schedule": "constant", "warm_up": 0.0,
            "initial_log_scale": -2.0, "initial_log_noise": -1.4, "smallest_noise": 0.05, "hidden_layers": 1,
            "max_epochs": 2000,
        },
        # the SIP paper's fBNN_BNN, with the noise learned (its script fixes it to the variance of raw targets)
        "sip_paper": {
            "prior": "bnn", "kl_weight": "batch", "num_draws": 100, "num_test_draws": 500, "batch_size": 10,
            "num_random": 5, "injected_noise": 0.01, "learning_rate": 1e-3, "schedule": "constant", "warm_up": 0.2, "start_steps": 0,
            "initial_log_scale": -5.0, "prior_log_scale": -5.0, "hidden_layers": 2, "max_epochs": 2000, "initial_log_noise": -2.0,
        },
    }  # fmt: skip
    search: ClassVar[Space] = {
        "num_draws": (50, 100, 200),
        "batch_size": (None, 10, 20, 50, 100),
        "num_random": (1, 5, 20),
        "injected_noise": Between(0.001, 0.1, log=True),
        "hidden_layers": (1, 2),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "warm_up": Between(0.0, 0.2),
        "initial_log_scale": Between(-6.0, -1.0),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: str = "bnn"  # any name of `blocks.priors`
    score: Literal["spectral", "whitened"] = "spectral"
    kl_weight: Literal["data", "batch"] = "batch"  # λ: 1/N, or 1/B as in the authors' code
    num_draws: int = 100  # S, that scores are estimated from
    num_test_draws: int = 200
    batch_size: int | None = None  # B; None: 20, or 500 from 2,000 rows on, as in the authors' two scripts
    num_random: int = 5  # R
    injected_noise: float = 0.01  # g
    hidden_units: int = 50
    hidden_layers: int = 2
    learning_rate: float = 5e-3
    schedule: Schedule = "cosine"
    warm_up: float = 0.2  # share of the budget after which the KL has its full weight
    start_steps: int = 500  # without any KL, few draws and no scores: cheap; at most for half of the warm-up
    max_epochs: int | None = None  # None: until the budget ends
    initial_log_scale: float = -3.0  # of the weights' standard deviations under q
    initial_log_noise: float = -2.0
    smallest_noise: float = 0.0  # floor of σ; with prior=gp also that of the fitted process, if this is not 0
    # With prior=bnn, of its weights: in units that keep the size of activations; None: the one of highest evidence
    prior_scale: float | None = None
    prior_log_scale: float | None = None  # instead of it, the mean of random log scales with sd 2

    def __post_init__(self) -> None:
        prior_class(self.prior)
        require_at_least(2, num_draws=self.num_draws)
        require_at_least(0, start_steps=self.start_steps)
        if self.prior_scale is not None and self.prior_scale <= 0.0:
            raise UsageError(f"prior_scale multiplies standard deviations, it must be above 0, got {self.prior_scale}.")
        if self.prior_scale is not None and self.prior_log_scale is not None:
            raise UsageError("prior_scale and prior_log_scale both set the scales of the prior's weights: give one.")

    def departure(self) -> str:
        whitened = "scores are estimated in decorrelated coordinates" if self.score == "whitened" else ""
        return "; ".join(filter(None, [whitened, late_kl(self.warm_up)]))

    def published_column(self) -> str:
        return self.reproduces if self.prior == "bnn" else ""

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[SteinNetwork]:
        model = SteinNetwork(self, train, self.make_prior(train, budget, generator), generator)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        per_epoch = math.ceil(len(train) / model.batch_size)
        for step, batch in enumerate(train.batches(model.batch_size, generator)):
            fraction = budget.fraction
            if self.max_epochs is not None:
                if step == self.max_epochs * per_epoch:
                    return
                fraction = max(fraction, step / (self.max_epochs * per_epoch))
            if step < self.start_steps and fraction < 0.5 * self.warm_up:
                loss = -model.data_term(batch, generator)
            else:
                loss = model.loss(batch, warm_up(fraction, self.warm_up), generator)
            model.last = {"loss": optimiser.minimise(loss, fraction)}
            model.keep_noise_above_its_floor()
            yield model

    def make_prior(self, train: Data, budget: Budget, generator: torch.Generator) -> Prior:
        hidden = (self.hidden_units,) * self.hidden_layers
        if self.prior_log_scale is not None:
            return make_prior(self.prior, train.x, generator, hidden=hidden, log_scale=(self.prior_log_scale, 2.0))
        return process_prior(
            self.prior, train.x, train.y, generator, hidden, self.prior_scale, lambda: budget.fraction > 1.0 / 3.0
        )  # fmt: skip


class SteinNetwork(FunctionalNetwork):
    """q and the surrogate of its KL to the prior."""

    def __init__(self, options: FBNN, train: Data, prior: Prior, generator: torch.Generator) -> None:
        hidden = (options.hidden_units,) * options.hidden_layers
        super().__init__(
            train.x, prior, generator, hidden, options.initial_log_scale, options.initial_log_noise,
            options.num_test_draws,
        )  # fmt: skip
        self.options, self.num_data = options, len(train)
        self.batch_size = min(options.batch_size or (SMALL_BATCH if len(train) < LARGE_ROWS else LARGE_BATCH), len(train))  # B

    def loss(self, batch: Data, beta: float, generator: torch.Generator) -> Tensor:
        """−E_q log p(y | f) per row + λ β KL, with the gradient of the KL."""
        points = torch.cat([batch.x, self.box.draw(self.options.num_random, generator)])  # M
        f = self.q.functions(points, self.q.draw_noise(self.options.num_draws, generator))  # [S, |M|]
        data_term = self.expected_fit(batch.y, f[:, : len(batch)])
        # The authors' scripts drop the short last batch of an epoch; here it has the λ of the others.
        weight = 1.0 / (self.batch_size if self.options.kl_weight == "batch" else self.num_data)  # λ
        return weight * beta * self.kl_surrogate(f, points, generator) - data_term

    def data_term(self, batch: Data, generator: torch.Generator) -> Tensor:
        """E_q log p(y | f) per row from `START_DRAWS` draws."""
        return self.expected_fit(batch.y, self.q.functions(batch.x, self.q.draw_noise(START_DRAWS, generator)))

    def expected_fit(self, y: Tensor, f: Tensor) -> Tensor:
        """1/(B S) Σ_ns log N(y_n | f_s(x_n), σ²)"""
        return alpha_energy(y, f, 0.0, noise_variance(self.log_noise), alpha=0.0).mean()

    def kl_surrogate(self, f: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        """1/S Σₛ (s_q(f_s) − s_p(f_s))ᵀ f_s, scores held constant: its gradient is that of the KL."""
        noisy = self.with_noise(f.detach(), generator)
        difference = self.posterior_score(noisy) - self.prior_score(noisy, points, generator)
        return (difference.to(f.dtype) * f).sum(1).mean()

    def posterior_score(self, f: Tensor) -> Tensor:
        """∇ log q at draws of q."""
        if self.options.score == "whitened":
            return whitened_score(f)
        return spectral_score(f)

    @torch.no_grad()
    def prior_score(self, f: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        """∇ log p at draws of q."""
        if isinstance(self.prior, GaussianProcessPrior):
            return self.prior.process.score(f, points, self.options.injected_noise**2)
        draws = self.with_noise(self.prior.draw(points, self.options.num_draws, generator), generator)
        if self.options.score == "whitened":
            return whitened_score(draws, f)
        return spectral_score(draws, f)

    def with_noise(self, f: Tensor, generator: torch.Generator) -> Tensor:
        return f + self.options.injected_noise * normal(generator, *f.shape, like=f)

    @torch.no_grad()
    def keep_noise_above_its_floor(self) -> None:
        """As the authors' script does after every step."""
        floor = self.options.smallest_noise**2
        if floor > 0.0:
            fitted = self.prior.noise if isinstance(self.prior, GaussianProcessPrior) else 0.0
            self.log_noise.clamp_(min=math.log(max(floor, fitted)))
