"""Variational implicit processes: an implicit prior seen through its first two moments.

Ma, Li, Hernández-Lobato: Variational implicit processes, ICML 2019. S functions f_s of the prior, their noise drawn once
and kept, give a Bayesian linear model with exactly their empirical mean and covariance,

    f(x) = m(x) + φ(x)ᵀa,   a ~ N(0, I_S),   m = 1/S Σ f_s,   φ_s = (f_s − m)/√(S − 1),   y = f(x) + N(0, σ²).

Maximised in the prior's parameters θ, in σ² and in q(a) = N(μ, L Lᵀ), with the black-box alpha-energy in closed form
(`blocks.coefficients`) and a regulariser r(θ):

    N/B Σ_n e_α(n) − KL[q(a) ‖ N(0, I)] + r(θ)                                                           (their eq. 10)

`regulariser`. The paper's is an empirical-Bayes prior on θ made of the evidence log q_GP(y | X, θ) of the linear model.
Printed, that evidence is subtracted. The sum is then unbounded (α > 0) or blind to θ (α = 0, where it is
−KL[q(a) ‖ p(a | y)]). The authors' script estimates log q_GP by one draw a₀ ~ N(0, I), and a square in the wrong place
turns the sign of its residual, not that of its log σ²: what runs, and what the published numbers come from, rewards a prior that explains
the data.

- `prior_fit` (default): E_{p(a)} log p(y | X, a, θ) = Σ_n [log N(y_n | m_n, σ²) − |φ_n|²/2σ²] ≤ log q_GP, the expectation
  of the script's draw, all of it with the sign that the residual has when it runs;
- `evidence`: log q_GP itself, added;
- `released`: the script's term, for its one draw a₀ and with its square;
- `subtracted_evidence`: the printed form, which has no maximum; for study only;
- `none`: the SIP paper's choice for synthetic and large data.

σ² and ψ of the predictions, and how many of the 1,000 steps are made, are chosen on a fifth of the training rows, by a first
fit to the others; the fit that is yielded then uses all rows. The script has the same two stages and grid for ψ. It chooses among three values of
σ on a tenth of the rows, trains σ on from there and predicts with what it learned; here predictions have the value chosen, one of 17, and
to choose the number of steps as well is ours. Predictions come from the exact posterior of a given θ, with ψ as a white
nugget κ = ψ/(S − 1) in the prior (inverse-Wishart smoothing of the covariance), or from q(a) (`prediction=q`). Of more than
20,000 rows the exact posterior sees so many.
The coefficients of predictions are renewed inside pulls (`blocks.training.Refresh`): `predict` sees no training row.

`objective=released` keeps three slips of the script (up to a constant): σ²/α² where σ²/α belongs, the sign of (1 − α)/2 log 2πσ², and no prior
mean in the residual; its nugget is ψ².
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.coefficients import cholesky_factor, coefficient_energy, coefficient_kl
from fsibench.blocks.draws import normal, some_rows
from fsibench.blocks.gaussian import low_rank_log_evidence
from fsibench.blocks.likelihoods import LOG_2PI, gaussian_log_density, noise_variance
from fsibench.blocks.linear_process import (
    POSTERIOR_ROWS,
    LinearModel,
    MomentPosterior,
    RootModel,
    conditioned,
    feature_moments,
    frozen,
)
from fsibench.blocks.networks import Nonlinearity
from fsibench.blocks.priors import Prior, make_prior, prior_class, sample_moments
from fsibench.blocks.training import Optimiser, Refresh, Schedule, leaf, require_at_least
from fsibench.contract import Between, Budget, Data, Method, Space

# What the validation part chooses from: noise variances, the script's ψ and none, and steps as shares of `num_steps`.
NOISE_VARIANCES = tuple(10.0 ** (-4.0 + 0.25 * k) for k in range(17))
PSIS = (0.0, 0.08, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STOPS = (0.3, 0.5, 0.7, 1.0)
# Of networks as priors: the paper's 10-10 network has tanh units.
NONLINEARITY: Nonlinearity = "tanh"
# With fewer rows there is nothing to choose on.
FEWEST_ROWS = 20


@dataclass(frozen=True)
class Choice:
    """What a validation part decides: noise variance and ψ of predictions, and the steps to make."""

    noise: float
    psi: float
    steps: int


@dataclass(frozen=True)
class VIP(Method):
    """Moments of prior draws as a Bayesian linear model, with variational coefficients on a fixed basis."""

    name: ClassVar[str] = "vip"
    paper: ClassVar[str] = "Ma, Li, Hernández-Lobato, Variational implicit processes, ICML 2019"
    reproduces: ClassVar[str] = "VIP"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the paper's UCI settings: 10-10 network, full batches, all steps; its regulariser with the sign that has a maximum
        "paper": {
            "regulariser": "evidence", "num_draws": 20, "hidden_units": 10, "batch_size": 1_000_000,
            "schedule": "constant", "early_stop": False, "initialisation": "released",
            "learning_rate": 1e-2, "initial_log_noise": -2.0,
        },
        # the authors' script: its energy, its regulariser, its start
        "released": {
            "objective": "released", "regulariser": "released", "num_draws": 20, "hidden_units": 10,
            "batch_size": 1_000_000, "schedule": "constant", "early_stop": False, "initialisation": "released",
            "learning_rate": 1e-2, "initial_log_noise": -2.0,
        },
    }  # fmt: skip
    search: ClassVar[Space] = {
        "hidden_units": (10, 30, 50),
        "num_draws": (10, 20, 50, 100),
        "batch_size": (200, 1000),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "schedule": ("constant", "cosine"),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: str = "bnn"  # any name of `blocks.priors`; `ns_concat` is the paper's neural sampler
    hidden_units: int = 30
    initialisation: Literal["scaled", "released"] = "scaled"  # of a Bayesian network: 1/√fan_in, or 0.01 (biases 0.1)
    num_draws: int = 20  # S
    alpha: float = 0.5  # 0 is the evidence lower bound
    objective: Literal["correct", "released"] = "correct"
    regulariser: Literal["prior_fit", "evidence", "released", "subtracted_evidence", "none"] = "prior_fit"
    num_steps: int = 1000  # at most; a budget may end training earlier
    early_stop: bool = True  # the validation part chooses the number of steps too
    noise: float | None = None  # variance of predictions; None: chosen on the validation part
    psi: float | None = None  # None: chosen with it
    prediction: Literal["exact", "q"] = "exact"
    batch_size: int = 1000
    learning_rate: float = 1e-2
    schedule: Schedule = "constant"
    initial_log_noise: float = -2.0

    def __post_init__(self) -> None:
        prior_class(self.prior)
        require_at_least(2, num_draws=self.num_draws)
        require_at_least(1, num_steps=self.num_steps, batch_size=self.batch_size)

    def published_column(self) -> str:
        return self.reproduces if self.prior == "bnn" and self.alpha == 0.5 else ""

    def departure(self) -> str:
        parts = {
            "the energy of the released code, which is not the printed one": self.objective == "released",
            "no regulariser": self.regulariser == "none",
            "the printed regulariser, whose objective has no maximum": self.regulariser == "subtracted_evidence",
        }
        return "; ".join(text for text, holds in parts.items() if holds)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[MomentPosterior]:
        choice = self.choose(train, budget, generator)
        model = VariationalProcess(self, train, generator)
        rows = some_rows(len(train), POSTERIOR_ROWS, generator)
        refresh, start = Refresh(), budget.fraction
        for step in model.steps(choice.steps, budget, start, generator):
            due = refresh.due()
            if due or budget.in_last_pull or step == choice.steps:
                posterior = model.posterior(Data(train.x[rows], train.y[rows]), choice)
            yield posterior

    def choose(self, train: Data, budget: Budget, generator: torch.Generator) -> Choice:
        """σ², ψ and the number of steps with the highest log-likelihood of a fifth of the rows; at most half of the budget."""
        if len(train) < FEWEST_ROWS:
            return Choice(self.noise or 0.1, self.psi or 0.0, self.num_steps)
        held_out, rest = train.held_out(generator)
        num_steps = min(self.num_steps, budget.steps or self.num_steps)
        stops = {round(share * num_steps) for share in STOPS if share == 1.0 or self.early_stop} - {0}
        model, best = VariationalProcess(self, rest, generator), (-math.inf, Choice(0.1, 0.0, self.num_steps))
        for step in model.steps(num_steps, budget, 0.0, generator):
            out_of_time = budget.seconds is not None and budget.fraction > 0.5
            if step in stops or out_of_time:
                steps = self.num_steps if step == num_steps or out_of_time else step
                best = max(best, *model.scored(held_out, steps), key=lambda scored: scored[0])
            if out_of_time:
                break
        return best[1]


class VariationalProcess:
    """The prior, its fixed basis functions, q(a) and the objective."""

    def __init__(self, options: VIP, train: Data, generator: torch.Generator) -> None:
        self.options, self.train, self.last_loss = options, train, math.nan
        self.prior = initial_prior(options, train.x, generator)
        self.basis = self.prior.draw_noise(options.num_draws, generator)
        S, like = options.num_draws, train.x
        self.frozen_coefficients = normal(generator, S, like=like)  # a₀, for regulariser=released
        self.log_noise = leaf(like.new_full((1,), options.initial_log_noise))
        self.q_mean = leaf(like.new_zeros(S))  # μ
        self.q_factor = leaf(like.new_zeros(S, S))  # L, with the log of its diagonal

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.prior.parameters, self.log_noise, self.q_mean, self.q_factor]

    @property
    def noise(self) -> Tensor:
        return noise_variance(self.log_noise)[0]

    def steps(self, num_steps: int, budget: Budget, start: float, generator: torch.Generator) -> Iterator[int]:
        """Optimise, and yield 1, 2, ..., `num_steps` after each step."""
        optimiser = Optimiser(self.parameters, self.options.learning_rate, self.options.schedule)
        for step, batch in zip(range(num_steps), self.train.batches(self.options.batch_size, generator), strict=False):
            progress = max(step / num_steps, (budget.fraction - start) / max(1.0 - start, 1e-9))
            self.last_loss = optimiser.minimise(-self.objective(batch) / len(self.train), progress)
            yield step + 1

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """m(x) [N] and Φ(x) [N, S]."""
        return sample_moments(self.prior.functions(x, self.basis))

    # The objective ------------------------------------------------------------------------------------------------

    def objective(self, batch: Data) -> Tensor:
        """N/B Σ e_α − KL + r on these rows; higher is better."""
        mean, features = self.features(batch.x)
        data_term = self.energy(batch.y, mean, features)
        if self.options.regulariser != "none":
            data_term = data_term + self.regulariser(batch.y, mean, features)
        return len(self.train) / len(batch) * data_term - self.kl()

    def energy(self, y: Tensor, mean: Tensor, features: Tensor) -> Tensor:
        """Σ_n e_α(n) over the rows given."""
        if self.options.objective == "released":
            shift, variance = features @ self.q_mean, (features @ self.factor()).square().sum(-1)  # [B]
            return released_energy(y, shift, variance, self.noise, self.options.alpha).sum()
        return coefficient_energy(y, mean, features, self.q_mean, self.q_factor, self.noise, self.options.alpha)

    def regulariser(self, y: Tensor, mean: Tensor, features: Tensor) -> Tensor:
        """r(θ) on the rows given; see the head of the file."""
        kind, noise = self.options.regulariser, self.noise
        if kind == "prior_fit":
            # E_{a ~ N(0, I)} log N(y | m + Φa, σ²) = −½ [B log 2πσ² + (|y − m|² + ‖Φ‖²)/σ²]
            squares = (y - mean).square().sum() + features.square().sum()
            return -0.5 * (len(y) * (LOG_2PI + noise.log()) + squares / noise)
        if kind == "released":
            residual = y - mean - features @ self.frozen_coefficients  # [B]
            # −½ r²/σ² written as (½ r/σ²)² and subtracted: sign and square as in the script
            return 0.5 * len(y) * (LOG_2PI + noise.log()) - (0.5 * residual / noise).square().sum()
        evidence = low_rank_log_evidence(y - mean, features, noise)
        return -evidence if kind == "subtracted_evidence" else evidence

    def factor(self) -> Tensor:
        """L of q(a) = N(μ, L Lᵀ)."""
        return cholesky_factor(self.q_factor)

    def kl(self) -> Tensor:
        """KL[q(a) ‖ N(0, I)]"""
        return coefficient_kl(self.q_mean, self.q_factor)

    # Predictions --------------------------------------------------------------------------------------------------

    def nugget(self, psi: float) -> float:
        """κ"""
        return psi**2 if self.options.objective == "released" else psi / (self.options.num_draws - 1)

    @torch.no_grad()
    def posterior(self, rows: Data, choice: Choice) -> MomentPosterior:
        """Predictions of the present θ, from the exact posterior of a given `rows` or from q(a)."""
        prior, basis = frozen(self.prior), self.basis

        def features(x: Tensor) -> tuple[Tensor, Tensor]:
            return sample_moments(prior.functions(x, basis))

        if self.options.prediction == "q":
            model: LinearModel = RootModel(features, self.q_mean.double(), choice.noise, self.factor().double())
        else:
            model = conditioned(features, rows.x, rows.y, choice.noise, self.nugget(choice.psi))
        trace: dict[str, float | Tensor] = {
            "loss": self.last_loss, "noise": math.sqrt(choice.noise), "trained_noise": self.noise.sqrt().item(),
            "psi": choice.psi, "kl": self.kl().item(),
        }  # fmt: skip
        return MomentPosterior([model], prior, trace)

    @torch.no_grad()
    def scored(self, held_out: Data, steps: int) -> list[tuple[float, Choice]]:
        """Mean log-likelihood of held-out rows for every σ² and ψ of the grid, exact posterior of a."""
        gram, projection = feature_moments(self.features, self.train.x, self.train.y)
        eigenvalues, U = torch.linalg.eigh(gram)
        eigenvalues = eigenvalues.clamp_min(0.0)
        mean, features = self.features(held_out.x)
        rotated, projected = features.double() @ U, U.mT @ projection  # [N, S], [S]
        scores = []
        for noise in NOISE_VARIANCES if self.options.noise is None else (self.options.noise,):
            for psi in PSIS if self.options.psi is None else (self.options.psi,):
                ridge = noise + self.nugget(psi)
                # a | y ~ N(U (Λ + ρI)⁻¹ Uᵀ Φᵀ(y − m), ρ U (Λ + ρI)⁻¹ Uᵀ)
                loc = mean + rotated @ (projected / (eigenvalues + ridge))
                variance = ridge * (rotated.square() / (eigenvalues + ridge)).sum(1) + noise
                log_density = gaussian_log_density(held_out.y, loc, variance).mean().item()
                scores.append((log_density, Choice(noise, psi, steps)))
        return scores


def initial_prior(options: VIP, x: Tensor, generator: torch.Generator) -> Prior:
    """Networks with random biases, as in the script."""
    hidden = (options.hidden_units,) * 2
    if options.initialisation == "released":
        return make_prior(
            options.prior, x, generator, hidden=hidden, nonlinearity=NONLINEARITY, mean_scale=0.01,
            log_scale=(math.log(0.01), 0.0), bias_scale=0.1, bias_log_scale=math.log(0.1),
        )  # fmt: skip
    return make_prior(
        options.prior, x, generator, hidden=hidden, nonlinearity=NONLINEARITY, mean_scale=0.0, log_scale=None,
        bias_scale=0.0, bias_log_scale=math.log(0.3),
    )  # fmt: skip


def released_energy(y: Tensor, shift: Tensor, variance: Tensor, noise: Tensor, alpha: float) -> Tensor:
    """The script's e_α: 1/α { log N(y | φᵀμ, v + σ²/α²) − (1 − α)/2 log 2πσ² − ½ log α }, with its three slips, up to a constant in α."""
    density = gaussian_log_density(y, shift, variance + noise / alpha**2)
    return (density - 0.5 * (1.0 - alpha) * (LOG_2PI + noise.log()) - 0.5 * math.log(alpha)) / alpha
