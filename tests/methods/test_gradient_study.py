"""The study of appendix A: its closed-form gradient is the derivative, and its parts fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from fsibench.blocks.adversarial import Moments


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("gradient_study")


def test_the_gradient_by_moments_is_the_derivative(script: ModuleType) -> None:
    size = dataclasses.replace(script.LITE, training_steps=3, discriminator_steps=2, num_draws=40, num_inducing=5)
    model, _ = script.trained(size)
    divergence = script.Divergence(model, size, 0)
    parameters = [*model.prior.parameters, model.inducing]
    gradient = divergence.gaussian_gradients(parameters)[-5:]

    def value() -> float:
        p = Moments(model.prior.functions(model.inducing.detach(), divergence.noise))
        return float(Moments(divergence.u).divergence(p.mean, p.variance.log()).detach())

    for index in range(5):
        flat = model.inducing.detach().view(-1)
        ends = []
        for sign in (1.0, -1.0):
            flat[index] += sign * 2e-3
            ends.append(value())
            flat[index] -= sign * 2e-3
        assert float(gradient[index]) == pytest.approx((ends[0] - ends[1]) / 4e-3, rel=0.1, abs=0.1)


def test_a_tiny_study_has_a_row_for_every_number(script: ModuleType) -> None:
    size = script.Size(3, 2, 4, 3, 2, 20, 2)
    rows = script.study(size)
    assert rows["kind"].tolist() == ["theta"] * 2 + ["inducing input"] * 4
    assert torch.isfinite(torch.tensor(rows.drop(columns="kind").to_numpy())).all()
    assert script.summary(rows)["numbers"].tolist() == [2, 4]
