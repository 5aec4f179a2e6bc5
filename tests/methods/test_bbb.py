"""Bayes by backprop: its KL, its local reparameterisation, its prior options."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from fsibench.blocks.likelihoods import noise_variance
from fsibench.contract import Data, Meter
from fsibench.methods.bbb import BBB, MeanFieldNetwork, scale_mixture_log_density

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model(options: BBB | None = None) -> MeanFieldNetwork:
    """A small network whose weights are far from certain."""
    options = dataclasses.replace(options or BBB(), hidden_units=6)
    made = MeanFieldNetwork(options, 2, stream(), F64)
    with torch.no_grad():
        made.log_variances += torch.randn(made.log_variances.shape, generator=stream(1), dtype=F64) + 6.0
    return made


def weight_distribution(q: MeanFieldNetwork) -> Normal:
    return Normal(q.means.detach(), (0.5 * q.log_variances.detach()).exp())


def test_kl_closed_form_equals_monte_carlo() -> None:
    q = model()
    with torch.no_grad():
        w = q.draw_weights(200_000, stream(2))
        prior = Normal(0.0, (0.5 * q.log_prior).exp())
        ratio = (weight_distribution(q).log_prob(w) - prior.log_prob(w)).sum(1)
        error = float(ratio.std()) / math.sqrt(len(ratio))
        assert float(q.kl(stream())) == pytest.approx(float(ratio.mean()), abs=5.0 * error)


def test_scale_mixture_density_equals_torch() -> None:
    w = torch.linspace(-2.0, 2.0, 41, dtype=F64)
    scales = torch.tensor([1.0, math.exp(-2.0)], dtype=F64)
    exact = MixtureSameFamily(Categorical(torch.tensor([0.3, 0.7], dtype=F64)), Normal(torch.zeros(2).double(), scales))
    torch.testing.assert_close(scale_mixture_log_density(w, 0.3, (0.0, -2.0)), exact.log_prob(w))


def test_kl_to_the_scale_mixture_equals_monte_carlo() -> None:
    options = BBB(prior="scale_mixture", num_draws=20_000, mixture_weight=0.3, mixture_log_scales=(0.0, -2.0))
    q = model(options)
    with torch.no_grad():
        w = q.draw_weights(20_000, stream(2))
        log_p = scale_mixture_log_density(w, 0.3, (0.0, -2.0))
        ratio = (weight_distribution(q).log_prob(w) - log_p).sum(1)
        error = float(ratio.std()) / math.sqrt(len(ratio))
        assert float(q.kl(stream(3))) == pytest.approx(float(ratio.mean()), abs=8.0 * error)


def test_local_draws_have_the_moments_of_sampled_weights() -> None:
    """Each (sample, point) of the training draws has the distribution of a network with sampled weights."""
    q, x = model(), torch.tensor([[0.5, -1.0], [2.0, 0.3]], dtype=F64)
    with torch.no_grad():
        local, sampled = q.local_draws(x, 100_000, stream(2)), q.draw(x, 100_000, stream(3))
    error = float(sampled.std()) / math.sqrt(len(sampled))
    torch.testing.assert_close(local.mean(0), sampled.mean(0), atol=7.0 * error, rtol=0.0)
    torch.testing.assert_close(local.var(0), sampled.var(0), rtol=0.05, atol=0.0)
    for level in (0.1, 0.5, 0.9):
        assert torch.allclose(local.quantile(level, 0), sampled.quantile(level, 0), atol=0.03 * float(sampled.std()))


def test_draws_are_functions_where_training_draws_are_not() -> None:
    """Equal rows give equal values in `draw`; in training every row has weights of its own."""
    q, x = model(), torch.ones(2, 2, dtype=F64)
    with torch.no_grad():
        functions, local = q.draw(x, 50, stream(2)), q.local_draws(x, 50, stream(2))
    torch.testing.assert_close(functions[:, 0], functions[:, 1])
    assert abs(float(torch.corrcoef(local.mT)[0, 1])) < 0.5


def test_prediction_is_the_mixture_over_draws_with_the_noise() -> None:
    q, x = model(), torch.randn(5, 2, generator=stream(4), dtype=F64)
    predictive = q.predict(x, stream(2))
    torch.testing.assert_close(predictive.loc, q.draw(x, q.options.num_test_draws, stream(2)))
    torch.testing.assert_close(predictive.scale, noise_variance(q.log_noise.detach()).sqrt().expand(200, 5))


@pytest.mark.parametrize("prior", ["gaussian", "scale_mixture"])
def test_prior_draws_follow_the_prior(prior: str) -> None:
    """At x = 0 with zero biases every function is zero; elsewhere the spread is that of the prior's scale."""
    options = BBB(prior=prior, mixture_weight=1e-9, mixture_log_scales=(0.0, -1.0))
    q = model(options)
    with torch.no_grad():
        q.biases.zero_()
        q.log_prior.fill_(-2.0)  # both priors now have scale e⁻¹
    values = q.draw_prior(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=F64), 4000, stream())
    assert float(values[:, 0].abs().max()) == 0.0
    reference = model()
    with torch.no_grad():
        reference.biases.zero_()
        reference.means.zero_()
        reference.log_variances.fill_(-2.0)
    expected = reference.draw(torch.ones(1, 2, dtype=F64), 4000, stream(9)).std()
    assert float(values[:, 1].std()) == pytest.approx(float(expected), rel=0.1)


def test_training_learns_the_noise_and_the_prior_scale() -> None:
    generator = stream()
    x = torch.randn(200, 2, generator=generator)
    y = x @ torch.tensor([0.8, -0.5]) + 0.3 * torch.randn(200, generator=generator)
    method = BBB(batch_size=50, initial_log_noise=-0.5, learning_rate=1e-2)
    *_, posterior = Meter(steps=800).pulls(method, Data(x, y), generator)
    trace = posterior.trace()
    assert trace["noise"] == pytest.approx(0.33, abs=0.08)  # 0.3 in truth, 0.78 at the start
    assert trace["prior_scale"] != pytest.approx(math.exp(-1.0), abs=0.01)
    assert set(trace) == {"loss", "noise", "prior_scale", "kl"}
