"""A plan in parts: every cell in exactly one shard, and merged shards equal one run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.errors import UsageError
from fsibench.harness.environment import speed_note
from fsibench.harness.plan import load_protocol, make_plan
from fsibench.harness.shards import Shard, parse_shard
from fsibench.harness.store import Store

COLUMNS = ["entry", "dataset", "split", "step", "rmse", "ll", "crps"]


def scores(path: Path) -> pd.DataFrame:
    with Store.read(path) as store:
        return store.evaluations()[COLUMNS].sort_values(COLUMNS, ignore_index=True)


def test_every_cell_is_in_exactly_one_shard_also_when_the_plan_grows() -> None:
    cells = make_plan(load_protocol("smoke", {"methods": ["constant", "linear"], "splits": 5}))
    parts = [Shard(number, 4).of(cells) for number in range(1, 5)]
    assert sorted(cell.id for part in parts for cell in part) == sorted(cell.id for cell in cells)
    more = make_plan(load_protocol("smoke", {"methods": ["constant", "bbb", "linear"], "splits": 5}))
    assert all({cell.id for cell in part} <= {c.id for c in Shard(n, 4).of(more)} for n, part in enumerate(parts, 1))


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "1", "a/b", "-1/3", "1/3/5"])
def test_a_shard_that_cannot_be_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="write for example 3/8"):
        parse_shard(text)


def test_merged_shards_equal_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = ["run", "smoke", "--methods", "constant,linear", "--splits", "3", "--executor", "inline"]
    assert main([*run, "--store", "whole.sqlite"]) == 0
    for number in (1, 2):
        assert main([*run, "--shard", f"{number}/2"]) == 0
    parts = sorted(str(path) for path in Path("results").glob("*.sqlite"))
    assert parts == ["results/fsibench-1of2.sqlite", "results/fsibench-2of2.sqlite"]
    assert main(["store", "merge", "--store", "merged.sqlite", *parts]) == 0
    pd.testing.assert_frame_equal(scores(Path("merged.sqlite")), scores(Path("whole.sqlite")), check_exact=True)


def test_cells_carry_the_speed_of_their_machine_and_unequal_ones_are_named(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert main(["run", "smoke", "--methods", "constant", "--store", str(store), "--executor", "inline"]) == 0
    with Store.read(store) as opened:
        cells = opened.cells()
        (speed,) = set(cells["calibration_seconds"])
        assert speed == opened.runs()[0]["environment"]["calibration_seconds"]

    def with_one_more(clock: str, seconds: float | None) -> pd.DataFrame:
        return pd.concat([cells, cells.iloc[:1].assign(clock=clock, calibration_seconds=seconds)])

    assert speed_note(with_one_more("cpu", None)) is None
    assert "differ by a factor of 2.0" in str(speed_note(with_one_more("cpu", 2 * speed)))
    assert speed_note(with_one_more("reference", 2 * speed)) is None, "a clock that makes them equal"
