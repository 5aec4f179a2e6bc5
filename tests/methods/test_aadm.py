"""AADM and AVB: one implementation, its limit, its divergence, its two ways of sharing weights."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from fsibench.blocks.adversarial import adaptive_contrast
from fsibench.blocks.networks import sampled_network
from fsibench.contract import Budget, Data, Meter
from fsibench.methods.aadm import AADM, AVB, ImplicitWeights, make_discriminator
from fsibench.predictive import Predictive

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def data(num_rows: int = 40) -> Data:
    x = torch.randn(num_rows, 2, generator=stream(5), dtype=F64)
    return Data(x, torch.sin(x[:, 0]) + 0.1 * torch.randn(num_rows, generator=stream(6), dtype=F64))


def small(options: AADM) -> AADM:
    return dataclasses.replace(options, hidden_units=6)


def after_steps(options: AADM, steps: int) -> Predictive:
    *_, posterior = Meter(steps=steps).pulls(small(options), data(), stream())
    predictive: Predictive = posterior.predict(data().x, stream(1))
    return predictive


def test_small_alpha_is_avb() -> None:
    """Value and gradient of the data term on the same draws; Adam would magnify differences of tiny gradients."""
    model = ImplicitWeights(small(AADM(num_draws=5)), 2, stream(), F64)
    w = model.sampler(5 * 40, stream(1)).detach().requires_grad_()
    terms, gradients = [], []
    for alpha in (1e-6, 0.0):
        model.options = small(AADM(num_draws=5, alpha=alpha))
        term = model.data_term(data(), w)
        terms.append(float(term.detach()))
        gradients.append(torch.autograd.grad(term, w)[0])
    assert terms[0] == pytest.approx(terms[1], rel=1e-4)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-3 * float(gradients[1].abs().max()), rtol=0.0)


def test_alpha_matters() -> None:
    assert not torch.allclose(after_steps(AADM(alpha=1.0), 5).loc, after_steps(AVB(), 5).loc, atol=1e-3)


def test_avb_is_aadm_at_zero() -> None:
    torch.testing.assert_close(after_steps(AADM(alpha=0.0), 5).loc, after_steps(AVB(), 5).loc)


def test_avb_with_another_alpha_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ask for aadm\[alpha=0.5\]"):
        AVB(alpha=0.5)


def test_alpha_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        AADM(alpha=1.5)


def gaussian_draws(mean: Tensor, scale: float, num_draws: int) -> Tensor:
    return mean + scale * torch.randn(num_draws, len(mean), generator=stream(3), dtype=F64)


def test_divergence_of_a_gaussian_q_is_the_closed_form() -> None:
    """For a factorised Gaussian q the optimal discriminator is zero, and the rest is exact up to sampling."""
    model = ImplicitWeights(small(AADM()), 1, stream(), F64)
    discriminator = make_discriminator(small(AADM()), model.num_weights, stream(), F64)
    with torch.no_grad():
        discriminator.network.flat.zero_()
    mean = torch.linspace(-0.5, 0.5, model.num_weights, dtype=F64)
    kl = adaptive_contrast(gaussian_draws(mean, 0.2, 100_000), model.log_prior, discriminator).kl
    exact = kl_divergence(Normal(mean, 0.2), Normal(0.0, (0.5 * model.log_prior.detach()).exp())).sum()
    assert float(kl.detach()) == pytest.approx(float(exact), rel=5e-3)


def test_divergence_reaches_the_sampler_and_the_prior_scale_but_not_the_discriminator() -> None:
    model = ImplicitWeights(small(AADM()), 2, stream(), F64)
    discriminator = make_discriminator(small(AADM()), model.num_weights, stream(), F64)
    adaptive_contrast(model.sampler(20, stream(1)), model.log_prior, discriminator).kl.backward()
    for parameter in (*model.sampler.parameters, model.log_prior):
        assert parameter.grad is not None
        assert float(parameter.grad.abs().sum()) > 0.0
    assert discriminator.network.flat.grad is None


def test_every_point_has_weights_of_its_own() -> None:
    model = ImplicitWeights(small(AADM(weights="per_point", num_draws=3)), 2, stream(), F64)
    x, w = data(4).x, model.sampler(12, stream(1)).detach()
    outputs = model.outputs(x, w)
    assert outputs.shape == (3, 4)
    for point in range(4):
        for sample in range(3):
            own = w[point * 3 + sample][None]
            expected = sampled_network(x[point][None], own, model.biases, model.widths)
            torch.testing.assert_close(outputs[sample, point], expected[0, 0])


def test_shared_weights_are_used_at_every_point() -> None:
    model = ImplicitWeights(small(AADM(weights="shared", num_draws=3)), 2, stream(), F64)
    x, w = data(4).x, model.sampler(3, stream(1)).detach()
    torch.testing.assert_close(model.outputs(x, w), sampled_network(x, w, model.biases, model.widths))


@pytest.mark.parametrize("weights", ["per_point", "shared"])
@pytest.mark.parametrize("draws", ["previous", "fresh"])
def test_every_way_of_drawing_trains(weights: str, draws: str) -> None:
    options = AADM(weights=weights, discriminator_draws=draws, num_draws=4)
    predictive = after_steps(options, 3)
    assert bool(torch.isfinite(predictive.loc).all())


def test_prior_draws_have_the_learned_scale() -> None:
    model = ImplicitWeights(small(AADM(initial_log_prior=-60.0)), 2, stream(), F64)
    with torch.no_grad():
        model.biases.zero_()
    assert float(model.draw_prior(data().x, 5, stream()).abs().max()) < 1e-20


def test_trace_explains_the_fit() -> None:
    posterior = next(iter(small(AADM()).fit(data(), Budget(steps=1), stream())))
    assert set(posterior.trace()) == {"loss", "kl", "discriminator_loss", "noise", "prior_scale"}


def test_the_sampler_learns_at_a_rate_of_its_own() -> None:
    still, moved = (
        next(iter(small(AADM(sampler_learning_rate=rate)).fit(data(), Budget(steps=1), stream()))) for rate in (0.0, 1e-3)
    )
    torch.testing.assert_close(still.biases, moved.biases)  # one step of the same gradient
    start = ImplicitWeights(small(AADM()), 2, stream(), F64)
    assert torch.equal(still.sampler.network.flat, start.sampler.network.flat)
    assert not torch.equal(moved.sampler.network.flat, start.sampler.network.flat)
