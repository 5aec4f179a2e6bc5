"""The gradient of every objective along a random direction of all its parameters, against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from fsibench.blocks.adversarial import adaptive_contrast
from fsibench.blocks.conditionals import initial_inducing
from fsibench.contract import Data
from fsibench.methods.aadm import AADM, ImplicitWeights, make_discriminator
from fsibench.methods.bbb import BBB, MeanFieldNetwork
from fsibench.methods.sip import (
    SIP,
    SparseImplicitProcess,
    initial_prior,
    make_contrast,
    make_sampler,
)

F64 = torch.float64
STEP = 1e-6


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch() -> Data:
    x = torch.randn(7, 2, generator=stream(5), dtype=F64)
    return Data(x, torch.sin(x[:, 0]))


def slopes(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> tuple[float, float]:
    """(by autograd, by central differences) along one random direction; `loss` restarts its own random streams."""
    directions = [torch.randn(p.shape, generator=stream(8), dtype=F64) for p in parameters]
    gradients = torch.autograd.grad(loss(), parameters)
    by_autograd = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    values = []
    with torch.no_grad():
        for sign in (1.0, -2.0, 1.0):  # forward, backward, home again
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter += sign * STEP * direction
            values.append(float(loss()))
    return by_autograd, (values[0] - values[1]) / (2.0 * STEP)


@pytest.mark.parametrize("prior", ["gaussian", "scale_mixture"])
def test_bbb(prior: str) -> None:
    options = BBB(prior=prior, hidden_units=5, initial_log_variance=-2.0)
    model = MeanFieldNetwork(options, 2, stream(), F64)
    parameters = model.parameters
    if prior == "scale_mixture":  # τ has no part in it
        parameters = [model.means, model.log_variances, model.biases, model.log_noise]
    by_autograd, by_differences = slopes(lambda: model.loss(batch(), 50, 0.7, stream(3)), parameters)
    assert by_autograd == pytest.approx(by_differences, rel=1e-5)


@pytest.mark.parametrize("weights", ["per_point", "shared"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_aadm_and_avb(weights: str, alpha: float) -> None:
    """At a discriminator of zero: elsewhere moments are constants by design, which differences cannot know."""
    options = AADM(alpha=alpha, weights=weights, num_draws=4, hidden_units=5)
    model = ImplicitWeights(options, 2, stream(), F64)
    discriminator = make_discriminator(options, model.num_weights, stream(), F64)
    with torch.no_grad():
        discriminator.network.flat.zero_()

    def loss() -> Tensor:
        w = model.sampler(model.num_draws(7), stream(3))
        objective: Tensor = 0.02 * adaptive_contrast(w, model.log_prior, discriminator).kl - model.data_term(batch(), w)
        return objective

    by_autograd, by_differences = slopes(loss, [*model.sampler.parameters, *model.parameters])
    assert by_autograd == pytest.approx(by_differences, rel=1e-5)


@pytest.mark.parametrize("conditional", ["analytic", "sampled"])
@pytest.mark.parametrize("prior", ["bnn", "ns", "gp"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_sip(prior: str, alpha: float, conditional: str) -> None:
    options = SIP(
        prior=prior, alpha=alpha, conditional=conditional, dropout_bnn=0.1, dropout_ns=0.1,
        num_inducing=4, num_prior_draws=15, num_draws=8,
    )  # fmt: skip
    made_prior, sampler = initial_prior(options, batch().x, stream()), make_sampler(options, stream(1), F64)
    process = SparseImplicitProcess(options, made_prior, sampler, initial_inducing(batch().x, 4, stream(2)))
    contrast = make_contrast(options, stream(4), F64)

    def loss() -> Tensor:
        generator = stream(3)
        u, given_u = process.draw_conditional(batch().x, generator)
        data_term = process.data_term(batch().y, given_u, generator)
        objective: Tensor = 0.1 * contrast.divergence(u, given_u.f_z) - data_term
        return objective

    parameters = [*made_prior.parameters, *sampler.parameters, process.inducing, process.log_noise]
    by_autograd, by_differences = slopes(loss, parameters)
    assert by_autograd == pytest.approx(by_differences, rel=1e-4)
