"""The exact posterior of a Gaussian process with a fixed kernel and an unknown noise, against independent integrals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from fsibench import registry
from fsibench.blocks.draws import normal
from fsibench.blocks.priors import make_prior, reference_process
from fsibench.data import prepare
from fsibench.references import PROBLEMS, exact
from fsibench.references.exact import exact_posterior, joint_draws


def tiny() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(x[:, 0]) + 0.2 * torch.randn(12, generator=generator, dtype=torch.float64)
    return x, y, torch.randn(5, 2, generator=generator, dtype=torch.float64)


def evidence(l: float) -> float:
    """p(y | l) p(l), from scipy's densities."""
    x, y, _ = (values.numpy() for values in tiny())
    K = np.exp(-0.25 * np.square(x[:, None] - x[None]).sum(-1)) + (math.exp(l) + 1e-6) * np.eye(len(y))
    return float(stats.multivariate_normal.pdf(y, np.zeros(len(y)), K) * stats.norm.pdf(l, -3.2, 2.0))


def test_the_evidence_is_that_of_an_adaptive_rule_over_densities_of_scipy() -> None:
    found = exact_posterior(reference_process(2), *tiny())
    total = integrate.quad(evidence, -13.2, 6.8, epsabs=0.0, epsrel=1e-9, limit=200)[0]
    assert found.log_evidence == pytest.approx(math.log(total), abs=1e-6)


def test_means_and_variances_given_the_noise_are_those_of_scikit_learn() -> None:
    x, y, at = tiny()
    found = exact_posterior(reference_process(2), x, y, at)
    chosen = int(found.weights.argmax())
    peer = GaussianProcessRegressor(RBF(math.sqrt(2.0)), alpha=float(found.noise[chosen]), optimizer=None).fit(x.numpy(), y.numpy())
    mean, sd = peer.predict(at.numpy(), return_std=True)
    assert found.mean[chosen].numpy() == pytest.approx(mean, abs=1e-9)
    assert found.variance[chosen].sqrt().numpy() == pytest.approx(sd, abs=1e-7)


def test_half_as_many_points_of_the_rule_change_nothing() -> None:
    full, half = (exact_posterior(reference_process(2), *tiny(), points=points) for points in (exact.GRID, exact.GRID // 2))
    means = [(found.weights[:, None] * found.mean).sum(0) for found in (full, half)]
    torch.testing.assert_close(*means, atol=1e-7, rtol=0.0)
    assert full.log_evidence == pytest.approx(half.log_evidence, abs=1e-7)


def test_joint_draws_have_the_covariance_of_the_posterior() -> None:
    x, y, at = tiny()
    noise = torch.full((40_000,), 0.05, dtype=torch.float64)
    process = reference_process(2)
    draws = joint_draws(process, x, y, at, noise, torch.Generator().manual_seed(1))
    peer = GaussianProcessRegressor(RBF(math.sqrt(2.0)), alpha=0.05, optimizer=None).fit(x.numpy(), y.numpy())
    mean, covariance = peer.predict(at.numpy(), return_cov=True)
    assert draws.mean(0).numpy() == pytest.approx(mean, abs=0.02)
    assert torch.cov(draws.mT).numpy() == pytest.approx(covariance, abs=0.02)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_has_the_posterior_of_the_process_too(problem: str) -> None:
    dataset = registry.dataset(f"reference-gp-{problem}")
    reference = dataset.reference()
    assert reference is not None
    rows, twin = prepare(dataset, "paper", 0), prepare(registry.dataset(f"reference-{problem}"), "paper", 0)
    assert np.array_equal(rows.test_y, twin.test_y), "the same rows as with the network"
    assert reference.inside.sum() == 50
    assert (np.diff(reference.quantiles, axis=1) > 0).all()
    z = (reference.draws.mean(0) - reference.mean) / (reference.sd / math.sqrt(len(reference.draws)))
    assert np.abs(z).max() < 5.0
    assert reference.draws.std(0) == pytest.approx(reference.sd, rel=0.15)
    assert reference.about["prior"] == exact.PRIOR


def test_the_prior_of_methods_is_that_of_the_reference_and_learns_nothing() -> None:
    prior = make_prior("reference_gp", torch.zeros(1, 3), torch.Generator().manual_seed(0))
    assert prior.parameters == []
    x = 0.7 * normal(torch.Generator().manual_seed(1), 6, 3, like=torch.zeros(1))
    K = reference_process(3).covariance(x, x)
    draws = prior.draw(x, 50_000, torch.Generator().manual_seed(2)).double()
    torch.testing.assert_close(draws.mT @ draws / len(draws), K, atol=0.03, rtol=0.0)
    functions = prior.functions(x, prior.draw_noise(50_000, torch.Generator().manual_seed(3))).double()
    torch.testing.assert_close(functions.mT @ functions / len(functions), K, atol=0.12, rtol=0.0)
