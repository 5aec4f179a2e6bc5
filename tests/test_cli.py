"""The command line as a user meets it: results, exit codes, one sentence per mistake, clean interrupts."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.cli import run as run_command
from fsibench.harness.store import Store

ODD = Path(__file__).parent / "support" / "odd_methods.py"
EXPORTED = ["entry", "method", "dataset", "split", "seed", "status", "step", "train_seconds", "cpu_seconds", "rmse"]


def run_smoke(store: Path, *arguments: str) -> int:
    return main(["run", "smoke", "--store", str(store), *arguments])


def exported(store: Path, out: Path) -> list[dict[str, str]]:
    assert main(["export", "--store", str(store), "--out", str(out)]) == 0
    with out.open() as lines:
        return list(csv.DictReader(lines))


def test_a_smoke_run_ends_with_a_ranking_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.sqlite"
    assert run_smoke(store) == 0
    shown = capsys.readouterr()
    assert all(name in shown.out for name in ("constant", "linear", "bbb", "LL", "CRPS", "RMSE"))
    assert "[6/6]" in shown.err
    rows = exported(store, tmp_path / "rows.csv")
    assert {(row["entry"], row["dataset"]) for row in rows if row["final"] == "True"} == {
        (entry, dataset)
        for entry in ("constant", "linear", "bbb")
        for dataset in ("yacht", "bimodal[num_train=100,num_test=100]")
    }
    assert set(EXPORTED) | {"ll", "crps", "final"} <= set(rows[0])
    main(["export", "--store", str(store), "--out", str(tmp_path / "rows.parquet")])
    assert len(pd.read_parquet(tmp_path / "rows.parquet")) == len(rows)


def test_the_same_command_again_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.sqlite"
    assert run_smoke(store, "--methods", "constant") == 0
    assert run_smoke(store, "--methods", "constant,linear") == 0
    printed = capsys.readouterr()
    assert "2 cells to run (2 already in" in printed.err
    assert "Earlier runs" not in printed.out
    with Store.read(store) as opened:
        assert opened.cells()["attempts"].tolist() == [1, 1, 1, 1]
    assert run_smoke(store, "--methods", "constant") == 0
    assert f"Earlier runs in {store} are ranked with this one" in capsys.readouterr().out


def test_keeping_functions_later_runs_only_what_lacks_them_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.sqlite"
    arguments = ("--methods", "linear", "--executor", "inline")
    assert run_smoke(store, *arguments) == 0
    capsys.readouterr()
    for expected in ("1 of them have scores and run again to keep functions", "0 cells to run"):
        assert run_smoke(store, *arguments, "--keep", "functions") == 0
        assert expected in capsys.readouterr().err
    with Store.read(store) as opened:
        assert len(opened.cells()) == len(opened.statuses(opened.cells()["id"])) == 2  # nothing superseded
        assert len(opened.artifacts("functions")) == 1


def test_workers_are_as_many_as_asked_for_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # absent on macOS
    assert run_command._workers(7) == 7
    assert run_command._workers(None) == (os.cpu_count() or 1)


WITHOUT_TORCH = (
    ["list"], ["list", "methods"], ["list", "datasets"], ["list", "metrics"], ["list", "protocols"],
    ["data", "path", "yacht"], ["data", "card", "yacht"],
    ["store", "list", "--store", "STORE"], ["export", "--store", "STORE", "--out", "OUT/rows.csv"],
    ["report", "--store", "STORE", "--terminal"], ["compare", "STORE", "STORE"],
    ["report", "--store", "STORE", "--out", "OUT/site", "--figures", "none"],
)  # fmt: skip
REFUSES_TORCH = """
import sys
class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise AssertionError("torch is imported")
sys.meta_path.insert(0, Refusal())
from fsibench.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_commands_that_compute_nothing_do_not_import_torch(tmp_path: Path) -> None:
    store = tmp_path / "a.sqlite"
    assert run_smoke(store, "--methods", "constant,linear", "--steps", "1") == 0
    assert main(["list", "methods"]) == 0  # makes the index, which needs torch once
    for words in WITHOUT_TORCH:
        arguments = [word.replace("STORE", str(store)).replace("OUT", str(tmp_path)) for word in words]
        command = [sys.executable, "-c", REFUSES_TORCH, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{words}: {ended.stderr}"


def test_help_needs_no_torch() -> None:
    script = "import sys; import fsibench.cli as c; c._parser().format_help(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_index_of_methods_follows_an_installed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site"
    info = package / "their_method-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsibench.methods]\ntheirs = their_method\n")
    source = (
        "from typing import ClassVar\nfrom dataclasses import dataclass\nfrom fsibench import Method\n"
        "@dataclass(frozen=True)\nclass Theirs(Method):\n    'WHAT.'\n    name: ClassVar[str] = 'theirs'\n"
        "    def fit(self, train, budget, generator):\n        yield None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(package))
    for what in ("First words", "Other words"):
        (package / "their_method.py").write_text(source.replace("WHAT", what))
        for _ in range(2):  # by import, then from the index
            shown = subprocess.run(
                [sys.executable, "-m", "fsibench", "list", "methods"], capture_output=True, text=True, check=True
            ).stdout
            assert what in shown


def test_a_set_that_cannot_be_had_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`airline` has no public source: nothing is asked of the network."""
    monkeypatch.chdir(tmp_path)
    assert run_smoke(Path("s.sqlite"), "--methods", "constant", "--datasets", "airline,yacht") == 0
    shown = capsys.readouterr().err
    assert "airline is left out: data set 'airline' is not on this machine" in shown
    assert "[1/1] constant on yacht/0: ok" in shown
    assert run_smoke(Path("t.sqlite"), "--methods", "constant", "--datasets", "airline") == 2
    assert not Path("t.sqlite").exists()


def test_step_runs_are_bit_identical_with_any_number_of_workers_in_any_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sqlite", tmp_path / "two.sqlite"
    run_smoke(one, "--methods", f"bbb,{ODD}:RandomWalk", "--workers", "1")
    run_smoke(two, "--methods", f"{ODD}:RandomWalk,bbb", "--workers", "3")
    columns = ["entry", "dataset", "step", "rmse", "ll", "crps"]
    frames = []
    for path in (one, two):
        with Store.read(path) as store:
            frames.append(store.evaluations()[columns].sort_values(columns, ignore_index=True))
    pd.testing.assert_frame_equal(*frames, check_exact=True)


def test_a_failed_cell_gives_exit_code_1_and_the_others_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.sqlite"
    assert run_smoke(store, "--methods", f"constant,{ODD}:Raises,{ODD}:Dies") == 1
    with Store.read(store) as opened:
        cells = opened.cells().set_index("entry")
        assert set(cells.loc["constant", "status"]) == {"ok"}
        assert set(cells.loc["raises", "status"]) == {"error"}
        assert set(cells.loc["dies", "status"]) == {"lost"}
        assert set(cells.loc["dies", "message"]) == {"the worker process was lost: signal 9"}
        assert all("the last words of the method" in text for text in cells.loc["raises", "traceback"])
        assert (opened.evaluations().query("entry == 'raises'")["step"] <= 3).all()
    assert "the method failed on purpose" in capsys.readouterr().err


def test_what_a_method_prints_does_not_reach_the_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fsibench", "run", "smoke", "--store", "s.sqlite", "--methods", f"{ODD}:Chatty"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "xxx" not in done.stdout + done.stderr


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fsibench", "run", "smoke", "--store", "s.sqlite", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(driver: subprocess.Popen[str], path: Path, expected: dict[str, int]) -> None:
    """Until the store has so many cells with each status; the running ones with a look at their posterior."""
    while driver.poll() is None:
        time.sleep(0.1)
        if path.exists():
            with Store.read(path) as store:
                counts = store.cells()["status"].value_counts().to_dict()
                looks = store.evaluations().groupby("cell").ngroups
            if counts == expected and looks == sum(expected.values()):
                return
    raise AssertionError(f"the driver ended with {driver.returncode}: {driver.communicate()[1]}")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_stops_cleanly_and_resumes(tmp_path: Path, stop: signal.Signals) -> None:
    arguments = ("--methods", f"constant,{ODD}:Gate", "--datasets", "yacht,boston", "--workers", "3")
    driver = start(tmp_path, *arguments)
    wait_for(driver, tmp_path / "s.sqlite", {"ok": 2, "running": 2})
    driver.send_signal(stop)
    _, errors = driver.communicate()
    assert driver.returncode == 130
    assert "the same command goes on from here" in errors
    assert "Traceback" not in errors
    with Store.read(tmp_path / "s.sqlite") as store:
        statuses = store.cells().set_index(["entry", "dataset"])["status"]
        assert set(statuses["constant"]) == {"ok"}
        assert set(statuses["gate"]) == {"interrupted"}
    (tmp_path / "open").touch()
    again = start(tmp_path, *arguments)
    again.communicate()
    assert again.returncode == 0
    with Store.read(tmp_path / "s.sqlite") as store:
        assert set(store.cells()["status"]) == {"ok"}
        assert store.cells().groupby("entry")["attempts"].max().to_dict() == {"constant": 1, "gate": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prctl")
def test_a_killed_driver_leaves_no_orphan_and_resumes(tmp_path: Path) -> None:
    arguments = ("--methods", f"{ODD}:Gate", "--datasets", "yacht")
    driver = start(tmp_path, *arguments)
    wait_for(driver, tmp_path / "s.sqlite", {"running": 1})
    driver.kill()
    driver.communicate()
    while _processes_with(str(tmp_path)):  # the test's own time limit says when this takes too long
        time.sleep(0.05)
    (tmp_path / "open").touch()
    again = start(tmp_path, *arguments)
    again.communicate()
    assert again.returncode == 0
    with Store.read(tmp_path / "s.sqlite") as store:
        assert store.cells()[["status", "attempts"]].to_numpy().tolist() == [["ok", 2]]


def _processes_with(folder: str) -> list[int]:
    """Live processes working in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == folder and "\nState:\tZ" not in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            continue  # gone meanwhile, or not ours to look at
    return found


MISTAKES = [
    (["run", "quik"], "unknown protocol 'quik'; did you mean 'quick'?"),
    (["run", "smoke", "--methods", "bb"], "unknown method 'bb'; did you mean 'bbb'?"),
    (["run", "smoke", "--methods", "bbb[larning_rate=1]"], "unknown option of bbb 'larning_rate'"),
    (["run", "smoke", "--methods", "bbb[learning_rate=fast]"], "must be a finite number; got 'fast'"),
    (["run", "smoke", "--datasets", "yatch"], "unknown dataset 'yatch'; did you mean 'yacht'?"),
    (["run", "smoke", "--budget=-3s"], "a budget must be positive; got '-3s'"),
    (["run", "smoke", "--budget", "-5s"], "a budget must be positive; got '-5s'"),
    (["run", "smoke", "--time-limit", "-.5m"], "a budget must be positive; got '-.5m'"),
    (["run", "smoke", "--steps", "-3"], "steps must be at least 1; got -3"),
    (["run", "smoke", "--seed", "9" * 24], "steps and seeds must be at most 9223372036854775807; got 999"),
    (["run", "smoke", "--memory-limit", "-1"], "--memory-limit must be positive; got -1"),
    (["run", "smoke", "--budget", "soon"], "cannot read the budget 'soon'"),
    (["run", "smoke", "--steps", "0"], "steps must be at least 1; got 0"),
    (["run", "smoke", "--splits", "0"], "the number of splits must be at least 1; got 0"),
    (["run", "smoke", "--workers", "0"], "--workers must be at least 1; got 0"),
    (["run", "smoke", "--device", "abacus"], "unknown device 'abacus'"),
    (["run", "smoke", "--store", "/proc/none/s.sqlite"], "cannot be written"),
    (["run", "broken.toml"], "not valid TOML"),
    (["run", "smoke", "--store", "notes.txt"], "notes.txt is not a fsibench store"),
    (["run", "smoke", "--store", "old.sqlite"], "has format 0"),
    (["run", "smoke", "--datasets", "file:nan.csv?target=y"], "nan.csv"),
    (["run", "smoke", "--datasets", "file:text.csv?target=y"], "text.csv"),
    (["run", "smoke", "--datasets", "file:absent.csv?target=y"], "absent.csv"),
    (["export", "--store", "absent.sqlite", "--out", "x.csv"], "there is no store at absent.sqlite"),
    (["export", "--store", "good.sqlite"], "export needs --out FILE"),
    (["audit", "absent.sqlite"], "there is no store at absent.sqlite"),
    (["audit", "good.sqlite", "--sample", "-1"], "--sample must be at least 0"),
    (["export", "--store", "good.sqlite", "--out", "x.doc"], "must end in .csv or .parquet"),
    (["export", "--store", "good.sqlite", "--out", "no/such/x.csv"], "cannot be written"),
    (["report", "--store", "absent.sqlite"], "there is no store at absent.sqlite"),
    (["check", "bb"], "did you mean 'bbb'"),
    (["check", "bbb", "--only", "shapes_are_rigth"], "did you mean 'shapes_are_right'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[" ".join(mistake[0]) for mistake in MISTAKES])
def test_every_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    import sqlite3

    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text("methods = [")
    (tmp_path / "notes.txt").write_text("shopping list\n" * 50)
    (tmp_path / "nan.csv").write_text("x,y\n1,2\n3,nan\n5,6\n7,8\n9,1\n2,2\n")
    (tmp_path / "text.csv").write_text("x,y\n1,2\n3,many\n5,6\n7,8\n9,1\n2,2\n")
    Store.create(tmp_path / "good.sqlite").close()
    Store.create(tmp_path / "old.sqlite").close()
    with sqlite3.connect(tmp_path / "old.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '0'")
    connection.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err + shown.out
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {name: after[name] for name in before} == before
    assert not {name for name in set(after) - set(before) if not name.endswith(".lock")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run"], "the following arguments are required: protocol"),
        (["run", "smoke", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["run", "smoke", "--budget"], "argument --budget: expected one argument"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
    ],
)
def test_bad_syntax_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a page of zeros": lambda page: bytes(4096),
    "a page of noise": lambda page: bytes((17 * n * n + 3) % 251 for n in range(4096)),
    "half a page": lambda page: page[:2048] + bytes(2048),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_every_command_says_in_one_sentence_that_a_store_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_smoke(Path("s.sqlite"), "--methods", "constant", "--executor", "inline") == 0
    whole = Path("s.sqlite").read_bytes()
    begin = whole.index(b"constant") // 4096 * 4096  # the page that holds the cells
    broken = whole[:begin] + DAMAGES[damage](whole[begin : begin + 4096]) + whole[begin + 4096 :]
    commands = [
        ["store", "list", "--store", "s.sqlite"],
        ["store", "show", "a", "--store", "s.sqlite"],
        ["store", "gc", "--store", "s.sqlite"],
        ["store", "merge", "s.sqlite", "--store", "other.sqlite"],
        ["export", "--store", "s.sqlite", "--out", "x.csv"],
        ["audit", "s.sqlite"],
        ["report", "--store", "s.sqlite", "--out", "site"],
        ["report", "--terminal", "--store", "s.sqlite"],
        ["compare", "s.sqlite", "s.sqlite"],
        ["run", "smoke", "--store", "s.sqlite"],
    ]
    for command in commands:
        Path("s.sqlite").write_bytes(broken)
        capsys.readouterr()
        assert main(command) == 2, command
        shown = capsys.readouterr().err
        assert "the store s.sqlite is damaged" in shown, command
        assert "fsibench store salvage --store s.sqlite" in shown
        assert shown.count("\n") == 1
        assert Path("s.sqlite").read_bytes() == broken


@pytest.mark.parametrize("kind", ["methods", "datasets", "protocols"])
def test_lists_are_tables_or_json(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert main(["list", kind]) == 0
    table = capsys.readouterr().out
    assert len(rows) > 3
    assert all(row["name"] in table for row in rows)


def test_check_prints_a_line_per_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "linear"]) == 0
    shown = capsys.readouterr().out
    assert "ok     shapes_are_right" in shown
    assert main(["check", f"{ODD}:UsesGlobalState", "--only", "global_random_state_is_ignored"]) == 1
    assert "FAILED global_random_state_is_ignored: " in capsys.readouterr().out


def test_an_interrupt_at_any_moment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("fsibench.cli._parser", "fsibench.cli.list._list"):  # before and after the command is known
        monkeypatch.setattr(place, interrupted)
        assert main(["list", "methods"]) == 130
        assert capsys.readouterr().err == "fsibench: interrupted\n"
        monkeypatch.undo()


def test_help_does_not_load_torch_or_pandas() -> None:
    program = "import sys; from fsibench.cli import _parser; _parser(); print([m for m in ('torch', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
