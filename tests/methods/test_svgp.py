"""SVGP against the exact process: with an inducing input at every row nothing is lost."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from fsibench.checks import problems
from fsibench.contract import Data
from fsibench.errors import UsageError
from fsibench.methods import svgp as module
from fsibench.methods.gp import GP

pytest.importorskip("gpytorch", reason="gpytorch is an extra: fsibench[gp]")


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


def test_with_many_inducing_inputs_it_predicts_like_the_exact_process() -> None:
    train, test = wave(60), wave(100, seed=1)
    sparse = problems.fit(module.SVGP(num_inducing=60, learning_rate=0.05), train, 400)
    exact = problems.fit(GP(), train, 200)
    scores = [
        problems.predict(posterior, test.x).log_prob(test.y).mean().item() for posterior in (sparse, exact)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.08)


def test_a_process_without_noise_is_sure_at_its_inducing_inputs() -> None:
    x = torch.linspace(-2.0, 2.0, 12)[:, None]
    model = module.SparseProcess(module.SVGP(num_inducing=12), module.load_gpytorch(), Data(x, x[:, 0]), torch.Generator().manual_seed(0))
    strategy = model.process.variational_strategy
    with torch.no_grad():
        strategy._variational_distribution.chol_variational_covar.zero_()
        assert float(model.latent(strategy.inducing_points).variance.max()) < 2e-5


def test_inducing_inputs_close_together_end_no_fit() -> None:
    """Their covariance is singular in single precision, by more than the usual jitter."""
    train = wave(90)
    model = module.SparseProcess(module.SVGP(), module.load_gpytorch(), train, torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.process.variational_strategy.inducing_points.copy_(torch.linspace(-0.1, 0.1, 90)[:, None])
        model.process.covar_module.outputscale = 300.0
    assert math.isfinite(model.loss(train).item())
    assert bool(torch.isfinite(problems.predict(model, train.x).mean).all())


def test_draws_have_the_moments_of_the_predictive_without_noise() -> None:
    sparse = problems.fit(module.SVGP(num_inducing=20, learning_rate=0.05), wave(40), 100)
    assert isinstance(sparse, module.SparseProcess)
    x = torch.linspace(-2.0, 2.0, 5)[:, None]
    draws = sparse.draw(x, 5000, problems.random_stream())
    predictive = problems.predict(sparse, x)
    assert draws.mean(0).numpy() == pytest.approx(predictive.mean.numpy(), abs=0.03)
    noise = sparse.likelihood.noise.item()
    assert draws.var(0).numpy() == pytest.approx((predictive.variance - noise).numpy(), rel=0.15, abs=1e-3)


def test_without_gpytorch_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    with pytest.raises(UsageError, match=r"fsibench\[gp\]"):
        module.load_gpytorch()
