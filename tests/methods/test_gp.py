"""The exact Gaussian process against scikit-learn: same kernel, same data, same evidence, same predictions."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from fsibench import registry
from fsibench.contract import Budget, Data
from fsibench.data import prepare
from fsibench.methods.gp import GP, GPPosterior

# length scale in units of √D, and noise variance, where scikit-learn's searches begin
STARTS = ((1.0, 0.1), (0.3, 0.01), (3.0, 0.3))


def smooth_data(num_rows: int, num_inputs: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, num_inputs, generator=generator)
    y = torch.sin(2.0 * x[:, 0]) + 0.3 * x[:, -1] + 0.1 * torch.randn(num_rows, generator=generator)
    return Data(x, y)


def converged(data: Data, **options: int) -> GPPosterior:
    *_, posterior = GP(**options).fit(data, Budget(steps=1000), torch.Generator().manual_seed(0))
    assert isinstance(posterior, GPPosterior)
    return posterior


def reference(data: Data, starts: tuple[tuple[float, float], ...]) -> GaussianProcessRegressor:
    """scikit-learn's best fit over some starts: the evidence has several maxima."""
    D = data.num_inputs

    def regressor(start: tuple[float, float]) -> GaussianProcessRegressor:
        lengths = RBF(np.full(D, start[0] * math.sqrt(D)), (1e-2, 1e4))
        kernel = ConstantKernel(1.0, (1e-6, 1e4)) * lengths + WhiteKernel(start[1], (1e-6, 10.0))
        return GaussianProcessRegressor(kernel, alpha=0.0).fit(data.x.double().numpy(), data.y.double().numpy())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parameters at their bounds, of which there are some: irrelevant inputs
        return max(map(regressor, starts), key=lambda fitted: fitted.log_marginal_likelihood_value_)


def log_density(regressor: GaussianProcessRegressor, test: Data) -> np.ndarray:
    mean, scale = regressor.predict(test.x.double().numpy(), return_std=True)
    z = (test.y.double().numpy() - mean) / scale
    return np.asarray(-0.5 * z**2 - np.log(scale) - 0.5 * math.log(2.0 * math.pi))


def test_evidence_and_predictions_agree_with_scikit_learn() -> None:
    data, test = smooth_data(80, 3), smooth_data(40, 3, seed=9)
    posterior, regressor = converged(data), reference(data, STARTS[:2])
    assert posterior.log_evidence == pytest.approx(regressor.log_marginal_likelihood_value_, abs=0.05)
    ours = posterior.predict(test.x.double(), torch.Generator()).log_prob(test.y.double())
    assert ours.numpy() == pytest.approx(log_density(regressor, test), abs=0.02)


def test_the_evidence_never_falls_from_one_yield_to_the_next() -> None:
    data = smooth_data(60, 2)
    posteriors = GP().fit(data, Budget(steps=100), torch.Generator())
    evidence = [float(posterior.trace()["log_evidence"]) for posterior in posteriors]
    assert len(evidence) > 10
    assert all(later >= earlier for earlier, later in itertools.pairwise(evidence))


def test_draws_have_the_moments_of_the_posterior() -> None:
    posterior = converged(smooth_data(30, 1))
    x = torch.linspace(-3.0, 3.0, 7)[:, None].double()
    draws = posterior.draw(x, 20_000, torch.Generator().manual_seed(2))
    predictive = posterior.predict(x, torch.Generator())
    assert draws.mean(0).numpy() == pytest.approx(predictive.mean.numpy(), abs=0.02)
    function_variance = predictive.variance - posterior.process.noise
    assert draws.var(0).numpy() == pytest.approx(function_variance.numpy(), rel=0.05)


def test_far_from_the_data_the_posterior_is_the_prior() -> None:
    posterior = converged(smooth_data(30, 1))
    far = posterior.predict(torch.tensor([[1e6]], dtype=torch.float64), torch.Generator())
    assert far.mean.item() == pytest.approx(0.0, abs=1e-9)
    assert far.variance.item() == pytest.approx(float(posterior.process.signal + posterior.process.noise))


@pytest.mark.parametrize("kind", ["one row", "constant feature", "constant target", "duplicates", "100 features"])
def test_degenerate_data_give_finite_predictions(kind: str) -> None:
    base = smooth_data(20, 2)
    data = {
        "one row": Data(base.x[:1], base.y[:1]),
        "constant feature": Data(torch.cat([base.x, torch.zeros(20, 1)], 1), base.y),
        "constant target": Data(base.x, torch.zeros(20)),
        "duplicates": Data(base.x.repeat(3, 1), base.y.repeat(3)),
        "100 features": smooth_data(20, 100),
    }[kind]
    posterior = converged(data, max_iterations=20)
    log_prob = posterior.predict(data.x, torch.Generator()).log_prob(data.y)
    assert bool(torch.isfinite(log_prob).all())
    assert bool(torch.isfinite(posterior.draw(data.x, 3, torch.Generator().manual_seed(0))).all())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["boston", "yacht"])
def test_real_data_agree_with_scikit_learn_in_log_likelihood(name: str) -> None:
    prepared = prepare(registry.dataset(name), "paper", 0)
    train = Data(torch.from_numpy(prepared.train_x), torch.from_numpy(prepared.train_y))
    scaled_targets = prepared.standardiser.y(prepared.test_y)
    test = Data(torch.from_numpy(prepared.test_x), torch.from_numpy(scaled_targets))
    ours = converged(train).predict(test.x.double(), torch.Generator()).log_prob(test.y.double()).mean().item()
    regressor = reference(train, STARTS if name == "yacht" else STARTS[:1])
    assert ours == pytest.approx(float(log_density(regressor, test).mean()), abs=0.05)
