"""Variational implicit processes: an implicit prior seen through its first two moments.

Ma, Li, Hernández-Lobato: Variational implicit processes, ICML 2019. S functions f_s of the prior give a Bayesian
linear model with exactly their empirical mean and covariance,

    f(x) = m(x) + φ(x)ᵀa,   a ~ N(0, I_S),   m = 1/S Σ f_s,   φ_s = (f_s − m)/√(S − 1),   y = f(x) + N(0, σ²),

whose evidence is maximised in the prior's parameters θ and σ². Two ways to do it:

`basis=fixed` is the published method: S functions with frozen noise and a variational q(a) = N(μ, L Lᵀ). Maximised,
with the black-box alpha-energy in closed form (`blocks.divergences`):

    N/B Σ_n e_α(n) − KL[q(a) ‖ N(0, I)] − weight · regulariser.                                          (their eq. 10)

`basis=fresh` draws new functions at every step and maximises the evidence itself, log N(y | m, ΦΦᵀ + σ² I), with a
integrated out. θ cannot adapt to one particular set of functions, which is how the published form over-fits small
data: on validation rows of boston its log-likelihood falls below −100 while this one stays near −2.3. Therefore the
default. Of a Bayesian network it draws the hidden layers only: what the output layer adds to m and ΦΦᵀ is known
(`output_layer=integrated`, `blocks.networks.process_features`), and eight networks scatter less than 100 functions.
`preset=paper` is the published method with the correct energy, `preset=released` the authors' script.

`objective=released` keeps three slips of that script, reproduced for comparison only: σ²/α² where σ²/α belongs, the
sign of (1 − α)/2 log 2πσ², and no prior mean in the residual. Regularisers: `paper` subtracts the joint evidence of
the batch, `released` a penalty on the residuals under one frozen a₀ ~ N(0, I), whose sign is the opposite.
`psi` is the inverse-Wishart smoothing of the covariance, a white nugget of ψ/(S − 1) in the prior.

Deviations: `tied` shares one mean and one scale per layer, but biases keep frozen noise of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.draws import some_rows
from fsibench.blocks.gaussian import linear_posterior_from_moments, low_rank_log_evidence, standard_kl
from fsibench.blocks.likelihoods import LOG_2PI, gaussian_log_density, noise_variance
from fsibench.blocks.priors import BNNPrior, make_prior
from fsibench.blocks.training import Optimiser, Schedule, leaf, require_at_least
from fsibench.contract import Budget, Data, Method
from fsibench.errors import UsageError
from fsibench.predictive import Predictive

# Rows that are pushed through all functions at a time: 400 functions × 200 rows × 50 units are 16 MB.
CHUNK_ROWS = 200


@dataclass(frozen=True)
class VIP(Method):
    """Moments of prior draws as a Bayesian linear model; fresh basis functions with a collapsed bound by default."""

    name: ClassVar[str] = "vip"
    paper: ClassVar[str] = "Ma, Li, Hernández-Lobato, Variational implicit processes, ICML 2019"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the published method, with the energy as the paper derives it
        "paper": {
            "basis": "fixed", "objective": "correct", "regulariser": "paper", "num_functions": 20, "hidden_units": 10,
            "batch_size": 1_000_000, "learning_rate": 1e-2, "schedule": "constant", "prediction": "exact",
            "hyperprior_means": 0.0, "hyperprior_scales": 0.0,
        },
        # the authors' script: their energy and regulariser, full batches
        "released": {
            "basis": "fixed", "objective": "released", "regulariser": "released", "num_functions": 20,
            "hidden_units": 10, "batch_size": 1_000_000, "learning_rate": 1e-2, "schedule": "constant",
            "prediction": "exact", "hyperprior_means": 0.0, "hyperprior_scales": 0.0,
        },
    }  # fmt: skip

    prior: Literal["bnn", "ns"] = "bnn"
    basis: Literal["fresh", "fixed"] = "fresh"
    # Of a Bayesian network's functions with basis=fresh: weights of the last layer integrated out of the moments, or drawn
    output_layer: Literal["integrated", "sampled"] = "integrated"
    objective: Literal["correct", "released"] = "correct"
    regulariser: Literal["none", "paper", "released"] = "none"
    regulariser_weight: float = 1.0
    tied: bool = False  # one mean and one scale per layer instead of one per weight
    alpha: float = 0.5  # of the energy, with basis=fixed; 0 is the evidence lower bound
    psi: float = 0.0
    # Of a Bayesian network's θ, the sd of Gaussian hyper-priors in units of the start; 0 means none. Free means of weights
    # let the prior's mean function learn the rows by heart while its scales, and the noise, shrink.
    hyperprior_means: float = 0.7  # around 0
    hyperprior_scales: float = 2.0  # of log scales
    prediction: Literal["q", "exact"] = "exact"  # of a: the variational q, or the linear model's posterior given θ
    num_functions: int = 100  # S in training, and in prediction with basis=fixed
    num_test_functions: int = 400  # S in prediction with basis=fresh, where predictions are
    num_test_bases: int = 3  # a mixture over so many sets of functions
    num_networks: int = 8  # draws of the hidden layers in training, with output_layer=integrated
    num_test_networks: int = 20  # and in prediction
    num_posterior_rows: int = 20_000  # exact prediction conditions on at most so many training rows
    hidden_units: int = 50
    num_noise: int = 10  # inputs of noise, with prior=ns
    # Evidence is joint over the batch: the fewer rows, the more the prior alone has to explain them.
    batch_size: int = 1000
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    initial_log_noise: float = -2.0

    def __post_init__(self) -> None:
        if self.basis == "fresh" and (self.objective, self.regulariser, self.prediction) != ("correct", "none", "exact"):
            raise UsageError("objective, regulariser and prediction=q belong to q(a), which exists with basis=fixed.")
        if self.tied and self.prior == "ns":
            raise UsageError("tied concerns the weights of a Bayesian network; it needs prior=bnn.")
        require_at_least(2, num_functions=self.num_functions, num_networks=self.num_networks)
        require_at_least(2, num_test_functions=self.num_test_functions, num_test_networks=self.num_test_networks)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[LinearisedProcess]:
        model = LinearisedProcess(self, train, generator)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        for batch in train.batches(self.batch_size, generator):
            loss = -model.objective(batch, generator) / len(train)
            model.last_loss = optimiser.minimise(loss, budget.fraction)
            yield model


class LinearisedProcess:
    """The prior, its basis functions and the linear model on top of them."""

    def __init__(self, options: VIP, train: Data, generator: torch.Generator) -> None:
        self.options, self.train, self.last_loss = options, train, math.nan
        name = "bnn_tied" if options.tied else {"ns": "ns_concat"}.get(options.prior, options.prior)
        self.prior = make_prior(
            name, train.x, generator, hidden=(options.hidden_units,) * 2, mean_scale=0.0, log_scale=None,
            num_noise=options.num_noise,
        )
        self.log_noise = leaf(torch.full((1,), options.initial_log_noise, dtype=train.x.dtype, device=train.x.device))
        fresh = options.basis == "fresh"
        # The functions of predictions, and with basis=fixed those of training: frozen for the whole run.
        num_bases, size = (options.num_test_bases, options.num_test_functions) if fresh else (1, options.num_functions)
        if self.integrated:
            size = options.num_test_networks
        self.bases = [self.prior.draw_noise(size, generator) for _ in range(num_bases)]
        self.posterior_rows = some_rows(len(train), options.num_posterior_rows, generator)
        S = 0 if fresh else options.num_functions
        normal = torch.randn(S, generator=generator, dtype=train.x.dtype, device=train.x.device)
        self.frozen_coefficients = normal  # a₀, for regulariser=released
        self.q_mean = leaf(torch.zeros_like(normal))  # μ
        self.q_factor = leaf(torch.zeros(S, S, dtype=normal.dtype, device=normal.device))  # L, log of its diagonal

    @property
    def parameters(self) -> list[Tensor]:
        q = [] if self.options.basis == "fresh" else [self.q_mean, self.q_factor]
        return [*self.prior.parameters, self.log_noise, *q]

    @property
    def noise(self) -> Tensor:
        return noise_variance(self.log_noise)[0]

    @property
    def integrated(self) -> BNNPrior | None:
        """The prior, where its output layer is integrated out."""
        applies = self.options.output_layer == "integrated" and self.options.basis == "fresh"
        return self.prior if applies and isinstance(self.prior, BNNPrior) else None

    @property
    def nugget(self) -> float:
        return self.options.psi / (self.options.num_functions - 1)

    def objective(self, batch: Data, generator: torch.Generator) -> Tensor:
        """An estimate of the bound on the evidence of all rows; higher is better."""
        return self.bound(batch, generator) + self.log_hyperprior()

    def bound(self, batch: Data, generator: torch.Generator) -> Tensor:
        scale = len(self.train) / len(batch)
        if self.options.basis == "fresh":
            size = self.options.num_networks if self.integrated else self.options.num_functions
            mean, features = self.features(batch.x, self.prior.draw_noise(size, generator))
            return scale * self.log_evidence(batch.y, mean, features)
        mean, features = self.features(batch.x, self.bases[0])
        energy = self.energy(batch.y, mean, features)
        penalty = self.options.regulariser_weight * self.penalty(batch.y, mean, features)
        return scale * (energy - penalty) - self.kl()

    def log_hyperprior(self) -> Tensor:
        if not isinstance(self.prior, BNNPrior):
            return self.log_noise.new_zeros(())
        means, scales = self.options.hyperprior_means, self.options.hyperprior_scales
        return self.prior.log_hyperprior(means or math.inf, scales or math.inf)

    def features(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """m(x) [N] and Φ(x) [N, S]."""
        if self.integrated:
            return self.integrated.moments(x, noise)
        f = self.prior.functions(x, noise)  # [S, N]
        mean = f.mean(0)
        return mean, ((f - mean) / math.sqrt(len(noise) - 1)).mT

    def log_evidence(self, y: Tensor, mean: Tensor, features: Tensor) -> Tensor:
        """log N(y | m, ΦΦᵀ + (σ² + κ) I), in float64: σ² may be a millionth of the signal."""
        return low_rank_log_evidence(y - mean, features, self.noise + self.nugget)

    def energy(self, y: Tensor, mean: Tensor, features: Tensor) -> Tensor:
        """Σ_n e_α(n) over the rows given."""
        shift = features @ self.q_mean  # [B]
        variance = (features @ self.factor()).square().sum(-1) + self.nugget  # [B]
        if self.options.objective == "released":
            return released_energy(y, shift, variance, self.noise, self.options.alpha).sum()
        return alpha_energy(y, (mean + shift)[None], variance, self.noise, self.options.alpha).sum()

    def factor(self) -> Tensor:
        """L of q(a) = N(μ, L Lᵀ)."""
        return self.q_factor.tril(-1) + self.q_factor.diagonal().exp().diag_embed()

    def kl(self) -> Tensor:
        """KL[q(a) ‖ N(0, I)]"""
        return standard_kl(self.q_mean, self.factor())

    def penalty(self, y: Tensor, mean: Tensor, features: Tensor) -> Tensor:
        if self.options.regulariser == "paper":
            return self.log_evidence(y, mean, features)
        if self.options.regulariser == "released":
            residual = y - mean - features @ self.frozen_coefficients  # [B]
            # Σ (½ r²/σ² as ½ r/σ², squared once more) − B/2 log 2πσ², sign and square as in the script
            return (0.5 * residual / self.noise).square().sum() - 0.5 * len(y) * (LOG_2PI + self.noise.log())
        return mean.new_zeros(())

    # Predictions --------------------------------------------------------------------------------------------------

    def coefficients(self, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior of a on these functions, in float64: its mean [S] and a root R [S, S] of its covariance R Rᵀ."""
        if self.options.prediction == "q":
            return self.q_mean.double(), self.factor().double()
        chunks = self.posterior_rows.split(CHUNK_ROWS)
        gram, projection = self.posterior_moments(chunks[0], basis)
        for rows in chunks[1:]:
            more_gram, more_projection = self.posterior_moments(rows, basis)
            gram += more_gram
            projection += more_projection
        posterior_mean, C = linear_posterior_from_moments(gram, projection, self.noise.double() + self.nugget)
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        return posterior_mean, torch.linalg.solve_triangular(C.mT, identity, upper=True)

    def posterior_moments(self, rows: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        """ΦᵀΦ and Φᵀ(y − m) over these training rows."""
        mean, features = self.features(self.train.x[rows], basis)
        features = features.double()
        return features.mT @ features, features.mT @ (self.train.y[rows] - mean).double()

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        """One Gaussian for each set of basis functions."""
        moments = torch.stack([self.moments(x, basis) for basis in self.bases], 1).to(x.dtype)  # [2, bases, N]
        return Predictive(moments[0], moments[1])

    def moments(self, x: Tensor, basis: Tensor) -> Tensor:
        """Mean and standard deviation of y at each row: [2, N]."""
        mean_a, root = self.coefficients(basis)
        parts = []
        for rows in x.split(CHUNK_ROWS):
            mean, features = self.features(rows, basis)
            features = features.double()
            variance = (features @ root).square().sum(-1) + self.nugget + self.noise
            parts.append(torch.stack([mean + features @ mean_a, variance.sqrt()]))
        return torch.cat(parts, 1)

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions m + Φ a, drawn from the sets of basis functions in turn."""
        draws = torch.empty(num_draws, len(x), dtype=x.dtype, device=x.device)
        for index, basis in enumerate(self.bases):
            mean_a, root = self.coefficients(basis)
            count = len(draws[index :: len(self.bases)])
            eps = torch.randn(count, len(mean_a), generator=generator, dtype=torch.float64, device=x.device)
            a = mean_a + eps @ root.mT  # [count, S]
            parts = []
            for rows in x.split(CHUNK_ROWS):
                mean, features = self.features(rows, basis)
                parts.append(mean + a @ features.double().mT)
            draws[index :: len(self.bases)] = torch.cat(parts, 1).to(x.dtype)
        return draws

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        noise = self.prior.draw_noise(num_draws, generator)
        return torch.cat([self.prior.functions(rows, noise) for rows in x.split(CHUNK_ROWS)], 1)

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        explained: dict[str, float | Tensor] = {"loss": self.last_loss, "noise": self.noise.sqrt().item()}
        if self.options.basis == "fixed":
            explained["kl"] = self.kl().item()
        return explained


def released_energy(y: Tensor, shift: Tensor, variance: Tensor, noise: Tensor, alpha: float) -> Tensor:
    """The script's e_α: 1/α { log N(y | φᵀμ, v + σ²/α²) − (1 − α)/2 log 2πσ² − ½ log α }, with its three slips."""
    density = gaussian_log_density(y, shift, variance + noise / alpha**2)
    return (density - 0.5 * (1.0 - alpha) * (LOG_2PI + noise.log()) - 0.5 * math.log(alpha)) / alpha
