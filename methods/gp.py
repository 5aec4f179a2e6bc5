"""Exact Gaussian process regression with an ARD RBF kernel, hyper-parameters by type-II maximum likelihood.

    f ~ GP(0, s² exp(−½ Σ_d (x_d − x'_d)²/ℓ_d²)),   y = f(x) + N(0, σ²)

Rasmussen and Williams (2006), equations 2.25 and 2.26 -> `GPPosterior`, 5.8 and 5.9 -> `blocks.kernels`. The evidence
has several maxima, so BFGS starts from several points; every iteration yields the best process seen so far, and
the fit ends when the last start has converged. Cubic in N: meant for at most 3,000 rows. Everything in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fsibench.blocks.draws import normal
from fsibench.blocks.gaussian import factor
from fsibench.blocks.kernels import GaussianProcess, maximise_evidence, standard_starts
from fsibench.contract import Budget, Data, Method, Posterior
from fsibench.errors import Diverged
from fsibench.predictive import Predictive


@dataclass(frozen=True)
class GPPosterior:
    """The exact posterior of a `GaussianProcess` given the training rows."""

    process: GaussianProcess
    train: Data
    log_evidence: float

    @cached_property
    def factor_and_weights(self) -> tuple[Tensor, Tensor]:
        L = self.process.factor(self.train.x, self.process.noise)
        return L, torch.cholesky_solve(self.train.y.double()[:, None], L)[:, 0]

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [N] and L⁻¹K(train, x) [N_train, N], from which covariances follow."""
        L, weights = self.factor_and_weights
        Kfx = self.process.covariance(self.train.x, x)
        return Kfx.T @ weights, torch.linalg.solve_triangular(L, Kfx, upper=False)

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        mean, V = self._moments(x)
        variance = (self.process.signal - V.square().sum(0)).clamp_min(0.0) + self.process.noise
        return Predictive(mean[None].to(x.dtype), variance.sqrt()[None].to(x.dtype))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        mean, V = self._moments(x)
        L = factor(self.process.covariance(x, x) - V.T @ V)
        return (mean + normal(generator, num_draws, len(x), like=L) @ L.T).to(x.dtype)

    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.process.draw(x, num_draws, generator).to(x.dtype)

    def trace(self) -> dict[str, float | Tensor]:
        return {
            "log_evidence": self.log_evidence,
            "noise": float(self.process.noise.sqrt()),
            "signal": float(self.process.signal),
            "lengthscales": self.process.lengthscales,
        }


@dataclass(frozen=True)
class GP(Method):
    """Exact Gaussian process, ARD RBF kernel, type-II maximum likelihood."""

    name = "gp"
    waivers: ClassVar[Mapping[str, str]] = {"different_seeds_differ": "nothing in the fit is random"}
    paper = "Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006"
    max_rows = 3000

    starts: int = 3
    max_iterations: int = 200

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        best: GPPosterior | None = None
        for start in standard_starts(train.x)[: self.starts]:
            for process, loss in maximise_evidence(train.x, train.y, start, self.max_iterations):
                if math.isfinite(loss) and (best is None or -loss > best.log_evidence):
                    best = GPPosterior(process, train, -loss)
                if best is None:
                    raise Diverged("the evidence of the Gaussian process is not finite")
                _ = best.factor_and_weights  # what predictions need of the training rows, on the clock
                yield best
