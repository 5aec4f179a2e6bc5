"""The store: what goes in comes out, other files are refused, one driver at a time."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsibench.errors import StoreError
from fsibench.store import EXPORT_COLUMNS, SCHEMA_VERSION, Store

CELL = {
    "id": "c1",
    "entry": "bbb",
    "method": "bbb",
    "options": "{}",
    "note": "",
    "dataset": "yacht",
    "scheme": "paper",
    "split": 0,
    "seed": 0,
    "budget": "3 steps",
    "clock": "wall",
    "device": "cpu",
    "data_fingerprint": "d",
    "code_version": "v",
}


def evaluation(step: int, **changes: Any) -> dict[str, Any]:
    row = {"step": step, "train_seconds": 0.1 * step, "wall_seconds": 0.1 * step, "cpu_seconds": 0.1 * step}
    return {**row, "rmse": 1.0, "ll": -1.0, "crps": 0.5, "sharpness": 1.0, "pit": "[]", "trace": "{}", **changes}


def filled(path: Path, **changes: Any) -> None:
    with Store.create(path) as store:
        run = store.begin_run(["fsibench"], {}, {})
        store.start_cell(run, {**CELL, **changes})
        for step in (1, 2, 3):
            store.add_evaluation({**CELL, **changes}["id"], evaluation(step))
        store.finish_cell({**CELL, **changes}["id"], "ok", {"message": None, "train_seconds": 0.3})


def test_what_was_written_is_read_back_with_the_last_evaluation_as_final(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    with Store.read(path) as store:
        frame = store.evaluations()
        assert list(frame.columns) == list(EXPORT_COLUMNS)
        assert frame["step"].tolist() == [1, 2, 3]
        assert frame["final"].tolist() == [0, 0, 1]
        assert store.evaluations(only_final=True)["step"].tolist() == [3]
        assert store.statuses(["c1", "other"]) == {"c1": "ok"}
        assert store.cells()["status"].tolist() == ["ok"]


def test_a_cell_that_runs_again_replaces_what_it_measured_before(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    with Store.create(path) as store:
        store.start_cell(store.begin_run([], {}, {}), CELL)
        assert store.evaluations().empty
        store.add_evaluation("c1", evaluation(1))
        store.finish_cell("c1", "error", {"message": "no"})
        assert store.evaluations()["step"].tolist() == [1]
        assert store.cells()["attempts"].tolist() == [2]


def test_of_two_cells_with_equal_coordinates_the_latest_counts(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    filled(path, id="c0", code_version="newer")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET started = '2020-01-01T00:00:00Z' WHERE id = 'c1'")
    connection.close()
    with Store.read(path) as store:
        assert store.cells()["id"].tolist() == ["c0"]
        assert store.evaluations()["cell"].unique().tolist() == ["c0"]


def test_a_running_cell_of_a_dead_driver_becomes_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store.create(path) as store:
        store.start_cell(store.begin_run([], {}, {}), CELL)
    with Store.create(path) as store:
        assert store.statuses(["c1"]) == {"c1": "running"}
        store.begin_run([], {}, {})
        assert store.statuses(["c1"]) == {"c1": "interrupted"}


def test_a_second_driver_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store.create(path):
        program = f"from fsibench.store import Store; from pathlib import Path; Store.create(Path({str(path)!r}))"
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert "being written by another fsibench run" in second.stderr
        with Store.read(path) as reader:
            assert reader.runs() == []


def test_a_store_of_another_version_is_refused_both_ways(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99'")
    connection.close()
    for opened in (Store.create, Store.read):
        with pytest.raises(StoreError, match=f"has format 99, this fsibench reads format {SCHEMA_VERSION}"):
            opened(path)


@pytest.mark.parametrize("content", [b"entry,dataset\nbbb,yacht\n" * 100, b"\x00" * 5000])
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_bytes(content)
    for opened in (Store.create, Store.read):
        with pytest.raises(StoreError, match=r"not a fsibench store|cannot be used"):
            opened(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a fsibench store"):
        Store.create(path)
    assert path.read_bytes() == before


def test_an_absent_store_is_named_when_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        Store.read(tmp_path / "absent.sqlite")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        Store.create(tmp_path / "file" / "s.sqlite")
    folder = tmp_path / "folder.sqlite"
    folder.mkdir(mode=stat.S_IRWXU)
    with pytest.raises(StoreError, match="cannot be"):
        Store.create(folder)
