"""The rule of the gate on made-up noise: what a round, a copy and a process add to a ratio of CPU times."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fsibench.history import duet, gate
from fsibench.history.duet import Pair, Rounds

SERIES = gate.Series("steps.Step.time_step(bbb)", "time", gate.verdicts.TIME, 1)
# standard deviations of log-ratios as they were on a busy machine, the largest of eight series
PROCESS, COPY, ROUND = 0.009, 0.012, 0.05


class MadeUpPairs:
    """Processes with luck of their own, whose second side is slower by a known factor."""

    def __init__(self, generator: np.random.Generator, factor: float, process: float = PROCESS) -> None:
        self.generator, self.factor, self.process = generator, factor, process
        self.renew()

    def get(self) -> Any:
        return self

    def renew(self) -> None:
        self.luck = math.log(self.factor) + self.process * self.generator.standard_normal()

    def rounds(self, series: str, deadline: float) -> Iterator[Rounds]:
        while True:
            middle = self.luck + COPY * self.generator.standard_normal()
            noise = ROUND * self.generator.standard_t(4, duet.ROUNDS_PER_COPY)
            yield Rounds((1.0,) * len(noise), tuple(np.exp(middle + noise)))


def verdicts(factor: float, tries: int, process: float = PROCESS) -> Counter[str]:
    generator = np.random.default_rng(0)
    made = (MadeUpPairs(generator, factor, process) for _ in range(tries))
    return Counter(gate.outcome_of(pairs, SERIES, time.monotonic() + 100).verdict for pairs in made)  # type: ignore[arg-type]


def test_equal_commits_are_seldom_called_changed() -> None:
    found = verdicts(1.0, 400)
    assert found["regression"] + found["improved"] <= 4


def test_the_luck_of_one_process_is_not_called_a_regression() -> None:
    """Twice the luck that was seen."""
    assert verdicts(1.0, 200, process=2 * PROCESS)["regression"] <= 2


def test_five_per_cent_are_found() -> None:
    assert verdicts(1.05, 200)["regression"] >= 190


def test_one_pair_of_processes_alone_raises_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1000))
    monkeypatch.setattr(gate.time, "monotonic", lambda: next(moments))
    pairs: Any = MadeUpPairs(np.random.default_rng(0), 1.3)
    assert gate.outcome_of(pairs, SERIES, 1.0).verdict == "worse within noise"


class Recorder:
    """A worker that notes when it is asked and on which core."""

    def __init__(self, label: str, log: list[tuple[str, Any]]) -> None:
        self.label, self.log = label, log

    def pin(self, core: int) -> None:
        self.core = core

    def send(self, do: str, **request: Any) -> None:
        self.log.append((self.label, self.core))

    def receive(self) -> dict[str, Any]:
        return {"cpu": 1.0, "who": self.label}


def test_cores_change_every_round_and_who_is_first_every_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duet, "cores", lambda: [0, 1])
    log: list[tuple[str, Any]] = []
    pair = Pair.__new__(Pair)
    pair.sides = (Recorder("base", log), Recorder("head", log))  # type: ignore[assignment]
    answers = [pair.both("time", number) for number in range(4)]
    assert all([answer["who"] for answer in both] == ["base", "head"] for both in answers)
    assert log[::2] == [("base", 0), ("base", 1), ("head", 1), ("head", 0)]


@pytest.mark.parametrize(("seconds", "calls", "rounds"), [(0.001, 12, 24), (0.1, 1, 16), (0.5, 1, 6), (9.0, 1, 6)])
def test_dear_calls_make_fewer_rounds(seconds: float, calls: int, rounds: int) -> None:
    assert (duet._calls(seconds), duet._rounds(seconds)) == (calls, rounds)
