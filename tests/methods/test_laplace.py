"""Linearised Laplace against Bayesian linear regression and dense algebra; laplace-torch is asked in tests/oracle."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fsibench.blocks.batched import starting_parameters
from fsibench.checks import fit, linear_data
from fsibench.contract import Data
from fsibench.methods.laplace import Laplace, LinearisedNetwork, Network

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_data(num_data: int) -> Data:
    data = linear_data(num_data)
    return Data(data.x.double(), data.y.double())


def linear_model(data: Data, precision: float, noise: float) -> LinearisedNetwork:
    """A network without hidden layer at its weights of highest posterior density."""
    X = torch.cat([data.x, torch.ones(len(data), 1, dtype=F64)], 1)
    weights = torch.linalg.solve(X.mT @ X / noise + precision * torch.eye(4, dtype=F64), X.mT @ data.y / noise)
    return Network(weights, (3, 1), "all").posterior(data, precision, noise)


@pytest.mark.parametrize("num_data", [3, 50])  # fewer rows than weights, and more
def test_of_a_linear_model_evidence_and_prediction_are_exact(num_data: int) -> None:
    data, precision, noise = some_data(num_data), 0.7, 0.2
    posterior = linear_model(data, precision, noise)
    X = torch.cat([data.x, torch.ones(num_data, 1, dtype=F64)], 1)
    covariance = X @ X.mT / precision + noise * torch.eye(num_data, dtype=F64)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(num_data, dtype=F64), covariance).log_prob(data.y)
    assert posterior.log_evidence() == pytest.approx(float(evidence), abs=1e-8)
    test_x = torch.randn(6, 3, generator=stream(), dtype=F64)
    T = torch.cat([test_x, torch.ones(6, 1, dtype=F64)], 1)
    gain = T @ X.mT / precision @ torch.linalg.inv(covariance)
    mean, variance = posterior.moments(test_x)
    torch.testing.assert_close(mean, gain @ data.y)
    torch.testing.assert_close(variance, (T @ T.mT / precision - gain @ X @ T.mT / precision).diagonal())


@pytest.mark.parametrize("layers", ["all", "last"])
@pytest.mark.parametrize("num_data", [20, 90])
def test_variance_is_that_of_the_dense_gauss_newton_matrix(layers: str, num_data: int) -> None:
    data, widths = some_data(num_data), (3, 6, 5, 1)
    network = Network(starting_parameters(1, widths, "tanh", 0.3, stream(), F64)[0], widths, layers)
    posterior = network.posterior(data, 0.5, 0.1)
    _, J = network.linearised(data.x)
    assert J.shape[1] == (65 if layers == "all" else 6)
    sigma = torch.linalg.inv(J.mT @ J / 0.1 + 0.5 * torch.eye(J.shape[1], dtype=F64))
    x = torch.randn(8, 3, generator=stream(1), dtype=F64)
    _, Jx = network.linearised(x)
    torch.testing.assert_close(posterior.moments(x)[1], (Jx @ sigma @ Jx.mT).diagonal())
    draws = posterior.draw(x, 40_000, stream(2))
    torch.testing.assert_close(draws.mT.cov(), Jx @ sigma @ Jx.mT, rtol=0.1, atol=0.05)


def test_hyper_parameters_maximise_the_evidence() -> None:
    posterior = linear_model(some_data(50), 1.0, 1.0)
    for _ in range(20):  # w* depends on them, as in training
        best = posterior.of_highest_evidence()
        posterior = linear_model(some_data(50), best.precision, best.noise)
    best = posterior.of_highest_evidence()
    for name in ("precision", "noise"):
        for factor in (0.97, 1.03):
            other = dataclasses.replace(best, **{name: factor * getattr(best, name)})
            assert other.log_evidence() < best.log_evidence()


@pytest.mark.parametrize("layers", ["all", "last"])
def test_training_finds_the_noise(layers: str) -> None:
    posterior = fit(Laplace(layers=layers, hidden_units=10, learning_rate=0.01, batch_size=50), linear_data(300, noise=0.3), 600)
    # y = sum of three inputs + 0.3 noise, standardised: 0.3/√3.09
    assert posterior.trace()["noise"] == pytest.approx(0.17, rel=0.1)
