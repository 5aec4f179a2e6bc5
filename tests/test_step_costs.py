from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fsibench.errors import UsageError
from fsibench.harness import step_costs


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_costs, "ROUNDS", 3)
    monkeypatch.setattr(step_costs, "WARM_UP_STEPS", 2)
    monkeypatch.setattr(step_costs, "SECONDS_PER_ROUND", 0.01)


def test_a_row_holds_the_step_in_milliseconds_and_in_kernels() -> None:
    (row,) = step_costs.measure(["bbb[preset=paper]"])
    assert list(row) == ["entry", "cpu_ms", "T_ms", "in_T", "limit"]
    assert row["limit"] == step_costs.LIMITS["bbb[preset=paper]"]
    assert row["in_T"] > 0.0
    assert row["cpu_ms"] / row["T_ms"] == pytest.approx(row["in_T"], rel=1.0)


def test_entries_without_a_limit_can_be_measured() -> None:
    (row,) = step_costs.measure(["bbb[num_draws=2]"])
    assert row["limit"] is None
    assert row["cpu_ms"] > 0.0


def test_every_row_of_the_table_trains() -> None:
    for entry in step_costs.LIMITS:
        posterior = next(step_costs.Steps(entry))
        assert posterior.trace()


class Ends:
    """Prepares for `start` CPU seconds, then takes `length` steps of a millisecond each, and ends."""

    def __init__(self, length: int, start: float = 0.05) -> None:
        self.length, self.start = length, start

    def fit(self, *arguments: object) -> Iterator[str]:
        burn(self.start)
        for _ in range(self.length):
            burn(0.001)
            yield "posterior"


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def in_place_of_an_entry(method: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_costs.registry, "entry", lambda name: SimpleNamespace(method=method))


def test_a_fit_that_ends_is_started_again_off_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_an_entry(Ends(5), monkeypatch)
    (row,) = step_costs.measure(["ends"])
    assert row["cpu_ms"] == pytest.approx(1.0, rel=0.5)


def test_a_fit_of_one_pull_has_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_an_entry(Ends(1), monkeypatch)
    with pytest.raises(UsageError, match="no training step"):
        step_costs.measure(["exact"])


def test_the_suite_of_steps_starts_an_ended_fit_again_off_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    from benchmarks import common, steps

    monkeypatch.setattr(common, "method", lambda entry: Ends(25))
    suite = steps.Step()
    suite.setup("ends")
    start = suite.timer()
    for _ in range(30):
        suite.time_step("ends")
    assert suite.timer() - start == pytest.approx(0.03, rel=0.5)


def test_measuring_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    step_costs.measure(["bbb[preset=paper]"])
    assert torch.get_num_threads() == before


def test_cpu_milliseconds_counts_work_and_not_waiting() -> None:
    assert step_costs.cpu_milliseconds(lambda: time.sleep(0.005), seconds=0.0005) < 2.0
    assert step_costs.cpu_milliseconds(lambda: burn(0.005), seconds=0.02) == pytest.approx(5.0, rel=0.5)
