"""Function-space variational inference by linearisation: divergences and moments against closed forms."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from fsibench.blocks.batched import split_layers
from fsibench.blocks.kernels import GaussianProcess
from fsibench.blocks.meanfield import MeanFieldTraining, MeanFieldWeights, regularised_kl, unit_log_scales
from fsibench.blocks.validated import fitted
from fsibench.checks import fit, linear_data
from fsibench.contract import Data, Meter
from fsibench.methods.gfsvi import GFSVI, LinearisedNetwork
from fsibench.methods.tfsvi import TFSVI, FunctionSpaceNetwork

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_data(num_data: int = 40) -> Data:
    data = linear_data(num_data)
    return Data(data.x.double(), data.y.double())


def uncertain(q: MeanFieldWeights) -> None:
    """Weights far from certain and from their start."""
    with torch.no_grad():
        q.means += 0.3 * torch.randn(q.means.shape, generator=stream(5), dtype=F64)
        q.log_scales += 2.0 + 0.3 * torch.randn(q.means.shape, generator=stream(6), dtype=F64)


def linear_tfsvi() -> FunctionSpaceNetwork:
    """f(x) = wᵀx + b: a network without hidden layer."""
    model = FunctionSpaceNetwork(TFSVI(), some_data().x, stream())
    model.q = MeanFieldWeights((3, 1), -1.0, stream(1), F64)
    model.prior_means = torch.randn(4, generator=stream(2), dtype=F64)
    model.prior_scales = unit_log_scales((3, 1)).exp().to(F64)
    model.layer_scales = [(3.0**-0.5, 1.0)]
    uncertain(model.q)
    return model


def test_the_scales_of_layers_are_those_of_their_weights() -> None:
    model = FunctionSpaceNetwork(TFSVI(hidden_layers=2, hidden_units=7, prior_scale=1.7), some_data().x, stream())
    layers = split_layers(model.prior_scales, model.q.widths)
    for (weights, biases), (of_weights, of_biases) in zip(layers, model.layer_scales, strict=True):
        torch.testing.assert_close(weights, torch.full_like(weights, of_weights))
        torch.testing.assert_close(biases, torch.full_like(biases, of_biases))


def test_for_a_linear_model_the_kl_between_functions_is_that_between_weights() -> None:
    """Four points determine the four weights, so the map from weights to values keeps the KL."""
    model = linear_tfsvi()
    weights = kl_divergence(
        Normal(model.q.means, model.q.log_scales.exp()), Normal(model.prior_means, model.prior_scales)
    ).sum()
    context = 2.0 * torch.randn(4, 3, generator=stream(3), dtype=F64)
    assert model.kl(context).item() == pytest.approx(weights.item(), rel=1e-3)  # 10⁻⁶ is added to both diagonals


def test_the_kl_vanishes_when_q_is_the_prior() -> None:
    model = FunctionSpaceNetwork(TFSVI(hidden_units=5, initial_log_scale=0.0), some_data().x, stream())
    assert model.kl(some_data().x[:10]).item() == pytest.approx(0.0, abs=1e-6)


def test_regularised_kl_is_that_of_torch() -> None:
    root, other = (torch.randn(6, 9, generator=stream(seed), dtype=F64) for seed in (1, 2))
    m_q, m_p = torch.randn(2, 6, generator=stream(3), dtype=F64)
    eye, K = torch.eye(6, dtype=F64), other @ other.mT
    expected = kl_divergence(MultivariateNormal(m_q, root @ root.mT + 0.1 * eye), MultivariateNormal(m_p, K + 0.1 * eye))
    torch.testing.assert_close(regularised_kl(m_q, root, m_p, K, 0.1), expected)


def gaussian_process() -> GaussianProcess:
    return GaussianProcess(torch.full((3,), 2.0, dtype=F64), torch.tensor(1.5, dtype=F64), torch.tensor(0.1, dtype=F64))


def test_for_a_linear_model_gfsvi_has_the_closed_form_divergence() -> None:
    model = LinearisedNetwork(GFSVI(gamma=1e-4), some_data().x, gaussian_process(), stream())
    model.q = MeanFieldWeights((3, 1), -1.0, stream(1), F64)
    uncertain(model.q)
    x = torch.randn(8, 3, generator=stream(3), dtype=F64)
    X, eye = torch.cat([x, torch.ones(8, 1, dtype=F64)], 1), torch.eye(8, dtype=F64)
    q = MultivariateNormal(X @ model.q.means, X @ torch.diag((2 * model.q.log_scales).exp()) @ X.mT + 8e-4 * eye)
    distances = ((x[:, None] - x) / 2.0).square().sum(-1)
    p = MultivariateNormal(torch.zeros(8, dtype=F64), 1.5 * torch.exp(-0.5 * distances) + 8e-4 * eye)
    torch.testing.assert_close(model.divergence(x), kl_divergence(q, p))


def test_the_divergence_against_a_linear_prior_is_that_between_weights() -> None:
    """As γ → 0, at as many points as weights."""
    X = torch.randn(5, 5, generator=stream(), dtype=F64)
    m_q, m_p, log_s, log_t = torch.randn(4, 5, generator=stream(1), dtype=F64)
    expected = kl_divergence(Normal(m_q, log_s.exp()), Normal(m_p, log_t.exp())).sum()
    covariance = X @ torch.diag((2 * log_t).exp()) @ X.mT
    found = regularised_kl(X @ m_q, X * log_s.exp(), X @ m_p, covariance, 1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0.0)


def test_gfsvi_expects_the_log_likelihood_of_the_linearised_network() -> None:
    data = some_data()
    model = LinearisedNetwork(GFSVI(hidden_units=6), data.x, gaussian_process(), stream())
    uncertain(model.q)
    with torch.no_grad():
        mean, variance = model.marginals(data.x)
        draws = model.draw(data.x, 50_000, stream(1))
        torch.testing.assert_close(draws.mean(0), mean, rtol=0.0, atol=5 * float(draws.std()) / 50_000**0.5)
        torch.testing.assert_close(draws.var(0), variance, rtol=0.05, atol=0.0)
        expected = Normal(draws, model.noise.sqrt()).log_prob(data.y).mean()
        loss = model.loss(data, len(data), stream(2))
        reached = model.last_kl / len(data) - loss
    assert float(reached) == pytest.approx(float(expected), rel=0.02)


@pytest.mark.parametrize("method", [TFSVI(num_context=50, stop="budget"), GFSVI(num_context=50, stop="budget")])
def test_training_finds_signal_and_noise(method: TFSVI | GFSVI) -> None:
    data = linear_data(200, noise=0.5)
    predictive = fit(method, data, 400).predict(data.x, stream())
    # noise 0.5 beside a signal of variance 3, standardised: 0.5/√3.25
    assert float((predictive.mean - data.y).square().mean().sqrt()) == pytest.approx(0.28, rel=0.15)
    assert float(predictive.variance.sqrt().mean()) == pytest.approx(0.28, rel=0.25)


@pytest.mark.parametrize("method", [TFSVI(num_context=20), GFSVI(num_context=20)])
def test_held_out_rows_choose_the_length_and_the_least_noise(method: TFSVI | GFSVI) -> None:
    generator = stream(3)
    x = torch.randn(30, 8, generator=generator)
    train = Data(x, x[:, 0] + 0.5 * torch.randn(30, generator=generator))  # as many weights as the rows allow to learn by heart
    models = list(Meter(steps=2000).pulls(method, train, stream()))
    assert models[-1].noise_floor > models[-1].learned_noise
    scale = models[-1].predict(x, stream()).scale
    assert bool((scale.square() >= 0.999 * models[-1].noise_floor).all())
    *_, whole = Meter(steps=2000).pulls(dataclasses.replace(method, stop="budget"), train, stream())
    assert whole.noise_floor == 0.0


def test_what_comes_before_the_first_step_does_not_make_a_fit_look_short() -> None:
    class Spent:
        """A budget of 1,000 steps behind a start that took 15 % of it."""

        in_last_pull, steps_done = False, 0

        @property
        def fraction(self) -> float:
            return 0.15 + 0.85 * self.steps_done / 1000

    budget, data = Spent(), linear_data(60)
    models = fitted(lambda: MeanFieldTraining(FunctionSpaceNetwork(TFSVI(num_context=20), data.x, stream()), 0.01, 50), TFSVI(), data, budget, stream())
    for _ in models:
        budget.steps_done += 1
        if budget.steps_done == 300:
            break
    assert next(models).noise_floor > 0.0, "held-out rows were looked at"
