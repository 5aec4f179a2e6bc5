"""Search spaces, tuned defaults and the ruler agree with the code."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from fsibench import registry
from fsibench.contract import Between, Method
from fsibench.tuning import objective, record
from fsibench.tuning.space import drawn, space_of, whole

FILES = sorted((Path(__file__).parents[2] / "methods" / "defaults").glob("*.toml"))
SEARCHED = [name for name, method in sorted(registry.methods().items.items()) if method.search]


def default_of(method: type[Method]) -> Method:
    return method()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_defaults_of_a_method_are_what_its_search_found(path: Path) -> None:
    method = registry.entry(path.stem).method
    found = record.best_options(path)
    assert {name: getattr(method, name) for name in found} == found


@pytest.mark.parametrize("name", SEARCHED)
def test_defaults_lie_in_the_space_that_is_searched(name: str) -> None:
    method = registry.entry(name).method
    for option, values in method.search.items():
        default = getattr(method, option)
        inside = default in values if isinstance(values, tuple) else values.low <= default <= values.high
        assert inside, f"{option}={default} is outside {values}"
        assert isinstance(values, tuple) or isinstance(default, int) == whole(values)


@pytest.mark.parametrize("name", SEARCHED)
def test_no_point_of_a_search_space_changes_the_objective(name: str) -> None:
    method, generator = registry.entry(name).method, torch.Generator().manual_seed(0)
    for _ in range(30):
        changed = dataclasses.replace(method, **drawn(space_of(type(method)), generator))
        assert (changed.departure(), changed.published_column()) == (method.departure(), method.published_column())


def test_random_points_cover_a_space() -> None:
    space, generator = {"a": Between(1e-3, 1.0, log=True), "b": (1, 2), "c": Between(1, 3)}, torch.Generator().manual_seed(1)
    points = [drawn(space, generator) for _ in range(300)]
    assert {point["b"] for point in points} == {1, 2}
    assert {point["c"] for point in points} == {1, 2, 3}
    assert all(1e-3 <= point["a"] <= 1.0 for point in points)
    assert 100 < sum(point["a"] < 10**-1.5 for point in points) < 200


def test_the_ruler_covers_the_development_suite_and_no_reported_set() -> None:
    from fsibench.harness.plan import load_protocol

    assert set(objective.datasets()) == set(load_protocol("dev", {}).datasets)
    reported = {name for protocol in ("uci", "quick", "large") for name in load_protocol(protocol, {}).datasets}
    assert not reported & set(objective.datasets())


def test_merit_is_zero_at_constant_and_one_at_the_best_known() -> None:
    for dataset, split, _ in objective.references():
        ends = {name: objective.references()[dataset, split, name] for name in objective.METRICS}
        constant = {name: end.constant for name, end in ends.items()}
        best = {name: end.best for name, end in ends.items()}
        assert objective.merit(dataset, split, constant) == pytest.approx(0.0)
        assert objective.merit(dataset, split, best) == pytest.approx(1.0)
        assert objective.merit(dataset, split, {}) == objective.FLOOR
