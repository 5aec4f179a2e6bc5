"""Regularised KL with a Gaussian process prior: well-defined function-space variational inference.

Cinquin, Bamler: Regularized KL-divergence for well-defined function-space variational inference in Bayesian neural
networks, UAI 2025. Weights q(w) = N(m, diag s²) give functions by linearising the network at their means, as in `tfsvi`.
The prior is a Gaussian process, against which the KL of such functions is infinite; with γ on both covariances it is
not, and at M points x drawn from the inputs' domain it is estimated by a KL of Gaussians,

    D_γ = KL[ N( f(x; m), J diag(s²) Jᵀ + γM I ) ‖ N( μ_p(x), K(x, x) + γM I ) ]                    (their definition 3)

The likelihood is that of the linearised network, in closed form, and the objective to maximise

    N/B Σ_n [ log N(y_n | f(x_n; m), σ²) − J_n diag(s²) J_nᵀ / (2σ²) ] − D_γ.

The prediction is N( f(x; m), J diag(s²) Jᵀ + σ² ). The process has zero mean and an ARD RBF kernel, fitted by its evidence
on at most 500 rows before training starts, on the clock.

Deviations in settings, with `preset=paper` as printed: M = 200 points instead of 500, for the cost of a step grows as M³
(with 50 the divergence sees too little of the functions, and long fits interpolate the training rows), and γ = 10⁻⁵
instead of 10⁻¹⁰: where the process is smooth, a smaller γ makes the divergence so steep that q hardly moves within a
budget of seconds. The paper stops early by a validation score; here, with `stop=validated`, held-out rows choose how far a fit
goes and the least noise of its predictions (`blocks.validated`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.draws import ONE_PASS_ROWS, by_rows, normal
from fsibench.blocks.kernels import GaussianProcess, fitted_process
from fsibench.blocks.meanfield import MeanFieldTraining, NoisyMeanField, regularised_kl
from fsibench.blocks.priors import reference_process
from fsibench.blocks.training import Schedule, require_at_least
from fsibench.blocks.validated import fitted
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

# The prior is fitted to at most so many rows, for a step of its evidence costs their number cubed, and within this
# share of the budget.
PRIOR_ROWS = 500
PRIOR_SHARE = 0.15


@dataclass(frozen=True)
class GFSVI(Method):
    """Linearised mean-field network with a Gaussian process prior and the regularised KL."""

    name: ClassVar[str] = "gfsvi"
    paper: ClassVar[str] = "Cinquin, Bamler, Regularized KL-divergence for function-space VI, UAI 2025"
    reproduces: ClassVar[str] = "GFSVI"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"num_context": 500, "gamma": 1e-10, "batch_size": 2000, "learning_rate": 1e-3, "schedule": "constant", "stop": "budget"},
    }
    search: ClassVar[Space] = {
        "hidden_layers": (1, 2),
        "num_context": (100, 200, 400),
        "batch_size": (50, 100, 200, 400),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "initial_log_scale": Between(-6.0, -1.0),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: Literal["evidence", "reference_gp"] = "evidence"  # `reference_gp`: the fixed kernel of the reference problems
    hidden_layers: int = 1
    hidden_units: int = 50
    num_context: int = 200  # M
    gamma: float = 1e-5
    batch_size: int = 200
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    # How far a fit goes and the least noise of its predictions: found on held-out rows where there are 20 to 2,000; or the whole budget, and as learned.
    stop: Literal["validated", "budget"] = "validated"
    initial_log_scale: float = -3.0  # of s, in units of 1/√fan_in
    initial_log_noise: float = -2.0

    def __post_init__(self) -> None:
        require_at_least(
            1, hidden_layers=self.hidden_layers, hidden_units=self.hidden_units, num_context=self.num_context,
            batch_size=self.batch_size,
        )  # fmt: skip
        if not self.gamma > 0.0:
            raise ValueError(f"gamma must be positive, got {self.gamma}")

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[LinearisedNetwork]:
        prior = self.process(train, budget, generator)

        def start() -> MeanFieldTraining[LinearisedNetwork]:
            return MeanFieldTraining(LinearisedNetwork(self, train.x, prior, generator), self.learning_rate, self.batch_size)

        yield from fitted(start, self, train, budget, generator)

    def process(self, train: Data, budget: Budget, generator: torch.Generator) -> GaussianProcess:
        """The prior over functions: of highest evidence on some rows, or with the fixed kernel."""
        if self.prior == "reference_gp":
            return reference_process(train.x.shape[1], like=train.x)
        rows = torch.randperm(len(train), generator=generator, device=train.x.device)[:PRIOR_ROWS]
        return fitted_process(train.x[rows], train.y[rows], lambda: budget.fraction >= PRIOR_SHARE)


class LinearisedNetwork(NoisyMeanField):
    """q(w) through its linearisation, the Gaussian process prior, and the noise."""

    def __init__(self, options: GFSVI, x: Tensor, prior: GaussianProcess, generator: torch.Generator) -> None:
        hidden = (options.hidden_units,) * options.hidden_layers
        super().__init__(x, hidden, options.initial_log_scale, options.initial_log_noise, generator)
        self.options, self.prior = options, prior

    def loss(self, batch: Data, num_rows: int, generator: torch.Generator) -> Tensor:
        mean, variance = self.marginals(batch.x)
        data_term = alpha_energy(batch.y, mean[None], variance, self.noise, alpha=0.0).mean()
        divergence = self.divergence(self.box.draw(self.options.num_context, generator))
        self.last_kl = divergence.item()
        return divergence / num_rows - data_term

    def marginals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x; m) and the diagonal of J diag(s²) Jᵀ, [N] each."""
        linearisation = self.q.linearise(x)
        return linearisation.value, linearisation.variance((2.0 * self.q.log_scales).exp())

    def divergence(self, points: Tensor) -> Tensor:
        """D_γ, all in float64: K is nearly singular, and γM is what the difference of functions is measured with."""
        points = points.double()
        mean, root = self.q.moments(points)
        covariance = self.prior.covariance(points, points)
        return regularised_kl(mean, root, torch.zeros_like(mean), covariance, self.options.gamma * len(points))

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        mean, variance = by_rows(lambda rows: torch.stack(self.marginals(rows)), x, ONE_PASS_ROWS)
        return Predictive(mean[None], (variance + self.predicted_noise).sqrt()[None])

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """f(x; m) + J diag(s) ε"""
        eps = normal(generator, num_draws, self.q.means.numel(), like=x)

        def at(rows: Tensor) -> Tensor:
            mean, root = self.q.moments(rows)
            return mean + eps @ root.mT

        return by_rows(at, x)

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.prior.draw(x, num_draws, generator).to(x.dtype)
