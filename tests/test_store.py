"""The store: what goes in comes out, other files are refused, one driver at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fsibench.errors import StoreError
from fsibench.harness.events import Evaluation, Finished
from fsibench.harness.store import EXPORT_COLUMNS, SCHEMA_VERSION, Store
from fsibench.harness.store.salvage import salvage

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


def evaluation(step: int) -> Evaluation:
    scores = {"rmse": 1.0, "ll": -1.0, "crps": 0.5, "sharpness": 1.0}
    return Evaluation(step, 0.1 * step, 0.1 * step, 0.1 * step, scores, (), {})


def filled(path: Path, **changes: Any) -> None:
    with Store.create(path) as store:
        run = store.begin_run(["fsibench"], {}, {})
        store.start_cell(run, {**CELL, **changes})
        for step in (1, 2, 3):
            store.add_evaluation({**CELL, **changes}["id"], evaluation(step))
        store.finish_cell({**CELL, **changes}["id"], Finished("ok", clocks={"train_seconds": 0.3}))


def test_what_was_written_is_read_back_with_the_last_evaluation_as_final(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    with Store.read(path) as store:
        frame = store.evaluations()
        assert list(frame.columns) == [*EXPORT_COLUMNS, "rmse", "ll", "crps", "sharpness"]
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
        store.finish_cell("c1", Finished("error", "no"))
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
        program = f"from fsibench.harness.store import Store; from pathlib import Path; Store.create(Path({str(path)!r}))"
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
        with pytest.raises(StoreError, match=f"has format 99, this fsibench reads formats 1 to {SCHEMA_VERSION}"):
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


def test_a_store_can_be_read_from_the_moment_its_file_exists(tmp_path: Path) -> None:
    for number in range(30):
        path = tmp_path / f"{number}.sqlite"
        maker = threading.Thread(target=lambda path=path: Store.create(path).close())
        maker.start()
        while not path.exists():
            pass
        with Store.read(path) as store:  # would say "not a fsibench store" of a file without tables
            assert store.cells().empty
        maker.join()


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


def test_a_second_driver_is_refused_when_it_comes_through_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "s.sqlite", tmp_path / "elsewhere" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)  # dangling at first
    with Store.create(link), pytest.raises(StoreError, match="being written by another fsibench run"):
        Store.create(path)
    assert link.is_symlink()
    with Store.create(path), pytest.raises(StoreError, match="being written by another fsibench run"):
        Store.create(link)


def test_links_in_a_circle_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.symlink_to(path)
    with pytest.raises(StoreError, match="cannot be"):
        Store.create(path)
    with pytest.raises(StoreError, match="there is no store"):
        Store.read(path)


# Faults --------------------------------------------------------------------------------------------------------------


def with_hot_journal(path: Path) -> None:
    """A store whose writer was killed after pages of its transaction had reached the file."""
    filled(path)
    program = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 2")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE cells SET entry = 'half written'")
connection.execute("UPDATE evaluations SET trace = hex(zeroblob(50000))")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert path.with_name(f"{path.name}-journal").stat().st_size > 0
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as reader, pytest.raises(sqlite3.OperationalError):
        reader.execute("SELECT * FROM meta")  # the journal is hot: a reader may not undo it
    reader.close()


@pytest.mark.parametrize("opened", [Store.read, Store.create])
def test_what_a_killed_writer_left_is_undone_by_whoever_comes_next(tmp_path: Path, opened: Any) -> None:
    path = tmp_path / "s.sqlite"
    with_hot_journal(path)
    with opened(path) as store:
        assert store.cells()["entry"].tolist() == ["bbb"]
        assert store.evaluations()["trace"].tolist() == ["{}"] * 3


def test_a_killed_writers_journal_is_undone_before_a_merge(tmp_path: Path) -> None:
    with_hot_journal(tmp_path / "s.sqlite")
    with Store.create(tmp_path / "t.sqlite") as store:
        assert store.merge(tmp_path / "s.sqlite") == 1
        assert store.cells()["entry"].tolist() == ["bbb"]


def test_a_journal_that_may_not_be_undone_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.sqlite"
    with_hot_journal(path)
    real = sqlite3.connect
    # As on a read-only file system, which root could write anyway if only the mode were changed.
    monkeypatch.setattr(sqlite3, "connect", lambda name, **how: real(str(name).replace("mode=rw", "mode=ro"), **how))
    with pytest.raises(StoreError, match=r"killed in the middle of a transaction.*s\.sqlite and s\.sqlite-journal"):
        Store.read(path)


def many_cells(path: Path) -> list[str]:
    ids = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(60)]
    with Store.create(path) as store:
        run = store.begin_run(["fsibench", "run"], {"name": "p"}, {})
        for number, cell in enumerate(ids):
            store.start_cell(run, {**CELL, "id": cell, "split": number})
            for step in range(1, 9):
                look = dataclasses.replace(evaluation(step), pit=tuple(range(20)), trace={"loss": float(step)})
                store.add_evaluation(cell, look)
            store.finish_cell(cell, Finished("ok"))
    return ids


def test_salvage_copies_what_is_readable_and_never_calls_a_part_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    ids = many_cells(path)
    whole = path.read_bytes()
    with Store.read(path) as store:
        truth = store.evaluations().set_index(["cell", "step"])[["rmse", "pit", "trace"]]
    random = Random(0)
    saved = []
    for trial in range(8):
        page = random.randrange(1, len(whole) // 4096)
        filling = random.randbytes(4096) if trial % 2 else bytes(4096)
        broken, out = tmp_path / f"{trial}.sqlite", tmp_path / f"{trial}-out.sqlite"
        broken.write_bytes(whole[: 4096 * page] + filling + whole[4096 * (page + 1) :])
        before = broken.read_bytes()
        try:
            found = salvage(broken, out)
        except StoreError:  # the damage hit the root of a table
            assert not out.exists()
            continue
        assert broken.read_bytes() == before
        with Store.read(out) as store:
            cells, looks = store.cells().set_index("id"), store.evaluations().set_index(["cell", "step"])
        assert looks[["rmse", "pit", "trace"]].equals(truth.loc[looks.index])
        counts = looks.groupby("cell").size()
        assert (counts[cells.index[cells["status"] == "ok"]] == 8).all()
        assert set(cells["status"]) <= {"ok", "interrupted"}
        assert found.whole == (cells["status"] == "ok").sum()
        saved.append(found.whole / len(ids))
    assert len(saved) >= 6
    assert sorted(saved)[len(saved) // 2] > 0.85


def test_salvage_writes_over_nothing_and_refuses_what_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    with pytest.raises(StoreError, match="exists already"):
        salvage(path, path)
    (tmp_path / "notes").write_text("shopping list\n" * 50)
    with pytest.raises(StoreError, match="no cell of"):
        salvage(tmp_path / "notes", tmp_path / "new.sqlite")
    assert not (tmp_path / "new.sqlite").exists()


def test_salvage_of_an_older_store_gives_one_in_the_newest_format(tmp_path: Path) -> None:
    old_store(tmp_path / "s.sqlite", 1)
    assert salvage(tmp_path / "s.sqlite", tmp_path / "new.sqlite").whole == 2
    with Store.read(tmp_path / "new.sqlite") as store:
        assert sorted(store.cells()["budget_seconds"].dropna()) == [0.5]
        assert len(store.evaluations()) == 6


# Keeping house -------------------------------------------------------------------------------------------------------


def test_merging_takes_over_what_is_missing_and_keeps_what_is_there(tmp_path: Path) -> None:
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    filled(first)
    filled(second)
    filled(second, id="c2", split=1)
    with Store.create(first) as store:
        assert store.merge(second) == 1
        assert store.merge(second) == 0
        assert sorted(store.cells()["id"]) == ["c1", "c2"]
        assert len(store.evaluations()) == 6
        runs = [run["id"] for run in store.runs()]
        assert set(store.cells()["run"]) == set(runs)
        assert len(runs) == 2  # a run is taken over with its cells, once


def test_a_merge_that_fails_changes_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    with Store.create(first) as store:
        store.start_cell(store.begin_run([], {}, {}), CELL)
    filled(second)
    with sqlite3.connect(second) as connection:
        connection.execute("ALTER TABLE artifacts ADD COLUMN strange TEXT")
    connection.close()
    with Store.create(first) as store:
        with pytest.raises(sqlite3.OperationalError):
            store.merge(second)
        assert store.statuses(["c1"]) == {"c1": "running"}
        with pytest.raises(StoreError, match="is the store to merge into"):
            store.merge(first)


def test_merging_replaces_an_unfinished_cell_by_a_finished_one_and_not_the_reverse(tmp_path: Path) -> None:
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    with Store.create(first) as store:
        store.start_cell(store.begin_run([], {}, {}), CELL)
    filled(second)
    with Store.create(first) as store:
        assert store.merge(second) == 1
        assert store.statuses(["c1"]) == {"c1": "ok"}
    with Store.create(second) as store:
        store.start_cell(store.begin_run([], {}, {}), CELL)
    with Store.create(first) as store:
        assert store.merge(second) == 0
        assert len(store.evaluations()) == 3


def test_garbage_is_what_a_later_cell_with_equal_coordinates_replaces(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    filled(path, id="c0", code_version="newer")
    filled(path, id="c3", split=4)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET started = '2020-01-01T00:00:00Z' WHERE id = 'c1'")
    connection.close()
    with Store.create(path) as store:
        assert store.collect_garbage() == 1
        assert sorted(store.cells()["id"]) == ["c0", "c3"]
        assert len(store.evaluations()) == 6
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM evaluations").fetchone()[0] == 6
    connection.close()


def test_a_cell_is_shown_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path, id="abc")
    filled(path, id="abd", split=1)
    with Store.read(path) as store:
        assert store.show("abd")["split"] == 1
        assert [point["step"] for point in store.show("abc")["evaluations"]] == [1, 2, 3]
        with pytest.raises(StoreError, match="2 cells begin with 'ab'"):
            store.show("ab")
        with pytest.raises(StoreError, match="no cell begins with 'x'"):
            store.show("x")


ADDED = {  # columns of `cells` by the format that brought them
    2: ("setup_cpu_seconds", "predict_cpu_seconds", "evaluate_cpu_seconds"),
    3: (
        *("reproduces", "variant", "budget_seconds", "budget_steps", "per_decade", "keep", "predict_rows"),
        *("paused_cpu_seconds", "flags", "calibration_seconds", "worker"),
    ),
}


def old_store(path: Path, version: int) -> None:
    """A store as an older format wrote it: without the columns that came later."""
    filled(path)
    filled(path, id="c9", split=9, budget="0.5s")
    with sqlite3.connect(path) as connection:
        for column in [column for newer, columns in ADDED.items() if newer > version for column in columns]:
            connection.execute(f"ALTER TABLE cells DROP COLUMN {column}")
        connection.execute("UPDATE meta SET value = ?", (str(version),))
    connection.close()


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_store_is_read_without_being_changed(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.sqlite"
    old_store(path, version)
    before = path.read_bytes()
    with Store.read(path) as store:
        cells = store.cells().set_index("id")
        assert {column for columns in ADDED.values() for column in columns} <= set(cells.columns)
        assert cells.loc["c1", "budget_steps"] == 3
        assert cells.loc["c9", "budget_seconds"] == 0.5
        assert cells["budget_seconds"].isna().tolist() == [True, False]
        assert cells["flags"].tolist() == ["", ""]
        assert len(store.evaluations()) == 6
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_store_is_brought_up_to_date_when_written_and_then_merges(tmp_path: Path, version: int) -> None:
    path, other = tmp_path / "s.sqlite", tmp_path / "t.sqlite"
    old_store(path, version)
    filled(other, id="c2", split=1)
    with Store.create(other) as store, pytest.raises(StoreError, match="older format"):
        store.merge(path)
    with Store.create(path) as store:
        store.finish_cell("c1", Finished("ok", clocks={"setup_cpu_seconds": 0.5, "predict_rows": 7}))
    with Store.create(other) as store:
        assert store.merge(path) == 2
        merged = store.cells().set_index("id").loc["c1"]
        assert (merged["setup_cpu_seconds"], merged["predict_rows"]) == (0.5, 7)


def test_the_end_of_a_cell_sets_clocks_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    filled(path)
    forged = {"entry": 1.0, "split = 3, seed": 1.0, "predict_rows": 5}
    with Store.create(path) as store:
        store.finish_cell("c1", Finished("ok", clocks=forged))
        cell = store.cells().loc[0]
        assert (cell["entry"], cell["split"], cell["seed"], cell["predict_rows"]) == ("bbb", 0, 0, 5)


def test_kill_9_while_writing_leaves_a_whole_store(tmp_path: Path) -> None:
    """Acknowledged commits survive; the transaction under way vanishes as a whole."""
    program = """
import sys
from pathlib import Path
from fsibench.harness.events import Finished
from fsibench.harness.store import Store
from test_support import CELL, evaluation
store = Store.create(Path("s.sqlite"))
run = store.begin_run([], {}, {})
number = 0
while True:
    store.start_cell(run, {**CELL, "id": f"c{number}", "split": number})
    for step in (1, 2, 3):
        store.add_evaluation(f"c{number}", evaluation(step))
    store.finish_cell(f"c{number}", Finished("ok"))
    store.commit()
    print(number, flush=True)
    number += 1
"""
    (tmp_path / "test_support.py").write_text(
        f"CELL = {CELL!r}\n"
        "from fsibench.harness.events import Evaluation\n"
        "def evaluation(step):\n"
        f"    return Evaluation(step, 0.1, 0.1, 0.1, {evaluation(0).scores!r}, (), {{}})\n"
    )
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        writer.wait()
        writer.stdout.close()
        with Store.read(tmp_path / "s.sqlite") as store:
            table = store.cells().set_index("split")
            assert set(table.loc[acknowledged, "status"]) == {"ok"}
            counts = store.evaluations().groupby("cell").size()
            assert set(counts) == {3}
        with sqlite3.connect(tmp_path / "s.sqlite") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        connection.close()
        (tmp_path / "s.sqlite").unlink()
