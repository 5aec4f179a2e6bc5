"""scikit-learn's Gaussian process regressor: a model that fits in one go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from torch import Tensor

from fsibench import Budget, Data, Method, Posterior, Predictive


@dataclass(frozen=True)
class SklearnGP(Method):
    """Exact Gaussian process of scikit-learn, one lengthscale per input."""

    name: ClassVar[str] = "sklearn_gp"
    paper: ClassVar[str] = "Pedregosa et al., Scikit-learn: Machine learning in Python, JMLR 2011"
    max_rows: ClassVar[int] = 2000
    waivers: ClassVar[Mapping[str, str]] = {"different_seeds_differ": "without restarts the fit is deterministic"}

    restarts: int = 0

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        seed = int(torch.randint(2**31, (), generator=generator))
        kernel = ConstantKernel() * RBF([1.0] * train.num_inputs) + WhiteKernel(0.1)
        model = GaussianProcessRegressor(kernel, n_restarts_optimizer=self.restarts, random_state=seed)
        yield Fitted(model.fit(train.x.double().numpy(), train.y.double().numpy()))


class Fitted:
    """A fitted regressor as a posterior."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def noise_variance(self) -> float:
        return float(self.model.kernel_.k2.noise_level)

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        mean, scale = self.model.predict(x.double().numpy(), return_std=True)  # of y: the kernel holds the noise
        return Predictive(torch.from_numpy(mean)[None].float(), torch.from_numpy(scale)[None].float().clamp(min=1e-6))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions without noise: the covariance of y less the noise on its diagonal, equal rows drawn once."""
        rows, place = torch.unique(x, dim=0, return_inverse=True)
        mean, covariance = self.model.predict(rows.double().numpy(), return_cov=True)
        eye = torch.eye(len(rows), dtype=torch.float64)
        values, vectors = torch.linalg.eigh(torch.from_numpy(covariance) - self.noise_variance * eye)
        root = vectors * values.clamp(min=0.0).sqrt()
        eps = torch.randn(len(rows), num_draws, generator=generator, dtype=torch.float64)
        return (torch.from_numpy(mean)[:, None] + root @ eps).mT.float()[:, place]
