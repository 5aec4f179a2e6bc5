"""A process seen through its moments: a Bayesian linear model on draws of a prior, and predictions from it.

S draws of a prior have the mean m and the features Φ with covariance ΦΦᵀ. The linear model

    f(x) = m(x) + φ(x)ᵀa,   a ~ N(0, I),   y = f(x) + N(0, v)

has exactly those moments. Its posterior of a is Gaussian; given it, predictions need no training rows.
"""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.draws import by_rows, chunks, normal
from fsibench.blocks.gaussian import factor, linear_posterior_from_moments
from fsibench.blocks.priors import Prior
from fsibench.predictive import Predictive

# m [N] and Φ [N, K] at some inputs.
Features = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LinearModel(abc.ABC):
    """f = m + Φa with a Gaussian a of this mean [K], in float64, and `noise`, the variance of y given f."""

    features: Features
    mean: Tensor
    noise: float

    @abc.abstractmethod
    def variance(self, features: Tensor) -> Tensor:
        """Var[φᵀa] for each row of Φ [N, K], which has the precision of the inputs."""

    @abc.abstractmethod
    def coefficients(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """Draws of a: [num_draws, K]."""

    def moments(self, x: Tensor) -> Tensor:
        """Mean and standard deviation of y at each row: [2, N]."""

        def at(rows: Tensor) -> Tensor:
            m, features = self.features(rows)
            return torch.stack([m + features.double() @ self.mean, (self.variance(features).double() + self.noise).sqrt()])

        return by_rows(at, x)

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions m + Φa: [num_draws, N]."""
        a = self.coefficients(num_draws, generator)

        def at(rows: Tensor) -> Tensor:
            m, features = self.features(rows)
            return m + a @ features.double().mT

        return by_rows(at, x)


@dataclass(frozen=True)
class RootModel(LinearModel):
    """Covariance of a as R Rᵀ: for fewer features than rows."""

    root: Tensor  # R, [K, K]

    def variance(self, features: Tensor) -> Tensor:
        # a sum of squares loses no digits, so the largest product of a prediction needs no more of them than Φ has
        return (features @ self.root.to(features.dtype)).square().sum(-1)

    def coefficients(self, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.mean + normal(generator, num_draws, len(self.mean), like=self.mean) @ self.root.mT


@dataclass(frozen=True)
class RowModel(LinearModel):
    """Covariance of a as I − Φᵀ(ΦΦᵀ + vI)⁻¹Φ with Φ at the rows conditioned on: for fewer rows than features."""

    factor: Tensor  # L with L Lᵀ = ΦΦᵀ + vI, [n, n]
    whitened: Tensor  # W = L⁻¹Φ, [n, K], with which the covariance is I − WᵀW
    total_noise: float  # v

    def variance(self, features: Tensor) -> Tensor:
        features = features.double()
        return (features.square().sum(-1) - (features @ self.whitened.mT).square().sum(-1)).clamp_min(0.0)

    def coefficients(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """By Matheron's rule: a draw of the prior, corrected by what it says about the rows."""
        n, K = self.whitened.shape
        eps, eta = normal(generator, num_draws, K, like=self.mean), normal(generator, num_draws, n, like=self.mean)
        # Φᵀ(L Lᵀ)⁻¹(Φε + √v η) = Wᵀ(Wε + √v L⁻¹η)
        noise: Tensor = torch.linalg.solve_triangular(self.factor, eta.mT, upper=False).mT
        return self.mean + eps - (eps @ self.whitened.mT + math.sqrt(self.total_noise) * noise) @ self.whitened


# An exact posterior conditions on at most so many training rows: more hardly change some hundred coefficients, and each
# refresh of predictions passes over all of them.
POSTERIOR_ROWS = 20_000


def feature_moments(features: Features, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """ΦᵀΦ [K, K] and Φᵀ(y − m) [K] over these rows, in float64."""
    total: tuple[Tensor, Tensor] | None = None
    for rows, targets in chunks(x, y):
        mean, phi = features(rows)
        phi = phi.double()
        gram, projection = phi.mT @ phi, phi.mT @ (targets - mean).double()
        total = (gram, projection) if total is None else (total[0] + gram, total[1] + projection)
    assert total is not None
    return total


def conditioned(features: Features, x: Tensor, y: Tensor, noise: float, nugget: float = 0.0) -> LinearModel:
    """The exact posterior given rows with noise variance `noise`; `nugget` is white noise that belongs to the prior."""
    total = noise + nugget
    if len(y) < features(x[:1])[1].shape[1]:
        parts = [features(rows) for (rows,) in chunks(x)]
        phi = torch.cat([part[1] for part in parts]).double()
        residual = (y - torch.cat([part[0] for part in parts])).double()
        L = factor(phi @ phi.mT + total * torch.eye(len(phi), dtype=phi.dtype, device=phi.device))
        # one solve for all predictions, on the clock of the fit; Φᵀ(L Lᵀ)⁻¹r = Wᵀ L⁻¹r
        whitened, scaled = torch.linalg.solve_triangular(L, torch.cat([phi, residual[:, None]], 1), upper=False).split(
            [phi.shape[1], 1], 1
        )
        return RowModel(features, whitened.mT @ scaled[:, 0], noise, L, whitened, total)
    gram, projection = feature_moments(features, x, y)
    mean, C = linear_posterior_from_moments(gram, projection, gram.new_tensor(total))
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return RootModel(features, mean, noise, torch.linalg.solve_triangular(C.mT, identity, upper=True))


class MomentPosterior:
    """A mixture of linear models of equal weight: what VIP predicts with. Nothing here changes while training goes on."""

    def __init__(self, models: Sequence[LinearModel], prior: Prior, trace: dict[str, float | Tensor]) -> None:
        self.models, self.prior, self._trace = models, prior, trace

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        """One Gaussian for each model."""
        moments = torch.stack([model.moments(x) for model in self.models], 1).to(x.dtype)  # [2, models, N]
        return Predictive(moments[0], moments[1])

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions of the models in turn."""
        draws = x.new_empty(num_draws, len(x))
        for index, model in enumerate(self.models):
            mine = draws[index :: len(self.models)]
            mine.copy_(model.draw(x, len(mine), generator))
        return draws

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.prior.draw(x, num_draws, generator)

    def trace(self) -> dict[str, float | Tensor]:
        return self._trace


def frozen(prior: Prior) -> Prior:
    """A copy that training leaves alone."""
    return copy.deepcopy(prior)
