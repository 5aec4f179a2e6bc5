"""Deep variational implicit processes: one layer is vip, layers compose as functions do."""

from __future__ import annotations

import pytest
import torch

from fsibench.checks import fit, linear_data
from fsibench.contract import Data
from fsibench.methods.dvip import DVIP, DeepProcess
from fsibench.methods.vip import VIP, VariationalProcess

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_data(num_data: int = 60) -> Data:
    data = linear_data(num_data)
    return Data(data.x.double(), data.y.double())


def uncertain(model: DeepProcess) -> DeepProcess:
    """Coefficients far from their start."""
    with torch.no_grad():
        for layer in (*model.inner, model.last):
            layer.q_mean += torch.randn(layer.q_mean.shape, generator=stream(1), dtype=F64)
            layer.q_factor += 0.1 * torch.randn(layer.q_factor.shape, generator=stream(2), dtype=F64)
    return model


def test_one_layer_has_the_objective_of_vip_at_alpha_zero() -> None:
    data = some_data()
    deep = uncertain(DeepProcess(DVIP(layers=1), data, stream()))
    options = VIP(alpha=0.0, regulariser="none", prior="bnn_tied", num_draws=20)
    shallow = VariationalProcess(options, data, stream(5))
    shallow.prior, shallow.basis, shallow.log_noise = deep.last.prior, deep.last.basis, deep.log_noise
    shallow.q_mean, shallow.q_factor = deep.last.q_mean[0], deep.last.q_factor[0]
    batch = Data(data.x[:20], data.y[:20])
    torch.testing.assert_close(deep.bound(batch, stream()), shallow.objective(batch))
    gradients = [torch.autograd.grad(each, deep.last.q_factor) for each in (deep.bound(batch, stream()), shallow.objective(batch))]
    torch.testing.assert_close(*gradients)


def test_one_layer_predicts_the_gaussian_of_its_linear_model() -> None:
    data = some_data()
    model = uncertain(DeepProcess(DVIP(layers=1), data, stream()))
    predictive = model.predict(data.x, stream())
    draws = model.draw(data.x, 20_000, stream(3))
    assert predictive.num_components == 1
    spread = predictive.variance - model.noise.detach()
    torch.testing.assert_close(draws.var(0), spread, rtol=0.1, atol=0.0)
    torch.testing.assert_close(draws.mean(0), predictive.mean, rtol=0.0, atol=5 * float(draws.std()) / 20_000**0.5)


def test_an_inner_layer_adds_to_its_inputs() -> None:
    """With the inner coefficients fixed at zero, h + m(h) goes into the last layer."""
    data = some_data(10)
    model = DeepProcess(DVIP(layers=2), data, stream())
    h = model.hidden(data.x, [torch.zeros(1, 3, 20, dtype=F64)], 1)[0]
    torch.testing.assert_close(h, data.x + model.inner[0].features(data.x)[0].mT)


def test_draws_do_not_depend_on_how_rows_are_chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_data(12)
    model = uncertain(DeepProcess(DVIP(layers=3), data, stream()))
    whole = model.draw(data.x, 3, stream(4))
    monkeypatch.setattr("fsibench.methods.dvip.CHUNK_ELEMENTS", 1)
    torch.testing.assert_close(model.draw(data.x, 3, stream(4)), whole)


def test_kl_is_the_sum_over_layers_and_outputs() -> None:
    model = uncertain(DeepProcess(DVIP(layers=2), some_data(), stream()))
    total = 0.0
    for layer in (*model.inner, model.last):
        for mean, L in zip(layer.q_mean, layer.factor(), strict=True):
            q = torch.distributions.MultivariateNormal(mean, scale_tril=L)
            p = torch.distributions.MultivariateNormal(torch.zeros_like(mean), torch.eye(20, dtype=F64))
            total += float(torch.distributions.kl_divergence(q, p).detach())
    assert model.kl().item() == pytest.approx(total)


@pytest.mark.parametrize("layers", [1, 3])
def test_training_finds_signal_and_noise(layers: int) -> None:
    data = linear_data(200, noise=0.5)
    predictive = fit(DVIP(layers=layers), data, 500).predict(data.x, stream())
    # noise 0.5 beside a signal of variance 3, standardised: 0.5/√3.25
    assert float((predictive.mean - data.y).square().mean().sqrt()) == pytest.approx(0.28, rel=0.25)
