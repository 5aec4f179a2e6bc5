"""A packed store is the store: nothing is lost on the way there and back, and a run goes on from it."""

from __future__ import annotations

import sqlite3
from argparse import Namespace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.cli.run import _limits
from fsibench.errors import StoreError, UsageError
from fsibench.harness.plan import load_protocol, make_plan
from fsibench.harness.store import Store
from fsibench.harness.store.packing import without_folders
from fsibench.reports.analysis.conditions import own_budgets, select_conditions
from fsibench.reports.analysis.results import load

RUN = ["run", "smoke", "--methods", "constant,linear,bbb", "--steps", "5", "--executor", "inline"]


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table by column name, in the order of the keys."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    tables = {"runs": "id", "cells": "id", "evaluations": "cell, step", "artifacts": "cell, kind"}
    found = {
        table: [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY {keys}")]
        for table, keys in tables.items()
    }
    connection.close()
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packing") / "a.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fsibench", *RUN])
        assert main([*RUN, "--store", str(path)]) == 0
    return path


def test_a_store_that_was_packed_and_merged_into_a_new_one_is_the_same_to_the_last_bit(store: Path, tmp_path: Path) -> None:
    assert main(["store", "pack", "--store", str(store), "--out", str(tmp_path / "a.parquet")]) == 0
    assert main(["store", "merge", "--store", str(tmp_path / "b.sqlite"), str(tmp_path / "a.parquet")]) == 0
    before, after = content(store), content(tmp_path / "b.sqlite")
    assert before["artifacts"], "the smoke protocol keeps the functions of its set with one input"
    assert after == before


def test_a_run_goes_on_from_a_packed_store_and_runs_only_what_is_missing(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "a.parquet"
    with Store.read(store) as opened:
        assert opened.pack(packed) == 6
        scores = opened.evaluations()
    again = [*RUN, "--store", str(tmp_path / "b.sqlite"), "--take-over", str(packed)]
    assert main(again) == 0
    assert "0 cells to run (6 already in" in capsys.readouterr().err
    assert main([*again, "--splits", "2"]) == 0
    assert "6 cells to run (6 already in" in capsys.readouterr().err
    with Store.read(tmp_path / "b.sqlite") as opened:
        later = opened.evaluations()
        pd.testing.assert_frame_equal(
            later[later["split"] == 0].reset_index(drop=True)[scores.columns], scores, check_exact=True
        )
        assert opened.pack(packed) == 12, "packing again takes the new cells along"


def test_every_reader_takes_a_packed_store(store: Path, tmp_path: Path) -> None:
    packed = tmp_path / "a.parquet"
    with Store.read(store) as opened:
        opened.pack(packed)
    pd.testing.assert_frame_equal(load(packed).cells, load(store).cells)
    assert main(["export", "--store", str(packed), "--out", str(tmp_path / "rows.csv")]) == 0
    assert main(["report", "--store", str(packed), "--terminal"]) == 0


def test_folders_of_a_machine_are_not_packed(store: Path, tmp_path: Path) -> None:
    with Store.create(tmp_path / "c.sqlite") as opened:
        opened.merge(store)
        opened.begin_run(["fsibench", "run", "--mirror", "/home/somebody/data", "--store=/var/x/y.sqlite"], {}, {})
        opened._connection.execute("UPDATE cells SET message = 'cannot read /home/somebody/data/x.csv: no such file'")
        opened.pack(tmp_path / "c.parquet")
    with Store.read(tmp_path / "c.parquet") as opened:
        assert opened.runs()[-1]["command"][2:] == ["--mirror", "…/data", "--store=…/y.sqlite"]
        assert set(opened.cells()["message"]) == {"cannot read …/x.csv: no such file"}
    assert without_folders("https://a.org/b/c and 3/8 and a/b/c") == "https://a.org/b/c and 3/8 and a/b/c"


def test_other_parquet_files_and_damaged_ones_are_refused_in_one_sentence(store: Path, tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(StoreError, match="no packed store"):
        Store.read(tmp_path / "other.parquet")
    with Store.read(store) as opened:
        opened.pack(tmp_path / "a.parquet")
    half = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(half[: len(half) // 2])
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        Store.read(tmp_path / "half.parquet")
    with Store.create(tmp_path / "b.sqlite") as opened, pytest.raises(StoreError, match="cannot be read as Parquet"):
        opened.merge(tmp_path / "half.parquet")


def test_a_packed_store_is_not_written_to(store: Path, tmp_path: Path) -> None:
    with Store.read(store) as opened:
        opened.pack(tmp_path / "a.parquet")
    before = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(StoreError, match="--take-over"):
        Store.create(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == before


# Budgets of single entries -------------------------------------------------------------------------------------


def test_an_entry_with_a_budget_of_its_own_gets_it_and_a_budget_on_the_command_line_is_for_all(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('methods = ["linear", "bbb"]\ndatasets = ["yacht"]\nbudget = "2s"\nbudgets = { bbb = "5s" }\n')
    assert [cell.seconds for cell in make_plan(load_protocol(str(file), {}))] == [2.0, 5.0]
    assert [cell.seconds for cell in make_plan(load_protocol(str(file), {"seconds": 1.0}))] == [1.0, 1.0]
    assert [cell.steps for cell in make_plan(load_protocol(str(file), {"steps": 3}))] == [3, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [("budgets = 3", "must be a table"), ("budgets = { bbb = 3 }", "must be a table"), ('budgets = { bbb = "-1s" }', "positive"),
     ('budgets = { bob = "3s" }', "unknown method 'bob'"), ('steps = 3\nbudgets = { bbb = "3s" }', "counts steps")],
)  # fmt: skip
def test_a_budget_that_cannot_be_is_one_sentence(tmp_path: Path, line: str, message: str) -> None:
    budget = "" if "steps" in line else 'budget = "2s"\n'
    (tmp_path / "p.toml").write_text(f'methods = ["bbb"]\ndatasets = ["yacht"]\n{budget}{line}\n')
    with pytest.raises(UsageError, match=message):
        make_plan(load_protocol(str(tmp_path / "p.toml"), {}))


def test_a_stated_longer_budget_is_compared_with_a_note_and_an_unstated_one_is_left_out() -> None:
    rows = [("gp", "30s"), ("bbb", "30s"), ("hmc", "120s"), ("hmc", "30s"), ("sip", "60s")]
    cells = pd.DataFrame(rows, columns=["entry", "budget"]).assign(
        id=[f"{number}" for number in range(5)], dataset="yacht", scheme="paper", clock="cpu", device="cpu",
        split=0, seed=0, started="now",
    )  # fmt: skip
    own = own_budgets([{"protocol": {"seconds": 30.0, "budgets": {"hmc": 120.0}}}, {"protocol": {}}])
    selected, left_out = select_conditions(cells, {}, own)
    assert list(zip(selected["entry"], selected["budget"], selected["own_budget"], strict=True)) == [
        ("gp", "30s", ""), ("bbb", "30s", ""), ("hmc", "120s", "budget 120s"),
    ]  # fmt: skip
    assert left_out == ["1 cell with scheme paper, budget 60s, clock cpu, device cpu (on yacht) is not shown here."]


def test_a_budget_in_cpu_seconds_leaves_room_for_a_busy_machine(tmp_path: Path) -> None:
    """30 CPU seconds took 480 s of wall time at a load of 18 on two cores, and that is no failure of the method."""
    given = Namespace(time_limit=None, memory_limit=None)
    limits = {
        clock: _limits(given, load_protocol("smoke", {"seconds": 30.0, "clock": clock}), 2).seconds for clock in ("wall", "cpu")
    }
    assert limits == {"wall": 210.0, "cpu": 4200.0}
    given = Namespace(time_limit="60s", memory_limit=None)
    assert _limits(given, load_protocol("smoke", {"seconds": 30.0, "clock": "cpu"}), 2).seconds == 60.0
