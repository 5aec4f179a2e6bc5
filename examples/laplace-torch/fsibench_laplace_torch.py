"""laplace-torch: train a network, then put a Gaussian around its last layer."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from laplace import Laplace
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fsibench import Budget, Data, Diverged, Method, Posterior, Predictive


@dataclass(frozen=True)
class LaplaceTorch(Method):
    """Last-layer Laplace approximation by laplace-torch, hyper-parameters by evidence."""

    name: ClassVar[str] = "laplace_torch"
    paper: ClassVar[str] = "Daxberger et al., Laplace redux, NeurIPS 2021"

    hidden_units: int = 50
    learning_rate: float = 1e-2
    epochs_per_step: int = 20
    patience: int = 10  # steps without a better network, by held-out rows, after which training ends

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        network = build(train.num_inputs, self.hidden_units, generator)
        order = torch.randperm(len(train), generator=generator)
        held_out = max(1, len(train) // 6)  # these rows tell the noise and the best network; residuals of the others are too small
        noise_rows, fit_rows = (Data(train.x[rows], train.y[rows]) for rows in (order[:held_out], order[held_out:]))
        optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate, weight_decay=1e-3)
        lowest, steps_since = float("inf"), 0
        while steps_since < self.patience:
            for _ in range(self.epochs_per_step):
                optimiser.zero_grad()
                nn.functional.mse_loss(network(fit_rows.x)[:, 0], fit_rows.y).backward()
                optimiser.step()
            noise = residual_scale(network, noise_rows)
            if not math.isfinite(noise):
                raise Diverged("the network's predictions are not finite")
            steps_since += 1
            if noise < lowest:
                lowest, steps_since = noise, 0
                posterior = LastLayer(copy.deepcopy(network), fit_rows, max(noise, 1e-3))  # on the clock, like the training
            yield posterior


def build(num_inputs: int, hidden: int, generator: torch.Generator) -> nn.Sequential:
    """A network whose start comes from the generator, not from torch's global stream."""
    with torch.random.fork_rng():
        network = nn.Sequential(nn.Linear(num_inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    for weight in network.parameters():
        nn.init.normal_(weight, 0.0, 1.0 / max(weight.shape[-1], 1) ** 0.5, generator=generator)
    return network


@torch.no_grad()
def residual_scale(network: nn.Sequential, rows: Data) -> float:
    """Root of the mean squared error at some rows."""
    return float((network(rows.x)[:, 0] - rows.y).square().mean().sqrt())


class LastLayer:
    """Laplace's own posterior over the last layer."""

    def __init__(self, network: nn.Sequential, train: Data, noise: float) -> None:
        rows = DataLoader(TensorDataset(train.x, train.y[:, None]), batch_size=len(train))
        with torch.random.fork_rng():
            self.posterior: Any = Laplace(network, "regression", subset_of_weights="last_layer", hessian_structure="full")
            self.posterior.fit(rows)
            self.posterior.optimize_prior_precision(method="marglik")
        self.hidden = nn.Sequential(*list(network)[:-1])
        self.noise = self.posterior.sigma_noise = noise

    def features(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        return torch.cat([hidden, torch.ones(len(x), 1)], 1).detach()  # last-layer weights, then its bias

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        phi = self.features(x)
        mean = phi @ self.posterior.mean.detach()
        variance = (phi @ self.posterior.posterior_covariance.detach() * phi).sum(1) + self.noise**2
        return Predictive(mean[None], variance.sqrt()[None])

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        covariance = self.posterior.posterior_covariance.detach().double()
        root = torch.linalg.cholesky(covariance + 1e-10 * torch.eye(len(covariance), dtype=torch.float64))
        eps = torch.randn(num_draws, len(root), generator=generator, dtype=torch.float64)
        weights = self.posterior.mean.detach().double() + eps @ root.mT
        return (weights @ self.features(x).double().mT).float()
