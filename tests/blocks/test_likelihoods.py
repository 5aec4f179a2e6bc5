from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal

from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE, gaussian_log_density, noise_variance


def test_log_density_equals_torch() -> None:
    y, mean, variance = torch.tensor([0.1, -2.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.5, 2.0])
    torch.testing.assert_close(gaussian_log_density(y, mean, variance), Normal(mean, variance.sqrt()).log_prob(y))


def test_noise_variance_never_reaches_zero() -> None:
    assert float(noise_variance(torch.tensor(-200.0))) == pytest.approx(MINIMUM_NOISE_VARIANCE)
    assert float(noise_variance(torch.tensor(0.0))) == pytest.approx(1.0, rel=1e-5)
