"""Bayesian linear regression in closed form, with the evidence maximised over both of its hyper-parameters.

    f(x) = wᵀ[x, 1],   w ~ N(0, σ²/λ I),   y = f(x) + N(0, σ²)

Posterior: A = XᵀX + λ I, w | y ~ N(A⁻¹Xᵀy, σ² A⁻¹). Given λ the evidence is maximal at

    σ²(λ) = 1/N yᵀ(I + XXᵀ/λ)⁻¹y = 1/N [ yᵀy − Σᵢ cᵢ²/(sᵢ + λ) ],   XᵀX = V diag(s) Vᵀ,  c = VᵀXᵀy,

which leaves the one-dimensional search −2 log p(y) = N log σ²(λ) + Σᵢ log(1 + sᵢ/λ) + const (evidence maximisation,
Gull 1988, MacKay 1992). Rows enter only through XᵀX, Xᵀy and yᵀy: any N, one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsibench.blocks.draws import normal
from fsibench.blocks.gaussian import factor
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE
from fsibench.blocks.linear_process import feature_moments
from fsibench.contract import Budget, Data, Method, Posterior
from fsibench.predictive import Predictive


@dataclass(frozen=True)
class LinearPosterior:
    """Weights N(mean, root rootᵀ) over [x, 1], float64, and the noise variance."""

    mean: Tensor
    root: Tensor
    noise: Tensor
    ridge: Tensor

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        inputs = with_intercept(x)  # [N, D + 1]
        variance = (inputs @ self.root).square().sum(-1) + self.noise
        return Predictive((inputs @ self.mean)[None].to(x.dtype), variance.sqrt()[None].to(x.dtype))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        weights = self.mean + normal(generator, num_draws, len(self.mean), like=self.mean) @ self.root.T  # [S, D + 1]
        return (weights @ with_intercept(x).T).to(x.dtype)

    def trace(self) -> dict[str, float | Tensor]:
        return {"noise": float(self.noise.sqrt()), "ridge": float(self.ridge)}


@dataclass(frozen=True)
class Linear(Method):
    """Bayesian linear regression; the prior's scale and the noise maximise the evidence."""

    name = "linear"
    waivers: ClassVar[Mapping[str, str]] = {"different_seeds_differ": "nothing in the fit is random"}
    paper = "MacKay, Bayesian Interpolation, Neural Computation 1992"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        gram, projection, square = moments(train)
        ridge, noise = maximise_evidence(gram, projection, square, len(train))
        identity = torch.eye(len(projection), dtype=gram.dtype, device=gram.device)
        L = factor(gram + ridge * identity)
        mean = torch.cholesky_solve(projection[:, None], L)[:, 0]
        # Cov = σ² A⁻¹ = σ² L⁻ᵀ L⁻¹
        root = noise.sqrt() * torch.linalg.solve_triangular(L.T, identity, upper=True)
        yield LinearPosterior(mean, root, noise, ridge)


def with_intercept(x: Tensor) -> Tensor:
    """[x, 1] in float64, of shape [N, D + 1]."""
    x = x.double()
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype, device=x.device)], dim=1)


def moments(train: Data) -> tuple[Tensor, Tensor, Tensor]:
    """XᵀX [D + 1, D + 1], Xᵀy [D + 1] and yᵀy."""
    gram, projection = feature_moments(lambda x: (x.new_zeros(len(x)), with_intercept(x)), train.x, train.y)
    return gram, projection, train.y.double().square().sum()


def maximise_evidence(gram: Tensor, projection: Tensor, square: Tensor, num_data: int) -> tuple[Tensor, Tensor]:
    """The λ and σ² of highest evidence: a grid over log λ, refined around its best point."""
    s, V = torch.linalg.eigh(gram)
    s, c = s.clamp_min(0.0), V.T @ projection  # [D + 1]
    low, high = -18.0, 28.0  # λ from 1e-8 to 1e12: from least squares to no weights at all
    for _ in range(5):
        log_ridge = torch.linspace(low, high, 201, dtype=torch.float64, device=gram.device)
        ridge = log_ridge.exp()[:, None]  # [201, 1]
        noise = ((square - (c.square() / (s + ridge)).sum(1)) / num_data).clamp_min(MINIMUM_NOISE_VARIANCE)  # [201]
        negative_evidence = num_data * noise.log() + torch.log1p(s / ridge).sum(1)
        best = int(negative_evidence.argmin())
        step = (high - low) / 200.0
        low, high = float(log_ridge[best]) - step, float(log_ridge[best]) + step
    return ridge[best, 0], noise[best]
