"""Sparse implicit processes: an implicit posterior over the values of an implicit process at inducing inputs.

Rodríguez-Santana, Zaldivar, Hernández-Lobato: Function-space inference with sparse implicit processes, ICML 2022.

    q(f, u) = p_θ(f | u) q_φ(u),   u = f(Z),

with p_θ(f | u) the Gaussian conditional of sampled prior moments and q_φ(u) a network fed with noise. Minimised, per
observation:

    −1/B Σ_i ℓ_α(y_i) + β/N ½ [ KL(q_φ(u) ‖ p_θ(u)) + KL(p_θ(u) ‖ q_φ(u)) ] − 1/N log p(θ)

ℓ_α is the alpha-energy with the conditional variance integrated out; both KL terms come from one discriminator T,
whose expectation under p_θ carries gradients to the prior's parameters and to Z. β rises over the `warm_up`. p(θ) is a
hyper-prior that the paper does not have: `sip[hyperprior=2.5]` is a variant. The learning rate falls to zero with the
budget, that of T does not: T has to keep up.

Nothing in the objective keeps a learned prior from following the rows of a small table too closely, so that long fits do: their
noise falls far below the errors at other rows, and later their mean becomes worse as well. With `stop=validated` rows that are held out
first choose two hyper-parameters, how far a fit goes and the least noise of its predictions (`blocks.validated`). Deviation: predictions
have this least noise, where the paper has the learned one. `stop=budget` trains on all rows until the budget is spent, as the
paper does until convergence, and changes nothing in the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.adversarial import Discriminator
from fsibench.blocks.conditionals import Conditional, initial_inducing
from fsibench.blocks.contrasts import AdaptiveContrast, SingleContrast
from fsibench.blocks.divergences import mean_alpha_energy
from fsibench.blocks.draws import PREDICTION_ROWS, by_rows, normal
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.linalg import JITTER, cholesky
from fsibench.blocks.mlp import NoiseSampler
from fsibench.blocks.networks import DropoutMasks
from fsibench.blocks.priors import Prior, make_prior, prior_class
from fsibench.blocks.stopping import Plan
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
from fsibench.blocks.validated import Training, fitted
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

# A sampled conditional takes the root of the variance, whose derivative at zero is infinite.
SMALLEST_VARIANCE = 1e-10


@dataclass(frozen=True)
class SIP(Method):
    """Inducing inputs, implicit q(u), symmetrised adversarial KL, alpha-energy."""

    name: ClassVar[str] = "sip"
    paper: ClassVar[str] = "Rodríguez-Santana et al., Function-space inference with sparse implicit processes, ICML 2022"
    reproduces: ClassVar[str] = "SIP_BNN"
    waivers: ClassVar[Mapping[str, str]] = {
        "spread_is_calibrated": "a learned prior can follow the rows of a small table too closely (docs/tuning.md)",
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # The paper's UCI experiments: 100 inducing points, 100 samples, batches of 10, warm-up over a fifth. It trains
        # "until convergence"; the epochs are those of the authors' SIP_BNN script.
        "paper": {
            "epochs": 5000,
            "alpha": 0.5, "num_inducing": 100, "num_prior_draws": 100, "num_draws": 100,
            "num_test_draws": 500, "batch_size": 10, "learning_rate": 1e-4, "discriminator_learning_rate": 1e-3,
            "schedule": "constant", "warm_up": 0.2, "initialisation": "released",
            "initial_log_noise": -5.0, "stop": "budget", "dropout_bnn": 0.0, "dropout_ns": 0.05,
        },
        # the authors' SIP_BNN script
        "released": {
            "epochs": 5000, "prior": "bnn",
            "alpha": 0.5, "num_inducing": 50, "num_prior_draws": 100, "num_draws": 100,
            "num_test_draws": 500, "batch_size": 10, "learning_rate": 1e-4, "discriminator_learning_rate": 1e-3,
            "schedule": "constant", "warm_up": 0.05, "discriminator_draws": "fresh", "initialisation": "released",
            "initial_log_noise": -5.0, "stop": "budget", "dropout_bnn": 0.1, "conditional": "sampled",
        },
        # the authors' SIP_NS script
        "released_ns": {
            "epochs": 4000, "prior": "ns",
            "alpha": 0.5, "num_inducing": 100, "num_prior_draws": 100, "num_draws": 100,
            "num_test_draws": 500, "batch_size": 10, "learning_rate": 1e-4, "discriminator_learning_rate": 1e-3,
            "schedule": "constant", "warm_up": 0.05, "discriminator_draws": "fresh", "initialisation": "released",
            "initial_log_noise": -5.0, "stop": "budget", "dropout_ns": 0.05, "conditional": "sampled",
        },
    }  # fmt: skip
    search: ClassVar[Space] = {
        "learning_rate": Between(1e-3, 2e-2, log=True),
        "discriminator_learning_rate": Between(3e-4, 1e-2, log=True),
        "batch_size": (25, 50, 100, 200),
        "num_inducing": (20, 30, 50, 100),
        "num_prior_draws": (50, 100, 200),
        "num_draws": (25, 50, 100),
        "warm_up": Between(0.0, 0.2),
        "initial_log_noise": Between(-6.0, 0.0),
    }

    prior: str = "bnn"  # any name of `blocks.priors`
    alpha: float = 0.5  # 0 is the limit of variational inference, 1 the log predictive density
    num_inducing: int = 30
    num_prior_draws: int = 50  # prior functions per step, for m, K and the discriminator
    num_draws: int = 50  # draws of u per step
    num_test_draws: int = 500  # both, at prediction
    batch_size: int = 100
    learning_rate: float = 5e-3
    discriminator_learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    # How far a fit goes and the least noise of its predictions: found on held-out rows where there are 20 to 2,000; or the whole budget, and as learned.
    stop: Literal["validated", "budget"] = "validated"
    epochs: int = 0  # length of the schedule, after which the fit ends, no rows held out; 0 means that of the budget
    # With prior=bnn, the width of a Gaussian hyper-prior on θ around a network of unit scale (`Prior.log_hyperprior`); 0
    # means none, as in the paper. Nothing else in the objective keeps a learned prior from fitting the training rows.
    hyperprior: float = 0.0
    warm_up: float = 0.2  # share of the schedule over which the KL's weight rises to 1
    kl: Literal["symmetric", "forward"] = "symmetric"
    adaptive_contrast: bool = False  # two discriminators against Gaussians of equal moments (appendix B)
    conditional: Literal["analytic", "sampled"] = "analytic"
    # The discriminator learns from the draws of the step before (independent of those it then judges, and free), or from
    # fresh ones (as released).
    discriminator_draws: Literal["previous", "fresh"] = "previous"
    dropout_bnn: float = 0.0  # in training, of all layers of the network, the output included
    dropout_ns: float = 0.1  # in training, of the hidden layers of both networks; the paper has 0.05
    initialisation: Literal["scaled", "released"] = "scaled"
    inducing_start: Literal["rows", "one_spot"] = "rows"  # some training inputs, or all close to one of them
    fit_q: bool = True  # false: q(u) keeps the parameters it starts with, and only the prior, Z and the noise are fitted
    # a limited λ moves by no more than the limit: −4 lies between tables that are nearly all noise (0) and nearly without (−8)
    initial_log_noise: float = -4.0
    jitter: float = JITTER

    def __post_init__(self) -> None:
        prior_class(self.prior)
        require_at_least(
            1, num_inducing=self.num_inducing, num_draws=self.num_draws,
            batch_size=self.batch_size,
        )  # fmt: skip
        # a sample covariance needs two functions
        require_at_least(2, num_prior_draws=self.num_prior_draws, num_test_draws=self.num_test_draws)
        require_at_least(0, epochs=self.epochs)
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha is a number from 0 to 1, got {self.alpha}")
        if not (0.0 <= self.dropout_bnn < 1.0 and 0.0 <= self.dropout_ns < 1.0):
            raise ValueError(f"dropout is a number from 0 to 1, below 1, got {self.dropout_bnn}, {self.dropout_ns}")

    def published_column(self) -> str:
        return {"bnn": "SIP_BNN", "ns": "SIP_NS"}.get(self.prior, "") if self.alpha == 0.5 else ""

    def departure(self) -> str:
        hyperprior = self.hyperprior > 0.0 and self.prior == "bnn"
        parts = [
            "a Gaussian hyper-prior on the prior's parameters" if hyperprior else "",
            "KL(q ‖ p) alone instead of the symmetrised divergence" if self.kl == "forward" else "",
            "" if self.fit_q else "q(u) is not fitted",
            late_kl(self.warm_up),
        ]
        return "; ".join(filter(None, parts))

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[SparseImplicitProcess]:
        def start() -> ProcessTraining:
            return ProcessTraining(self, train.x, generator)

        if self.epochs == 0:
            yield from fitted(start, self, train, budget, generator, self.warm_up)
            return
        shares = progress(lambda: budget.fraction, steps_of(self.epochs, len(train), self.batch_size))
        yield from start().steps(train, shares, Plan(self.schedule, self.warm_up), generator)


class SparseImplicitProcess:
    """p_θ(f | u) q_φ(u): any prior, any sampler of u, inducing inputs and noise."""

    def __init__(
        self, options: SIP, prior: Prior, sampler: Callable[[int, torch.Generator], Tensor], inducing: Tensor
    ) -> None:
        self.options, self.prior, self.sampler = options, prior, sampler
        self.inducing = leaf(inducing)  # Z, [M, D]
        self.log_noise = leaf(inducing.new_tensor(options.initial_log_noise))  # λ
        self.dropout_rate = {"bnn": options.dropout_bnn, "ns": options.dropout_ns}.get(options.prior, 0.0)
        self.noise_floor = 0.0  # least noise variance of predictions
        self.last: dict[str, float | Tensor] = {}

    def draw_conditional(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Conditional]:
        """Draws u [Q, M] of q and the conditional of f(x) given them, for training."""
        u = self.sampler(self.options.num_draws, generator)
        noise = self.prior.draw_noise(self.options.num_prior_draws, generator)
        return u, self.prior.condition(x, self.inducing, u, noise, self._dropout(generator), self.options.jitter)

    @torch.no_grad()
    def draw_inducing(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws of u from q [Q, M] and from the prior [S, M]: what the discriminator learns from."""
        u = self.sampler(self.options.num_draws, generator)
        noise = self.prior.draw_noise(self.options.num_prior_draws, generator)
        return u, self.prior.functions(self.inducing, noise, self._dropout(generator))

    def data_term(self, y: Tensor, conditional: Conditional, generator: torch.Generator) -> Tensor:
        """Mean alpha-energy of the batch."""
        mean, w = conditional.mean, conditional.variance
        if self.options.conditional == "analytic":
            return mean_alpha_energy(y, mean, w, self.log_noise, self.options.alpha)
        # marginals: independent over points and samples
        f = mean + w.clamp(min=SMALLEST_VARIANCE).sqrt() * normal(generator, *mean.shape, like=mean)
        return mean_alpha_energy(y, f, None, self.log_noise, self.options.alpha)

    def _dropout(self, generator: torch.Generator) -> DropoutMasks | None:
        return DropoutMasks(self.dropout_rate, generator) if self.dropout_rate else None

    @property
    def learned_noise(self) -> float:
        return noise_variance(self.log_noise).item()

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        """1/S Σₛ N(y | E[f(x) | uₛ], Var[f(x) | u] + v)."""
        S = self.options.num_test_draws
        u, noise = self.sampler(S, generator), self.prior.draw_noise(S, generator)

        def at(rows: Tensor) -> Tensor:
            given_u = self.prior.condition(rows, self.inducing, u, noise, jitter=self.options.jitter)
            return torch.cat([given_u.mean, given_u.variance[None]])

        moments = by_rows(at, x, PREDICTION_ROWS)  # [S + 1, N]
        noise = noise_variance(self.log_noise).clamp(min=self.noise_floor)
        return Predictive(moments[:-1], (moments[-1] + noise).sqrt())

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Coherent functions, by correcting draws of the prior's Gaussian process (Matheron's rule).

        g = m + D ξ/√(S − 1) has the sample moments, and f(x) = g(x) + K_xz (K_zz + εI)⁻¹ (u − g(z) − √ε η) has the
        moments of p(f | u) jointly over all x, however many.
        """
        S, jitter = self.options.num_test_draws, self.options.jitter
        u, noise = self.sampler(num_draws, generator).double(), self.prior.draw_noise(S, generator)
        xi, eta = (normal(generator, num_draws, size, like=u) for size in (S, u.shape[1]))
        f_z = self.prior.functions(self.inducing, noise).double()  # [S, M]
        m_z = f_z.mean(0)
        d_z = (f_z - m_z) / math.sqrt(S - 1)
        factor, amount = cholesky(d_z.mT @ d_z, jitter)
        residual = u - (m_z + xi @ d_z) - math.sqrt(amount) * eta  # [draws, M]
        mixing = xi + torch.cholesky_solve(residual.mT, factor).mT @ d_z.mT  # [draws, S]

        def at(rows: Tensor) -> Tensor:
            f_x = self.prior.functions(rows, noise).double()
            m_x = f_x.mean(0)
            return m_x + mixing @ ((f_x - m_x) / math.sqrt(S - 1))

        return by_rows(at, x, PREDICTION_ROWS).to(x.dtype)

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions of the learned prior."""
        return self.prior.draw(x, num_draws, generator)

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        numbers = {name: float(value) for name, value in self.last.items()}
        return {
            **numbers,
            "noise": noise_variance(self.log_noise).sqrt().item(),
            "inducing_inputs": self.inducing.detach().clone(),
        }


class ProcessTraining(Training[SparseImplicitProcess]):
    """A process and the contrast that judges it."""

    def __init__(self, options: SIP, x: Tensor, generator: torch.Generator) -> None:
        self.options = options
        sampler = make_sampler(options, generator, x.dtype)
        start = initial_inducing(x, options.num_inducing, generator, options.inducing_start)
        super().__init__(SparseImplicitProcess(options, initial_prior(options, x, generator), sampler, start))
        self.contrast = make_contrast(options, generator, x.dtype)
        self.previous = self.model.draw_inducing(generator)
        others = [*(sampler.parameters if options.fit_q else ()), self.model.inducing, self.model.log_noise]
        self.parameters = [*self.model.prior.parameters, *others]

    def steps(
        self, data: Data, shares: Iterable[float], plan: Plan, generator: torch.Generator
    ) -> Iterator[SparseImplicitProcess]:
        """The model after each step on the objective."""
        options, model = self.options, self.model
        optimiser = Optimiser(self.parameters, options.learning_rate, plan.schedule)
        for share, batch in zip(shares, data.batches(options.batch_size, generator), strict=False):
            self.share = share
            if options.discriminator_draws == "fresh":
                self.previous = model.draw_inducing(generator)
            u, conditional = model.draw_conditional(batch.x, generator)
            self.contrast.improve(*self.previous, share, generator)
            self.previous = u.detach(), conditional.f_z.detach()
            kl = self.contrast.divergence(u, conditional.f_z)
            data_term = model.data_term(batch.y, conditional, generator)
            loss = warm_up(share, plan.warm_up) / len(data) * kl - data_term
            if options.prior == "bnn" and options.hyperprior > 0.0:
                loss = loss - model.prior.log_hyperprior(options.hyperprior, options.hyperprior) / len(data)
            model.last = {
                "loss": optimiser.minimise(loss, share),
                "kl": kl.detach(),
                "discriminator_loss": self.contrast.loss,
            }
            self.num_steps += 1
            yield model


def initial_prior(options: SIP, x: Tensor, generator: torch.Generator) -> Prior:
    released = options.initialisation == "released"
    if options.prior == "bnn":
        log_scale, mean_scale = ((-5.0, 2.0), 0.05) if released else ((-3.0, 0.1), 0.2)
        return make_prior("bnn", x, generator, mean_scale=mean_scale, log_scale=log_scale)
    return make_prior(options.prior, x, generator, weight_scale=0.2 if released else None)


def make_sampler(options: SIP, generator: torch.Generator, dtype: torch.dtype) -> NoiseSampler:
    """q_φ(u); the released scripts start all its numbers at one scale, which differs between their priors."""
    if options.initialisation == "scaled":
        return NoiseSampler(options.num_inducing, generator, weight_scale=None, log_variance=(-3.0, 0.1), dtype=dtype)
    scale, log_variance = (0.2, (-5.0, 0.1)) if options.prior == "ns" else (0.05, (-5.0, 2.0))
    return NoiseSampler(
        options.num_inducing, generator, weight_scale=scale, bias_scale=scale, mean_scale=scale,
        log_variance=log_variance, dtype=dtype,
    )  # fmt: skip


def make_contrast(
    options: SIP, generator: torch.Generator, dtype: torch.dtype
) -> SingleContrast | AdaptiveContrast:
    def discriminator() -> Discriminator:
        scale = 0.2 if options.prior == "ns" else 0.05
        return Discriminator(
            options.num_inducing,
            generator,
            options.discriminator_learning_rate,
            weight_scale=None if options.initialisation == "scaled" else scale,
            bias_scale=scale,
            dtype=dtype,
        )

    symmetric = options.kl == "symmetric"
    if options.adaptive_contrast:
        return AdaptiveContrast(discriminator(), discriminator(), symmetric)
    return SingleContrast(discriminator(), symmetric)
