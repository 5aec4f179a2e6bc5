"""Regimes: options chosen on training rows only, mixtures with equal weights, everything inside the budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fsibench import registry
from fsibench.contract import Between, Budget, Data, Meter, Method, Posterior, Space
from fsibench.harness import identity
from fsibench.methods.tuned import Mixture, Tuned, round_sizes, score
from fsibench.predictive import Predictive, SamplePredictive


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def waves(num_rows: int = 150) -> Data:
    x = torch.randn(num_rows, 2, generator=stream(1))
    y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=stream(2))
    return Data(x, (y - y.mean()) / y.std())


def fitted(options: Tuned, train: Data, steps: int) -> list[Posterior]:
    return list(Meter(steps=steps).pulls(options, train, stream()))


@pytest.mark.parametrize("members", [1, 3])
def test_the_last_posterior_is_a_mixture_of_the_members(members: int) -> None:
    *_, last = fitted(Tuned(of="bbb", trials=3, members=members), waves(), 60)
    assert isinstance(last, Mixture)
    assert len(last.members) == members
    assert last.predict(waves().x[:5], stream()).num_components == 200 * members
    assert last.draw(waves().x[:5], 7, stream()).shape == (7, 5)


class Constant:
    def __init__(self, value: float, size: int) -> None:
        self.value, self.size = value, size

    def predict(self, x: torch.Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(torch.full((self.size, len(x)), self.value), torch.ones(1, 1))

    def draw(self, x: torch.Tensor, num_draws: int, generator: torch.Generator) -> torch.Tensor:
        return torch.full((num_draws, len(x)), self.value)


@dataclass(frozen=True)
class Shifted(Method):
    """Predicts its option; each step takes a second of `clock`."""

    name: ClassVar[str] = "shifted"
    search: ClassVar[Space] = {"shift": Between(-1.0, 1.0)}
    clock: ClassVar[list[float]] = [0.0]

    shift: float = 5.0

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            self.clock[0] += 1.0
            yield Constant(self.shift, 1)


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> Tuned:
    monkeypatch.setattr(Tuned, "base", property(lambda self: Shifted()))
    return Tuned(of="shifted", trials=20)


def test_a_search_leaves_bad_defaults(shifted: Tuned) -> None:
    *_, last = fitted(shifted, waves(), 300)
    assert abs(float(last.predict(waves().x[:1], stream()).mean)) < 0.3


def test_a_budget_in_seconds_is_kept_and_its_end_finds_the_last_fit_finished(shifted: Tuned) -> None:
    meter = Meter(seconds=1000.0, clock=lambda: Shifted.clock[0])
    *_, last = meter.pulls(shifted, waves(), stream())
    assert isinstance(last, Mixture)
    assert 960.0 < meter.elapsed <= 1000.0


def test_rounds_halve_down_to_the_members() -> None:
    assert round_sizes(9, 1) == [9, 3, 1]
    assert round_sizes(9, 5) == [9, 5]
    assert round_sizes(1, 1) == [1]


def test_members_have_equal_weight_whatever_their_number_of_components() -> None:
    mixture = Mixture([Constant(0.0, 10), Constant(1.0, 500)])
    x = torch.zeros(3, 2)
    assert mixture.predict(x, stream()).mean.tolist() == pytest.approx([0.5] * 3)
    assert mixture.draw(x, 100, stream()).mean().item() == pytest.approx(0.5)


def test_tuned_answers_for_the_column_of_its_method_and_a_mixture_is_a_variant() -> None:
    assert registry.entry("tuned[of=sip]").method.published_column() == "SIP_BNN"
    assert registry.entry("tuned[of=bbb]").method.departure() == ""
    assert registry.entry("tuned[of=bbb,members=5]").method.departure() == "a mixture of 5 fits"


def test_tuned_is_meant_for_as_many_rows_as_its_method() -> None:
    for name in ("bbb", "laplace"):
        assert registry.entry(f"tuned[of={name}]").method.max_rows == registry.entry(name).method.max_rows


def test_the_code_of_the_method_that_it_runs_is_part_of_its_identity() -> None:
    versions = {name: identity.version_of(registry.entry(f"tuned[of={name}]").method) for name in ("bbb", "aadm")}
    assert versions["bbb"] != versions["aadm"]
    assert identity.version_of(registry.entry("bbb").method) == identity.code_version("fsibench.methods.bbb")


@pytest.mark.parametrize(("text", "message"), [("tuned[members=10]", "at most trials"), ("tuned[search_share=1]", "between")])
def test_impossible_regimes_are_refused(text: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        registry.entry(text)


def test_a_method_that_always_diverges_says_so() -> None:
    from fsibench.errors import Diverged

    broken = Data(torch.full((20, 2), math.nan), torch.zeros(20))
    with pytest.raises(Diverged):
        fitted(Tuned(of="bbb", trials=2), broken, 50)


class Told:
    """Predicts what it was given."""

    def __init__(self, predictive: Predictive) -> None:
        self.predictive = predictive

    def predict(self, x: torch.Tensor, generator: torch.Generator) -> Predictive:
        return self.predictive

    def draw(self, x: torch.Tensor, num_draws: int, generator: torch.Generator) -> torch.Tensor:
        return torch.zeros(num_draws, len(x))


Y = torch.tensor([0.3, -1.0, 8.0])
ONE = torch.ones(1, 3)
KINDS = {
    "weights": [Predictive(torch.tensor([[0.0] * 3, [4.0] * 3]), ONE, torch.tensor([0.9, 0.1])), Predictive(0.5 * ONE, ONE, torch.ones(1))],
    "Student's t": [Predictive(0.0 * ONE, ONE, df=3.0), Predictive(ONE, ONE, df=5.0)],
    "unequal numbers": [Predictive(torch.linspace(-1, 1, 7)[:, None].expand(7, 3), ONE), Predictive(ONE, 2 * ONE)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_has_the_mean_density_of_its_members(kind: str) -> None:
    members = KINDS[kind]
    mixed = Mixture([Told(member) for member in members]).predict(Y[:, None], stream())
    expected = torch.stack([member.log_prob(Y).exp() for member in members]).mean(0).log()
    assert torch.allclose(mixed.log_prob(Y), expected, atol=1e-5)
    assert Mixture([Told(members[0])]).predict(Y[:, None], stream()) is members[0]


def test_sets_of_values_are_mixed_as_values_and_scored_without_a_density() -> None:
    few, many = SamplePredictive(torch.zeros(2, 3)), SamplePredictive(torch.ones(6, 3))
    mixed = Mixture([Told(few), Told(many)]).predict(Y[:, None], stream())
    assert isinstance(mixed, SamplePredictive)
    assert torch.allclose(mixed.mean, torch.full((3,), 0.5))
    assert score(Told(few), Data(Y[:, None], Y), stream()) == pytest.approx(-float(few.crps(Y).mean()))


def test_waivers_and_limits_are_those_of_the_method_that_is_tuned() -> None:
    assert registry.entry("bbb").method.waivers.items() <= Tuned(of="bbb").waivers.items()
    assert set(Tuned(of="vip").waivers) == {"beats_the_constant"}
