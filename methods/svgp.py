"""Sparse variational Gaussian process regression: the baseline where exact Gaussian processes are too slow.

Hensman, Fusi, Lawrence: Gaussian processes for big data, UAI 2013, through gpytorch (`pip install fsibench[gp]`). ARD
RBF kernel, M inducing inputs that start at training rows and are learned, a whitened full-covariance q(u) and the
stochastic evidence bound

    N/B Σ_n E_q[log N(y_n | f(x_n), σ²)] − KL[q(u) ‖ p(u)].
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fsibench.blocks.draws import ONE_PASS_ROWS, by_rows, normal
from fsibench.blocks.kernels import median_distances
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE
from fsibench.blocks.training import Schedule, finite_or_diverged, schedule_factor
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.errors import UsageError
from fsibench.predictive import Predictive

# Added to the covariance of inducing values, which gpytorch factorises in double precision. Where inducing inputs have moved on top of
# each other, that covariance has single-precision errors above it: then ten times as much is tried, and so on.
JITTER, NUM_TRIES = 1e-6, 5


@dataclass(frozen=True)
class SVGP(Method):
    """Sparse variational Gaussian process with learned inducing inputs (gpytorch)."""

    name: ClassVar[str] = "svgp"
    paper: ClassVar[str] = "Hensman et al., Gaussian processes for big data, UAI 2013"
    requires: ClassVar[tuple[str, ...]] = ("gpytorch",)
    search: ClassVar[Space] = {
        "num_inducing": (50, 100, 200, 400),
        "batch_size": (64, 128, 256, 512),
        "learning_rate": Between(1e-3, 5e-2, log=True),
        "initial_noise": Between(0.01, 1.0, log=True),
    }

    num_inducing: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    initial_noise: float = 0.1  # variance

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[SparseProcess]:
        model = SparseProcess(self, load_gpytorch(), train, generator)
        optimiser = torch.optim.Adam(model.parameters, lr=self.learning_rate)
        for batch in train.batches(self.batch_size, generator):
            for group in optimiser.param_groups:
                group["lr"] = self.learning_rate * schedule_factor(self.schedule, budget.fraction)
            optimiser.zero_grad()
            loss = model.loss(batch)
            model.last_loss = finite_or_diverged(loss)
            torch.autograd.backward(loss)
            optimiser.step()
            yield model


def load_gpytorch() -> Any:
    try:
        import gpytorch
    except ImportError as error:
        raise UsageError("svgp needs gpytorch, which is not installed: pip install 'fsibench[gp]'") from error
    return gpytorch


class SparseProcess:
    """gpytorch's variational process, its likelihood and its bound."""

    def __init__(self, options: SVGP, gpytorch: Any, train: Data, generator: torch.Generator) -> None:
        self.gpytorch, self.last_loss = gpytorch, math.nan
        rows = torch.randperm(len(train), generator=generator, device=train.x.device)[: options.num_inducing]
        self.process = approximate_process(gpytorch, train.x[rows].clone(), median_distances(train.x))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(MINIMUM_NOISE_VARIANCE)
        )
        self.likelihood.noise = options.initial_noise
        self.bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.process, num_data=len(train))
        self.parameters: list[Tensor] = [*self.process.parameters(), *self.likelihood.parameters()]

    def loss(self, batch: Data) -> Tensor:
        """Negative evidence bound per row."""
        self.process.train()
        with self.careful():
            bound: Tensor = self.bound(self.process(batch.x), batch.y)
        return -bound

    def latent(self, x: Tensor) -> Any:
        self.process.eval()
        with self.careful():
            return self.process(x)

    @contextlib.contextmanager
    def careful(self) -> Iterator[None]:
        """Nearly singular covariances are mended in silence."""
        settings = self.gpytorch.settings
        with settings.cholesky_jitter(double_value=JITTER), settings.cholesky_max_tries(NUM_TRIES), warnings.catch_warnings():
            warnings.simplefilter("ignore", self.gpytorch.utils.warnings.NumericalWarning)
            yield

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        def at(rows: Tensor) -> Tensor:
            latent = self.latent(rows)
            variance = latent.variance.clamp_min(0.0) + self.likelihood.noise
            return torch.stack([latent.mean, variance.sqrt()])

        loc, scale = by_rows(at, x, ONE_PASS_ROWS)
        return Predictive(loc[None], scale[None])

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Joint draws at the distinct inputs; gpytorch itself would draw from the global random stream."""
        distinct, position = torch.unique(x, dim=0, return_inverse=True)
        latent = self.latent(distinct)
        eigenvalues, U = torch.linalg.eigh(latent.covariance_matrix.double())
        eps = normal(generator, num_draws, len(distinct), like=eigenvalues)
        draws: Tensor = latent.mean + (eps * eigenvalues.clamp_min(0.0).sqrt()) @ U.mT
        return draws[:, position].to(x.dtype)

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        return {
            "loss": self.last_loss,
            "noise": self.likelihood.noise.sqrt().item(),
            "inducing_inputs": self.process.variational_strategy.inducing_points.detach().clone(),
        }


def approximate_process(gpytorch: Any, inducing: Tensor, distances: Tensor) -> Any:
    """A zero-mean process with ARD RBF kernel and whitened Cholesky q(u); length scales start at √D median distances.

    A function rather than a class of the module: gpytorch, an extra, is only known at run time.
    """

    class Process(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            # gpytorch adds its jitter, 1e-4 in single precision, to the variance of f as well: more than small noise.
            strategy = gpytorch.variational.VariationalStrategy(
                self, inducing, q, learn_inducing_locations=True, jitter_val=JITTER
            )
            super().__init__(strategy)
            # q(u) starts at the prior; letting gpytorch do it at the first call would use the global random stream.
            strategy.variational_params_initialized.fill_(1)
            self.mean_module = gpytorch.means.ZeroMean()
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=inducing.shape[1])
            rbf.lengthscale = distances[None] * math.sqrt(inducing.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf)
            self.covar_module.outputscale = 1.0

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Process().to(inducing)
