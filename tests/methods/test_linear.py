"""Bayesian linear regression against its closed form, written a second time with other formulas."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from fsibench.contract import Budget, Data
from fsibench.methods.linear import Linear, LinearPosterior


def regression(num_rows: int, num_inputs: int, noise: float, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, num_inputs, generator=generator)
    weights = torch.randn(num_inputs, generator=generator)
    return Data(x, x @ weights + noise * torch.randn(num_rows, generator=generator))


def fitted(data: Data) -> LinearPosterior:
    posterior = next(Linear().fit(data, Budget(steps=1), torch.Generator().manual_seed(1)))
    assert isinstance(posterior, LinearPosterior)
    return posterior


def covariance_of_targets(x: Tensor, ridge: float, noise: float) -> npt.NDArray[np.float64]:
    inputs = np.column_stack([x.double().numpy(), np.ones(len(x))])
    return np.asarray(noise * (np.eye(len(x)) + inputs @ inputs.T / ridge))


def test_predictions_equal_gaussian_conditioning_to_one_millionth() -> None:
    # The same model as a Gaussian process with linear kernel, conditioned by the N x N formulas.
    data, test = regression(40, 3, 0.3), regression(10, 3, 0.3, seed=5)
    posterior = fitted(data)
    ridge, noise = float(posterior.ridge), float(posterior.noise)
    joint = covariance_of_targets(torch.cat([data.x, test.x]), ridge, noise)
    gain = joint[40:, :40] @ np.linalg.inv(joint[:40, :40])
    predictive = posterior.predict(test.x.double(), torch.Generator())
    assert predictive.mean.numpy() == pytest.approx(gain @ data.y.double().numpy(), abs=1e-6)
    variance = np.diag(joint[40:, 40:] - gain @ joint[:40, 40:])
    assert predictive.variance.numpy() == pytest.approx(variance, abs=1e-6)


def test_the_evidence_is_highest_at_the_fitted_hyperparameters() -> None:
    data = regression(60, 4, 0.5)
    posterior = fitted(data)
    ridge, noise = float(posterior.ridge), float(posterior.noise)

    def log_evidence(ridge: float, noise: float) -> float:
        covariance = covariance_of_targets(data.x, ridge, noise)
        return float(multivariate_normal(np.zeros(60), covariance).logpdf(data.y.double().numpy()))

    best = log_evidence(ridge, noise)
    for factor in (0.8, 0.99, 1.01, 1.25):
        assert log_evidence(ridge * factor, noise) < best
        assert log_evidence(ridge, noise * factor) < best


def test_draws_have_the_moments_of_the_posterior() -> None:
    data = regression(30, 2, 0.3)
    posterior = fitted(data)
    x = data.x[:5].double()
    draws = posterior.draw(x, 40_000, torch.Generator().manual_seed(2))
    predictive = posterior.predict(x, torch.Generator())
    assert draws.mean(0).numpy() == pytest.approx(predictive.mean.numpy(), abs=5e-3)
    function_variance = predictive.variance - posterior.noise
    assert draws.var(0).numpy() == pytest.approx(function_variance.numpy(), rel=0.05)


@pytest.mark.parametrize("num_rows", [3, 20])
def test_more_features_than_rows_duplicates_and_constant_targets_are_fine(num_rows: int) -> None:
    wide = regression(num_rows, 100, 0.1)
    doubled = Data(wide.x.repeat(2, 1), wide.y.repeat(2))
    flat = Data(wide.x, torch.zeros(num_rows))
    for data in (wide, doubled, flat):
        log_prob = fitted(data).predict(data.x, torch.Generator()).log_prob(data.y)
        assert bool(torch.isfinite(log_prob).all())
