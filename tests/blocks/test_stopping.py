"""The length of a fit, found on held-out rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fsibench.blocks.stopping import SHORTEST, BestTravel
from fsibench.predictive import Predictive

ROWS = torch.zeros(20, 1), torch.zeros(20)


class Shifted:
    """Predicts N(shift, 1) where the truth is 0."""

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(torch.full((1, len(x)), self.shift), torch.ones(1, len(x)))


def found(best: float) -> float | None:
    """The choice after a fit of length 12 that is right at `best` and wrong before and after."""
    limit = BestTravel(*ROWS, seed=0)
    for step in range(1, 2401):
        limit.look(0.005 * step, Shifted(math.log(0.005 * step / best)))
    return limit.choice()


@pytest.mark.parametrize("best", [1.5, 3.0, 6.0])
def test_the_choice_is_where_held_out_rows_are_predicted_best(best: float) -> None:
    assert found(best) == pytest.approx(best, rel=0.25)


def test_a_fit_that_is_best_at_its_end_has_no_limit() -> None:
    assert found(20.0) is None


def test_no_choice_is_shorter_than_what_any_fit_needs() -> None:
    assert found(0.3) == SHORTEST


def test_one_lucky_look_does_not_decide() -> None:
    limit = BestTravel(*ROWS, seed=0)
    for place, shift in enumerate([3.0, 3.0, 0.0, 3.0, 3.0, 0.5, 0.4, 0.5, 3.0, 3.0]):
        limit.look(0.3 * 1.3**place, Shifted(shift))
    assert limit.choice() == pytest.approx(0.3 * 1.3**6)


def test_a_look_without_a_finite_score_counts_as_the_worst() -> None:
    limit = BestTravel(*ROWS, seed=0)
    for place, shift in enumerate([math.nan, 1.0, 0.5, 0.0, 0.5, math.nan, 3.0]):
        limit.look(1.3**place, Shifted(shift))
    assert limit.choice() == pytest.approx(1.3**3)


def test_a_look_says_whether_it_is_the_best_yet() -> None:
    limit = BestTravel(*ROWS, seed=0)
    assert limit.look(0.3, Shifted(1.0))
    assert not limit.look(0.31, Shifted(0.0)), "not due"
    assert limit.look(0.4, Shifted(0.5))
    assert not limit.look(0.5, Shifted(2.0))
