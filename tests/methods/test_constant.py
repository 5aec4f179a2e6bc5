"""The constant predictor: training mean and variance, nothing else."""

from __future__ import annotations

import pytest
import torch

from fsibench.contract import Budget, Data
from fsibench.methods.constant import Constant


def test_every_input_gets_the_training_mean_and_the_population_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    y = 3.0 + 2.0 * torch.randn(50, generator=generator)
    posterior = next(Constant().fit(Data(torch.zeros(50, 2), y), Budget(steps=1), generator))
    predictive = posterior.predict(torch.randn(7, 2, generator=generator), generator)
    assert predictive.mean.numpy() == pytest.approx(y.mean().item())
    assert predictive.variance.numpy() == pytest.approx(y.var(correction=0).item(), rel=1e-5)


def test_a_constant_target_still_has_a_finite_density() -> None:
    generator = torch.Generator().manual_seed(0)
    posterior = next(Constant().fit(Data(torch.zeros(5, 1), torch.zeros(5)), Budget(steps=1), generator))
    log_prob = posterior.predict(torch.zeros(3, 1), generator).log_prob(torch.zeros(3))
    assert bool(torch.isfinite(log_prob).all())
