"""The clock `reference`: CPU seconds in units of a kernel, so that machines and moments compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsibench.cli import main
from fsibench.errors import UsageError
from fsibench.harness import runner, speed
from fsibench.harness.audit import Audit, check_rows
from fsibench.harness.plan import load_protocol
from fsibench.harness.store import Store


def told(values: list[float]) -> Iterator[float]:
    yield from values


def test_a_machine_of_half_the_speed_has_twice_the_seconds() -> None:
    cpu = told([0.0, 10.0])
    clock = speed.ReferenceClock(lambda: next(cpu), lambda _: 0.5)
    assert clock() == 5.0


def test_a_machine_that_becomes_slower_is_noticed_and_the_past_stays() -> None:
    cpu, speeds = told([0.0, 10.0, 11.0, 21.0]), told([1.0, 0.5])
    clock = speed.ReferenceClock(lambda: next(cpu), lambda _: next(speeds))
    clock.measure_again()  # after 10 s at full speed; the measurement itself takes a second, which is not counted
    assert clock.speed == pytest.approx(speed.MEMORY + (1.0 - speed.MEMORY) * 0.5)
    assert clock() == pytest.approx(10.0 + 10.0 * clock.speed)


def test_the_kernel_takes_milliseconds_and_is_repeated() -> None:
    found = speed.measured(0.05)
    assert 0.05 < found < 20.0


def test_clocks_have_names() -> None:
    assert isinstance(runner.clock_named("reference"), speed.ReferenceClock)
    assert isinstance(runner.clock_named("cpu"), runner.FamilyClock)
    with pytest.raises(UsageError, match="reference"):
        load_protocol("smoke", {"clock": "sundial"})


def test_a_run_by_the_reference_clock_is_charged_by_the_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed.ReferenceClock.__init__, "__defaults__", (lambda _: 4.0,))
    store = tmp_path / "s.sqlite"
    arguments = ["--methods", "bbb", "--datasets", "yacht", "--budget", "1s", "--clock", "reference", "--executor", "inline", "--no-report"]
    assert main(["run", "smoke", *arguments, "--store", str(store)]) == 0
    with Store.read(store) as opened:
        cells = opened.cells()
        assert set(cells["clock"]) == {"reference"}
        assert cells["train_seconds"].between(1.0, 1.3).all()
        assert (4.0 * cells["cpu_seconds"]).to_numpy() == pytest.approx(cells["train_seconds"].to_numpy(), rel=0.05)
        result = Audit()
        check_rows(cells, opened.evaluations(), result)
        assert not result.findings
        looks = opened.evaluations().assign(train_seconds=1000.0)
        check_rows(cells, looks, result)
        assert "clocks disagree" in str(result.findings)
