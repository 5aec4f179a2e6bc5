from __future__ import annotations

import time

import pytest
import torch

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
        posterior = next(step_costs.training_steps(entry))
        assert posterior.trace()


def test_measuring_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    step_costs.measure(["bbb[preset=paper]"])
    assert torch.get_num_threads() == before


def test_cpu_milliseconds_counts_work_and_not_waiting() -> None:
    assert step_costs.cpu_milliseconds(lambda: time.sleep(0.005), seconds=0.0005) < 2.0

    def work() -> None:
        end = time.process_time() + 0.005
        while time.process_time() < end:
            pass

    assert step_costs.cpu_milliseconds(work, seconds=0.02) == pytest.approx(5.0, rel=0.5)
