"""The length of a fit and the noise of its predictions, found on held-out rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fsibench.blocks.stopping import PATIENCE, SHORTEST, HeldOutLooks
from fsibench.predictive import Predictive

ROWS = torch.zeros(20, 1), torch.zeros(20)


class Shifted:
    """Predicts N(shift, scale²) where the truth is 0."""

    def __init__(self, shift: float, scale: float = 1.0) -> None:
        self.shift, self.scale = shift, scale

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(torch.full((1, len(x)), self.shift), torch.full((1, len(x)), self.scale))


def looked(shifts: list[float], first: float = 0.3, growth: float = 1.3) -> HeldOutLooks:
    looks = HeldOutLooks(*ROWS, seed=0)
    for place, shift in enumerate(shifts):
        looks.look(first * growth**place, Shifted(shift))
    return looks


def found(best: float) -> float | None:
    """The travel that is chosen after a fit of length 12 that is right at `best` and wrong before and after."""
    looks = HeldOutLooks(*ROWS, seed=0)
    for step in range(1, 2401):
        if looks.due(0.005 * step):
            looks.look(0.005 * step, Shifted(2.0 * math.log(0.005 * step / best)))
    chosen = looks.choice()
    return None if chosen is None else looks.looks[chosen].travel


@pytest.mark.parametrize("best", [1.5, 3.0, 6.0])
def test_the_choice_is_where_held_out_rows_are_predicted_best(best: float) -> None:
    assert found(best) == pytest.approx(best, rel=0.25)


def test_a_fit_that_is_best_at_its_end_has_no_choice() -> None:
    assert found(20.0) is None


def test_no_choice_is_shorter_than_what_any_fit_needs() -> None:
    chosen = found(0.3)
    assert chosen is not None
    assert SHORTEST <= chosen < 1.3 * SHORTEST


def test_one_lucky_look_does_not_decide() -> None:
    assert looked([3.0, 3.0, 0.0, 3.0, 3.0, 0.5, 0.4, 0.5, 3.0, 3.0]).choice() == 6


def test_a_look_without_a_finite_score_counts_as_the_worst() -> None:
    assert looked([math.nan, 1.0, 0.5, 0.0, 0.5, math.nan, 3.0], first=1.0).choice() == 3


def test_looks_are_due_each_a_fifth_further() -> None:
    looks = looked([1.0])
    assert not looks.due(0.35)
    assert looks.due(0.37)


def test_a_fit_is_past_its_best_after_three_times_its_way() -> None:
    looks = HeldOutLooks(*ROWS, seed=0)
    looks.look(2.0, Shifted(0.0))
    looks.look(PATIENCE * 1.9, Shifted(1.0))
    assert looks.best == 0
    assert not looks.is_past_the_best
    looks.look(PATIENCE * 2.0, Shifted(1.0))
    assert looks.is_past_the_best


@pytest.mark.parametrize("error", [0.03, 0.3])
def test_the_variance_that_overconfident_predictions_lack_is_found(error: float) -> None:
    y = error * torch.randn(4000, generator=torch.Generator().manual_seed(0))
    look = HeldOutLooks(torch.zeros(4000, 1), y, seed=0).look(1.0, Shifted(0.0, scale=0.01))
    assert 0.01**2 + look.extra == pytest.approx(error**2, rel=0.35), "the grid has steps of a factor 1.8"
    best = -0.5 * math.log(2.0 * math.pi * error**2) - 0.5
    assert look.score == pytest.approx(best, abs=0.05)


def test_one_odd_row_does_not_set_the_noise_of_all() -> None:
    y = 0.1 * torch.randn(100, generator=torch.Generator().manual_seed(0))
    usual = HeldOutLooks(torch.zeros(100, 1), y, seed=0).look(1.0, Shifted(0.0, scale=0.01))
    y[3] = 6.0
    odd = HeldOutLooks(torch.zeros(100, 1), y, seed=0).look(1.0, Shifted(0.0, scale=0.01))
    assert odd.extra == usual.extra


def test_predictions_that_are_wide_enough_get_nothing_added() -> None:
    y = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    assert HeldOutLooks(torch.zeros(4000, 1), y, seed=0).look(1.0, Shifted(0.0, scale=1.2)).extra == 0.0


def test_a_fit_with_a_better_mean_and_too_little_noise_is_the_better_one() -> None:
    y = 0.1 * torch.randn(500, generator=torch.Generator().manual_seed(0))
    looks = HeldOutLooks(torch.zeros(500, 1), y, seed=0)
    looks.look(1.0, Shifted(0.5, scale=0.5))
    looks.look(2.0, Shifted(0.0, scale=1e-3))
    assert looks.best == 1
