"""Functional variational inference with stochastic process generators: a reconstruction.

Ma and Hernández-Lobato: Functional variational inference based on stochastic process generators, NeurIPS 2021. No code
was released; this is a method with the published properties, not a copy: two stages, generators that are Bayesian
linear models on deterministic networks, shared by prior and posterior so that their divergence is cheap, prior
parameters not learned from the posterior's objective, only draws of the prior needed. Entries are labelled so.

Generator, with h ~ N(0, I_K) and independent ν(x) ~ N(0, s²(x)) so that marginals have full rank:

    f(x) = b(x) + φ(x)ᵀh + ν(x),   φ, b and s of one network of x

Stage one fits the network to draws of the prior at random grids X, by maximum likelihood of the generator's Gaussian
marginal, Σ_s log N(f_s(X) | b, ΦΦᵀ + diag s²); `trace` reports the relative error of its mean, variance and
covariance on fresh grids. Grids are training rows and points of the widened box around them, in equal parts.

Stage two freezes the network and replaces N(0, I) by q(h) = N(μ, L Lᵀ); ν stays at its prior. On any grid

    KL[q(f^X) ‖ p(f^X)] ≤ KL[q(h) ‖ N(0, I)]                                                     (data processing)

with equality once the grid determines h, so the bound needs no grid. Maximised, the noise σ² learned with it:

    N/B Σ_n e_α(n) − KL[q(h) ‖ N(0, I)]

It begins at the exact posterior of h given at most 20,000 rows, for the σ² of a grid that has the highest objective.

Any prior can be imitated (`prior`). With `fit_prior` its parameters maximise the evidence of the training rows first
(`blocks.evidence`), on the clock: of a Bayesian network all means, scales and biases, with a weak hyper-prior on means and scales, of a
Gaussian process its lengthscales, its variance and the noise. (The paper learns no prior parameters; `fit_prior=false` does not.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.coefficients import cholesky_factor, coefficient_energy
from fsibench.blocks.draws import ONE_PASS_ROWS, Box, by_rows, normal, some_rows
from fsibench.blocks.gaussian import factor, standard_kl
from fsibench.blocks.likelihoods import LOG_2PI, noise_variance
from fsibench.blocks.mlp import MLP
from fsibench.blocks.priors import Prior, make_prior, prior_class
from fsibench.blocks.training import Optimiser, Schedule, leaf
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

# Standard deviations of an input at which the box of the grids ends.
FARTHEST = 5.0
SMALLEST_RESIDUAL = 1e-4
# Features are kept of at most so many rows: 100 of each take 40 MB.
MOST_SEEN_ROWS = 100_000
# The start of stage two: rows that it sees at most, and noise variances that it tries.
START_ROWS, NOISE_VARIANCES = 20_000, tuple(10.0 ** (0.5 * k - 4.0) for k in range(9))


@dataclass(frozen=True)
class FVI(Method):
    """Two-stage functional VI: a generator fitted to prior draws, then its latent variables to the data."""

    name: ClassVar[str] = "fvi"
    paper: ClassVar[str] = "Ma and Hernández-Lobato, Functional VI based on stochastic process generators, NeurIPS 2021"
    note: ClassVar[str] = "reconstruction"
    search: ClassVar[Space] = {
        "num_basis": (50, 100, 200),
        "prior_share": Between(0.2, 0.8),
        "num_draws": (32, 64, 128),
        "prior_learning_rate": Between(1e-3, 1e-2, log=True),
        "batch_size": (50, 100, 200),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: str = "bnn"  # any name of `blocks.priors`
    fit_prior: bool = True  # its parameters by evidence, before stage one; else they stay at their start
    evidence_steps: int = 400  # at most, of that fit
    num_basis: int = 100  # K
    hidden_units: int = 100
    alpha: float = 0.5
    prior_share: float = 0.6  # of the budget, for the prior and stage one
    prior_steps: int = 4000  # at most, of stage one; with a budget of steps also no more than those
    num_draws: int = 64  # prior functions per step of stage one
    grid_size: int = 100
    prior_learning_rate: float = 3e-3
    batch_size: int = 100
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    initial_log_noise: float = -2.0  # `start` replaces it by the best of a grid

    def __post_init__(self) -> None:
        prior_class(self.prior)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[PosteriorGenerator]:
        prior = self.make_prior(train, budget, generator)
        grids = Grids(train, self.grid_size)
        shared = fitted_generator(self, prior, grids, budget, generator)
        errors = moment_errors(shared, prior, grids, generator)
        model = PosteriorGenerator(self, shared, prior, errors, len(train))
        rows = some_rows(len(train), START_ROWS, generator)
        model.start(Data(train.x[rows], train.y[rows]))
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        start = budget.fraction
        for batch in model.batches(train, generator):
            fraction = (budget.fraction - start) / max(1.0 - start, 1e-9)
            model.last_loss = optimiser.minimise(-model.objective(batch) / len(train), fraction)
            yield model

    def make_prior(self, train: Data, budget: Budget, generator: torch.Generator) -> Prior:
        """The prior that the first stage imitates; a fit of it takes at most half of its share of the budget."""
        prior = make_prior(self.prior, train.x, generator, mean_scale=0.0, log_scale=None)
        if self.fit_prior:
            steps = min(self.evidence_steps, budget.steps or self.evidence_steps)
            prior.fit_evidence(train.x, train.y, generator, steps, lambda: budget.fraction > 0.5 * self.prior_share)
        return prior


class Grids:
    """Where processes are compared: half training rows, half uniform points of the box, widened by half its range.

    A single row far away does not stretch the box: inputs are standardised, and beyond some standard deviations it ends.
    """

    def __init__(self, train: Data, size: int) -> None:
        self.x, self.size = train.x, size
        self.box = Box.around(train.x.clamp(-FARTHEST, FARTHEST), margin=0.5)

    def draw(self, generator: torch.Generator) -> Tensor:
        """[size, D]; rows are drawn with replacement, so small data give full grids too."""
        near = self.size // 2
        rows = torch.randint(len(self.x), (near,), generator=generator, device=self.x.device)
        return torch.cat([self.x[rows], self.box.draw(self.size - near, generator)])


class Generator:
    """f(x) = b(x) + φ(x)ᵀh + ν(x): the network behind prior and posterior."""

    def __init__(self, num_inputs: int, num_basis: int, hidden: int, generator: torch.Generator, like: Tensor) -> None:
        self.num_basis = num_basis
        self.network = MLP((num_inputs, hidden, hidden, num_basis + 2), None, 0.1, generator, like.dtype)

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """φ(x) [N, K], b(x) [N] and the variance s²(x) [N] of ν."""
        out = self.network(x)
        # φ of about unit length at the start: a prior variance near one
        features = out[:, : self.num_basis] / math.sqrt(self.num_basis)
        # eᵃ below one, 1 + a above: far from the grids s grows as φ does, where an exponential would be astronomic
        residual = functional.elu(out[:, -1] - 1.5) + 1.0
        return features, out[:, -2], residual.square() + SMALLEST_RESIDUAL

    def log_marginal(self, f: Tensor, x: Tensor) -> Tensor:
        """log N(f | b, ΦΦᵀ + diag s²) of functions f [S, n] at a grid x [n, D]: [S], in float64."""
        features, mean, residual = (part.double() for part in self.components(x))
        scaled = features / residual.sqrt()[:, None]  # D^(−½) Φ
        C = factor(torch.eye(self.num_basis, dtype=scaled.dtype, device=scaled.device) + scaled.mT @ scaled)
        r = (f.double() - mean) / residual.sqrt()  # [S, n]
        c: Tensor = torch.linalg.solve_triangular(C, (r @ scaled).mT, upper=False)  # [K, S]
        quadratic = r.square().sum(1) - c.square().sum(0)
        log_determinant = residual.log().sum() + 2.0 * C.diagonal().log().sum()
        return -0.5 * (quadratic + log_determinant + f.shape[1] * LOG_2PI)


def fitted_generator(
    options: FVI, prior: Prior, grids: Grids, budget: Budget, generator: torch.Generator
) -> Generator:
    """Stage one: maximum likelihood on fresh draws of the prior at fresh grids."""
    shared = Generator(grids.x.shape[1], options.num_basis, options.hidden_units, generator, grids.x)
    optimiser = Optimiser([shared.network.flat], options.prior_learning_rate, "cosine")
    num_steps = min(options.prior_steps, budget.steps or options.prior_steps)
    for step in range(num_steps):
        progress = max(step / num_steps, budget.fraction / options.prior_share)
        if progress >= 1.0:
            break
        x = grids.draw(generator)
        with torch.no_grad():
            f = prior.draw(x, options.num_draws, generator)
        optimiser.minimise(-shared.log_marginal(f, x).mean() / len(x), progress)
    return shared


@torch.no_grad()
def moment_errors(
    shared: Generator, prior: Prior, grids: Grids, generator: torch.Generator
) -> dict[str, float | Tensor]:
    """Relative errors of the generator's mean, variance and covariance on a fresh grid, against draws of the prior.

    Moments of draws err themselves, by five per cent of a covariance at 2,000 draws. With two independent sets,
    (C − T₁) : (C − T₂) has the expectation ‖C − T‖², free of that error.
    """
    x = grids.draw(generator)
    draws = [prior.draw(x, 2000, generator).double() for _ in range(2)]
    (mean_1, T_1), (mean_2, T_2) = ((f.mean(0), torch.cov(f.mT)) for f in draws)
    features, mean, residual = (part.double() for part in shared.components(x))
    C = features @ features.mT + residual.diag()
    variance = 0.5 * (T_1 + T_2).diagonal().mean()
    of_mean = ((mean - mean_1) * (mean - mean_2)).mean().clamp_min(0.0) / variance
    of_covariance = ((C - T_1) * (C - T_2)).sum().clamp_min(0.0) / (T_1 * T_2).sum()
    return {
        "prior_mean_error": of_mean.sqrt().item(),
        "prior_variance_error": (C.diagonal().mean() / variance - 1.0).abs().item(),
        "prior_covariance_error": of_covariance.sqrt().item(),
        "prior_residual_share": (residual.mean() / variance).item(),
    }


class PosteriorGenerator:
    """Stage two: the frozen network with q(h) = N(μ, L Lᵀ) in place of N(0, I)."""

    def __init__(
        self,
        options: FVI,
        shared: Generator,
        prior: Prior,
        errors: dict[str, float | Tensor],
        num_data: int,
    ) -> None:
        self.options, self.shared, self.prior, self.errors = options, shared, prior, errors
        self.num_data, self.last_loss = num_data, math.nan
        flat = shared.network.flat
        K = options.num_basis
        self.q_mean = leaf(flat.new_zeros(K))  # μ
        self.q_factor = leaf(flat.new_zeros(K, K))  # L below its diagonal, on it the log; `start` moves the origin
        # μ and L are relative to a start, h = μ₀ + L₀h': steps of one size then suit all directions
        self.origin, self.scale = flat.new_zeros(K), torch.eye(K, dtype=flat.dtype, device=flat.device)
        self.log_noise = leaf(flat.new_full((1,), options.initial_log_noise))

    @property
    def parameters(self) -> list[Tensor]:
        return [self.q_mean, self.q_factor, self.log_noise]

    def mean(self) -> Tensor:
        """E[h], [K]"""
        return self.origin + self.scale @ self.q_mean

    def factor(self) -> Tensor:
        """Lower factor of Cov[h], [K, K]"""
        return self.scale @ cholesky_factor(self.q_factor)

    @torch.no_grad()
    def start(self, rows: Data) -> None:
        """Begin at the exact posterior of h given these rows, for the σ² of a grid with the highest objective.

        Each row counts N/n times, with the variance σ² + α s² that the energy has for a point mass at h. At α = 0 this q
        maximises the objective for that σ².
        """
        seen = self.seen(rows)
        features, mean, residual = self.split(seen.x.double())
        identity = torch.eye(self.options.num_basis, dtype=features.dtype, device=features.device)
        repeats = self.num_data / len(rows)
        found = []
        for variance in NOISE_VARIANCES:
            weighted = repeats * features / (variance + self.options.alpha * residual)[:, None]
            C = factor(identity + weighted.mT @ features)
            self.origin = torch.cholesky_solve(weighted.mT @ (seen.y - mean)[:, None], C)[:, 0].to(self.q_mean)
            self.scale = factor(torch.cholesky_inverse(C)).to(self.q_mean)
            self.log_noise.fill_(math.log(variance))
            found.append((self.objective(self.seen(rows)).item(), variance, self.origin, self.scale))
        _, variance, self.origin, self.scale = max(found, key=lambda each: each[0])
        self.log_noise.fill_(math.log(variance))

    def objective(self, batch: Data) -> Tensor:
        """N/B Σ_n e_α(n) − KL[q(h) ‖ N(0, I)] on rows as `seen`; higher is better."""
        features, mean, residual = self.split(batch.x)
        noise = noise_variance(self.log_noise)
        energy = coefficient_energy(
            batch.y, mean, features, self.q_mean, self.q_factor, noise, self.options.alpha, residual
        )
        return self.num_data / len(batch) * energy - self.kl()

    @torch.no_grad()
    def seen(self, rows: Data) -> Data:
        """Rows with what the frozen network says about them in place of their inputs: [L₀ᵀφ, b + φᵀμ₀, s²], [N, K + 2]."""

        def at(x: Tensor) -> Tensor:
            features, mean, residual = self.shared.components(x)
            return torch.column_stack([features @ self.scale, mean + features @ self.origin, residual])

        return Data(by_rows(at, rows.x, ONE_PASS_ROWS, dim=0), rows.y)

    @staticmethod
    def split(seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features [N, K], mean [N] and variance of ν [N], of rows as `seen`."""
        return seen[:, :-2], seen[:, -2], seen[:, -1]

    def batches(self, train: Data, generator: torch.Generator) -> Iterator[Data]:
        """Batches as `seen`: the network is asked once about each row, where all answers fit into memory."""
        size = self.options.batch_size
        if len(train) <= MOST_SEEN_ROWS:
            return self.seen(train).batches(size, generator)
        return (self.seen(batch) for batch in train.batches(size, generator))

    def kl(self) -> Tensor:
        """KL[q(h) ‖ N(0, I)]"""
        return standard_kl(self.mean(), self.factor())

    def marginals(self, features: Tensor, mean: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(x) under q: [N] each."""
        return mean + features @ self.mean(), (features @ self.factor()).square().sum(1) + residual

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        mean, variance = by_rows(lambda rows: torch.stack(self.marginals(*self.shared.components(rows))), x, ONE_PASS_ROWS)
        return Predictive(mean[None], (variance + noise_variance(self.log_noise)).sqrt()[None])

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        features, mean, residual = self.shared.components(x)
        h = self.mean() + normal(generator, num_draws, self.options.num_basis, like=x) @ self.factor().mT  # [S, K]
        # ν is independent from input to input, but one value at each: equal rows share it
        distinct, position = torch.unique(x, dim=0, return_inverse=True)
        nu = normal(generator, num_draws, len(distinct), like=x)
        return mean + h @ features.mT + nu[:, position] * residual.sqrt()

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Draws of the prior that stage one learned from, not of the generator."""
        return self.prior.draw(x, num_draws, generator)

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        return {
            "loss": self.last_loss,
            "noise": noise_variance(self.log_noise).sqrt().item(),
            "kl": self.kl().item(),
            **self.errors,
        }
