"""Kernels and the Gaussian process with an ARD RBF kernel, shared by `gp`, `svgp` and the prior `gp`.

    k(x, x') = s² exp(−½ Σ_d (x_d − x'_d)² / ℓ_d²)

Hyper-parameters are fitted by type-II maximum likelihood. The gradient of the evidence needs no derivative of a
Cholesky factor: with a = K⁻¹ y,

    ∂/∂θ log N(y | 0, K) = −½ Σᵢⱼ (K⁻¹ − a aᵀ)ᵢⱼ ∂Kᵢⱼ/∂θ
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.bfgs import minimise
from fsibench.blocks.draws import normal
from fsibench.blocks.gaussian import factor, multivariate_log_density
from fsibench.blocks.likelihoods import LOG_2PI, MINIMUM_NOISE_VARIANCE

# Bounds of the hyper-parameters on standardised data, so that no line search can leave the finite numbers.
LENGTHSCALES = (1e-2, 1e4)
SIGNALS = (1e-6, 1e4)
NOISES = (MINIMUM_NOISE_VARIANCE, 1e1)


def squared_distances(x1: Tensor, x2: Tensor) -> Tensor:
    """|x1ᵢ − x2ⱼ|² of shape [N, M], never negative."""
    # Subtracting a common point keeps the cancellation error small when inputs lie far from the origin.
    centre = x1.mean(0, keepdim=True)
    x1, x2 = x1 - centre, x2 - centre
    squares = x1.square().sum(-1)[:, None] + x2.square().sum(-1)[None, :] - 2.0 * x1 @ x2.T
    return squares.clamp_min(0.0)


def rbf(x1: Tensor, x2: Tensor, lengthscales: Tensor | float, signal: Tensor | float = 1.0) -> Tensor:
    """s² exp(−½ |(x1 − x2)/ℓ|²) of shape [N, M]; `signal` is the variance s²."""
    return signal * torch.exp(-0.5 * squared_distances(x1 / lengthscales, x2 / lengthscales))


def median_distances(x: Tensor) -> Tensor:
    """Median of |x_id − x_jd| over pairs, per column [D]; one where a column is constant."""
    rows = x[torch.linspace(0, len(x) - 1, min(len(x), 500)).long()]  # 500 rows give the median well enough
    first, second = torch.triu_indices(len(rows), len(rows), offset=1)
    if first.numel() == 0:
        return torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
    median = (rows[first] - rows[second]).abs().median(0).values  # [D]
    # More than half of the pairs of a binary column may agree: its spread serves where the median vanishes.
    spread = rows.std(0, correction=0)
    median = torch.where(median > 1e-6, median, spread)
    return torch.where(median > 1e-6, median, torch.ones_like(median))


@dataclass(frozen=True)
class GaussianProcess:
    """A zero-mean GP with an ARD RBF kernel and observation noise: lengthscales [D], variances s² and σ², float64."""

    lengthscales: Tensor
    signal: Tensor
    noise: Tensor

    def covariance(self, x1: Tensor, x2: Tensor) -> Tensor:
        return rbf(x1.double(), x2.double(), self.lengthscales, self.signal)  # [N, M]

    def factor(self, x: Tensor, nugget: Tensor | float) -> Tensor:
        """Cholesky factor of K(x, x) + nugget · I."""
        K = self.covariance(x, x)
        return factor(K + nugget * torch.eye(len(x), dtype=K.dtype, device=K.device))

    def log_evidence(self, x: Tensor, y: Tensor) -> Tensor:
        """log N(y | 0, K + σ² I)."""
        return multivariate_log_density(y.double(), self.factor(x, self.noise))

    def log_prob(self, f: Tensor, x: Tensor, nugget: float) -> Tensor:
        """log N(f | 0, K + nugget · I) for functions f [S, N] at x [N, D]; shape [S], differentiable in f."""
        return multivariate_log_density(f.double(), self.factor(x, nugget))

    def score(self, f: Tensor, x: Tensor, nugget: float) -> Tensor:
        """∇_f log N(f | 0, K + nugget · I) = −(K + nugget · I)⁻¹ f, of shape [S, N]."""
        return -torch.cholesky_solve(f.double().T, self.factor(x, nugget)).T

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions of the prior at x, [num_draws, N]."""
        L = self.factor(x, 1e-9 * float(self.signal))
        return normal(generator, num_draws, len(x), like=L) @ L.T


@dataclass(frozen=True)
class Start:
    """Where a search for hyper-parameters begins: lengthscales [D], variances s² and σ²."""

    lengthscales: Tensor
    signal: float
    noise: float


@dataclass(frozen=True)
class Bounds:
    """log θ = low + (high − low) · sigmoid(u): hyper-parameters θ stay finite wherever a line search steps."""

    low: Tensor
    high: Tensor

    @classmethod
    def standard(cls, num_inputs: int, device: torch.device) -> Bounds:
        pairs = torch.tensor([LENGTHSCALES] * num_inputs + [SIGNALS, NOISES], dtype=torch.float64, device=device)
        low, high = pairs.log().unbind(-1)
        return cls(low, high)

    def unconstrained(self, start: Start) -> Tensor:
        others = torch.tensor([start.signal, start.noise], dtype=torch.float64, device=self.low.device)
        log_theta = torch.cat([start.lengthscales.double(), others]).log()
        return torch.logit(((log_theta - self.low) / (self.high - self.low)).clamp(1e-3, 1.0 - 1e-3))

    def process(self, unconstrained: Tensor) -> GaussianProcess:
        theta = torch.exp(self.low + (self.high - self.low) * torch.sigmoid(unconstrained))
        return GaussianProcess(theta[:-2], theta[-2], theta[-1])


def negative_log_evidence(process: GaussianProcess, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """−log N(y | 0, K + σ² I), and a surrogate with the same gradient that no Cholesky derivative enters."""
    K = process.covariance(x, x)
    K = K + process.noise * torch.eye(len(x), dtype=K.dtype, device=K.device)
    with torch.no_grad():
        L = factor(K)
        a = torch.cholesky_solve(y[:, None], L)  # [N, 1]
        value = 0.5 * float(y @ a[:, 0]) + float(L.diagonal().log().sum()) + 0.5 * len(y) * LOG_2PI
        weights = torch.cholesky_inverse(L) - a @ a.T  # [N, N]
    return value, 0.5 * (weights * K).sum()


def maximise_evidence(
    x: Tensor, y: Tensor, start: Start, max_iterations: int = 200, tolerance: float = 5e-5
) -> Iterator[tuple[GaussianProcess, float]]:
    """Type-II maximum likelihood by BFGS: after each iteration the process and its −log evidence.

    Ends when ten iterations together improve the evidence by less than `tolerance` per row.
    """
    x, y = x.double(), y.double()
    bounds = Bounds.standard(x.shape[1], x.device)

    def objective(point: Tensor) -> tuple[float, Tensor]:
        point = point.detach().requires_grad_()
        value, surrogate = negative_log_evidence(bounds.process(point), x, y)
        (gradient,) = torch.autograd.grad(surrogate, point)
        return value, gradient

    history: list[float] = []
    for point, value in minimise(objective, bounds.unconstrained(start), max_iterations):
        yield bounds.process(point), value
        history.append(value)
        if len(history) > 10 and history[-11] - value < tolerance * len(y):
            return


def standard_starts(x: Tensor) -> list[Start]:
    """Where the search begins: smooth functions with some noise, then wigglier ones with little noise."""
    base = median_distances(x.double()) * math.sqrt(x.shape[1])
    return [Start(base * shrink, 1.0, noise) for shrink, noise in ((1.0, 0.1), (0.3, 0.01), (3.0, 0.3))]


def fitted_process(x: Tensor, y: Tensor, stop: Callable[[], bool] = lambda: False) -> GaussianProcess:
    """The process of highest evidence over the first two starts; ends early, with the best so far, once `stop()`."""
    best, best_value = None, math.inf
    for start in standard_starts(x)[:2]:
        for process, value in maximise_evidence(x, y, start):
            if best is None or value < best_value:
                best, best_value = process, value
            if stop():
                return best
    assert best is not None
    return best
