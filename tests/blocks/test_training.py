from __future__ import annotations

import math

import pytest
import torch

from fsibench.blocks.training import Optimiser, finite_or_diverged, leaf, schedule_factor, warm_up
from fsibench.errors import Diverged


def test_cosine_falls_from_one_to_zero_and_constant_stays() -> None:
    assert [schedule_factor("cosine", f) for f in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
    assert {schedule_factor("constant", f) for f in (0.0, 0.5, 1.0)} == {1.0}


def test_warm_up_rises_over_its_length() -> None:
    assert [warm_up(f, 0.2) for f in (0.0, 0.1, 0.2, 0.9)] == pytest.approx([0.0, 0.5, 1.0, 1.0])
    assert warm_up(0.0, 0.0) == 1.0


def test_the_first_adam_step_moves_each_tensor_by_the_learning_rate() -> None:
    one, other = leaf(torch.zeros(3)), leaf(torch.zeros(2))
    optimiser = Optimiser([one, other], 0.1)
    optimiser.minimise((one - 5.0).square().sum() + (other + 50.0).square().sum(), 0.0)
    torch.testing.assert_close(one.detach(), torch.full((3,), 0.1))
    torch.testing.assert_close(other.detach(), torch.full((2,), -0.1))
    assert one.grad is None


def test_schedule_scales_the_step() -> None:
    parameter = leaf(torch.zeros(1))
    Optimiser([parameter], 0.1, "cosine").minimise((parameter - 5.0).square().sum(), 0.5)
    assert float(parameter.detach()) == pytest.approx(0.05)


def test_minimise_finds_the_minimum_and_returns_the_loss_before_the_step() -> None:
    parameter = leaf(torch.zeros(2))
    optimiser = Optimiser([parameter], 0.1, "cosine")
    losses = [optimiser.minimise((parameter - 3.0).square().sum(), step / 400) for step in range(400)]
    assert losses[0] == pytest.approx(18.0)
    torch.testing.assert_close(parameter.detach(), torch.full((2,), 3.0), atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_losses_end_the_fit_before_parameters_change(value: float) -> None:
    parameter = leaf(torch.ones(1))
    with pytest.raises(Diverged, match="loss is"):
        Optimiser([parameter], 0.1).minimise(parameter.sum() * value, 0.0)
    assert float(parameter.detach()) == 1.0
    with pytest.raises(Diverged, match="kl is"):
        finite_or_diverged(torch.tensor(value), "kl")


def test_leaf_is_a_trainable_copy() -> None:
    original = torch.zeros(2)
    copy = leaf(original)
    with torch.no_grad():
        copy += 1.0
    assert copy.requires_grad
    assert float(original.sum()) == 0.0


def test_steps_are_those_of_torchs_adam() -> None:
    start = [torch.randn(7, generator=torch.Generator().manual_seed(0)), torch.tensor(0.3), torch.ones(2)]
    ours, theirs = ([tensor.clone().requires_grad_() for tensor in start] for _ in range(2))
    optimiser, adam = Optimiser(ours, 0.05), torch.optim.Adam(theirs, lr=0.05)
    for step in range(1, 20):
        for first, second, _ in (ours, theirs):  # the third never has a gradient
            ((first - step).square().sum() * second.exp()).backward()
        optimiser.step(0.0)
        adam.step()
        adam.zero_grad()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours[2].detach(), start[2])
