"""The study of how many draws a prediction needs: one fit, and more draws scatter less."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from fsibench.data import prepare
from fsibench.registry import dataset


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("sample_study")


def test_predictions_from_one_fit_scatter_less_with_more_draws(script: ModuleType) -> None:
    table = script.study("yacht", steps=60, repetitions=6)
    assert list(table.index.get_level_values("draws")) == list(script.NUMBERS)
    spread = table["± CRPS"].droplevel("data set")
    assert spread[1000] < 0.5 * spread[20]


def test_a_study_leaves_the_fit_as_it_is(script: ModuleType) -> None:
    rows = prepare(dataset("yacht"), "paper", 0)
    posterior = script.fitted(rows, 3)
    before = posterior.options
    first = script.scores(posterior, rows, 50, seed=0)
    assert posterior.options == before
    again = script.scores(posterior, rows, 50, seed=0)
    assert {name: first[name] for name in ("LL", "RMSE", "CRPS")} == {name: again[name] for name in ("LL", "RMSE", "CRPS")}
