"""A search in a store: every fit is remembered, a stopped search goes on, the command writes the record."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fsibench import cli, registry
from fsibench.contract import Data, Meter
from fsibench.errors import UsageError
from fsibench.executors.base import Event
from fsibench.executors.inline import InlineExecutor
from fsibench.harness.plan import Cell
from fsibench.harness.store import Store
from fsibench.tuning import record
from fsibench.tuning.search import Outcome, Request, Settings
from fsibench.tuning.session import Task, tune

pytest.importorskip("optuna")
SETTINGS = Settings(total_seconds=2.0, cell_seconds=0.05)


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """The first step of an optimiser in a process imports for a second; that second is not the search's."""
    data = Data(torch.randn(20, 2), torch.randn(20))
    list(Meter(steps=2).pulls(registry.entry("bbb").method, data, torch.Generator().manual_seed(0)))


class Stopping(InlineExecutor):
    """Ctrl-C instead of a fit."""

    def run(self, queue: deque[Cell]) -> Iterator[Event]:
        raise KeyboardInterrupt
        yield


def session(path: Path, most_fits: int = 10**9) -> tuple[Outcome, int]:
    """The outcome, and how many fits were run for it; the fit after `most_fits` is interrupted."""
    fits = 0

    def make_executor() -> InlineExecutor:
        nonlocal fits
        fits += 1
        return InlineExecutor() if fits <= most_fits else Stopping()

    task = Task.of("bbb", SETTINGS, ["slump", "autompg"], lambda _: None)
    with Store.create(path) as store:
        run = store.begin_run(["fsibench"], {}, {})
        return tune(task, store, run, make_executor, lambda _: None), fits


def test_a_finished_search_is_replayed_from_its_store(tmp_path: Path) -> None:
    first, fits = session(tmp_path / "s.sqlite")
    again, none = session(tmp_path / "s.sqlite")
    assert fits > 3
    assert none == 0
    assert [candidate.merits for candidate in again.candidates] == [candidate.merits for candidate in first.candidates]


def test_a_stopped_search_goes_on_without_repeating_a_fit(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with pytest.raises(KeyboardInterrupt):
        session(path, most_fits=3)
    with Store.read(path) as store:
        before = set(store.cells().query("status == 'ok'")["id"])
    assert len(before) == 3
    _, fits = session(path)
    with Store.read(path) as store:
        cells = store.cells()
    assert fits == len(cells) - 3
    assert before <= set(cells["id"])


def test_written_options_stay_as_they_are() -> None:
    task = Task.of("bbb[batch_size=25]", SETTINGS, ["slump"], lambda _: None)
    assert "batch_size" not in task.space
    [cell] = task.cells(Request({"warm_up": 0.1}, "slump", 0, 1.0))
    assert "batch_size=25" in cell.entry


def test_a_method_without_a_search_space_is_refused() -> None:
    with pytest.raises(UsageError, match="declares nothing to search"):
        Task.of("constant", SETTINGS, ["slump"], lambda _: None)


@pytest.mark.slow
def test_the_command_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "bbb", "--total", "1s", "--budget", "50ms", "--datasets", "slump", "--out", str(tmp_path)]
    assert cli.main([*command, "--store", str(tmp_path / "s.sqlite")]) == 0
    assert set(record.best_options(tmp_path / "bbb.toml")) == set(Task.of("bbb", SETTINGS, ["slump"], print).space)
    assert str(tmp_path) not in (tmp_path / "bbb.toml").read_text()
    assert "written to" in capsys.readouterr().err
    assert cli.main(["tune", "bbb", "--datasets", "boston"]) == 2
    assert "development suite" in capsys.readouterr().err
