"""Methods that attack the harness, in one plan beside an honest one: each gets its own status, and harms nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.harness import processes
from fsibench.harness.store import Store
from fsibench.registry import entry

ODD = Path(__file__).parent / "support" / "odd_methods.py"
NEEDS_PROC = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
SCORES = ["dataset", "split", "step", "rmse", "ll", "crps"]

# Entry -> status and a part of the message.
MISBEHAVIOUR = {
    "Writes[what=garbage]": ("lost", "not a report of a cell"),
    "Writes[what=huge]": ("lost", "a frame claims 4294967295 bytes"),
    "Writes[what=stranger]": ("lost", "of another cell"),
    "Writes[what=half]": ("timeout", "killed after"),
    "Surrogate": ("error", r"a lone \udcff in the text"),
    "Leaves[code=0]": ("error", "ended its process with exit code 0"),
    "Leaves[code=3]": ("error", "ended its process with exit code 3"),
    "Leaves[how=exit,code=4]": ("error", "SystemExit: 4"),
    "Parricide": ("lost", "its supervisor was killed"),
    f"Parricide[number={int(signal.SIGSTOP)}]": ("timeout", "killed after"),
    "Doubles": ("ok", None),
    "ClosesAll": ("error", "ended its process with exit code"),
    "Segfaults": ("lost", f"signal {int(signal.SIGSEGV)}"),
    "Dies": ("lost", "signal 9"),
    "Raises": ("error", "the method failed on purpose"),
    "RaisesInPredict": ("error", "predict failed on purpose"),
    "Explodes": ("diverged", "the loss is nan"),
    "NotANumber": ("diverged", "not finite"),
    "Hangs": ("timeout", "killed after"),
    "Chatty": ("ok", None),
    "Daemons[megabytes=900,forever=true]": ("oom", "the limit is 800 MB"),
    "ChangesTheWorld": ("ok", None),
}


def run(store: Path, methods: str, *arguments: str) -> int:
    return main(["run", "smoke", "--store", str(store), "--datasets", "yacht", "--methods", methods, *arguments])


def cells(store: Path) -> pd.DataFrame:
    with Store.read(store) as opened:
        return opened.cells().set_index("entry")


def scores(store: Path, method: str) -> pd.DataFrame:
    with Store.read(store) as opened:
        rows = opened.evaluations()
    return rows.loc[rows["method"] == method, SCORES].reset_index(drop=True)


@pytest.mark.slow
@NEEDS_PROC
def test_each_misbehaviour_has_its_own_status_and_the_honest_entry_is_exact(tmp_path: Path) -> None:
    wild, calm = tmp_path / "wild.sqlite", tmp_path / "calm.sqlite"
    labels = {name: entry(f"{ODD}:{name}").label for name in MISBEHAVIOUR}
    methods = ",".join(["linear", *(f"{ODD}:{name}" for name in MISBEHAVIOUR)])
    limits = ("--time-limit", "12s", "--memory-limit", "800")
    assert run(wild, methods, "--splits", "1", "--workers", "3", *limits) == 1
    table = cells(wild)
    found = {name: (table.loc[label, "status"], table.loc[label, "message"]) for name, label in labels.items()}
    wrong = {
        name: found[name]
        for name, (status, part) in MISBEHAVIOUR.items()
        if found[name][0] != status or (part is not None and part not in str(found[name][1]))
    }
    assert not wrong
    assert run(calm, "linear", "--splits", "1", "--executor", "inline") == 0
    pd.testing.assert_frame_equal(scores(wild, "linear"), scores(calm, "linear"), check_exact=True)


@NEEDS_PROC
def test_a_daemon_ends_with_its_cell_and_gives_the_core_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"marker-{os.getpid()}-daemon"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run(tmp_path / "s.sqlite", f"{ODD}:Daemons[marker={marker}]", "--workers", "1") == 0
    assert not live(marker)
    program = "import sys; from fsibench.executors.cores import claim_core as claim; print(claim(0).number)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def live(marker: str) -> list[str]:
    """Processes whose command line ends with a marker."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes().rstrip(b"\0").endswith(marker.encode()):
                found.append(path.name)
        except OSError:
            continue  # gone meanwhile
    return found


def test_what_a_cell_prints_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    store = tmp_path / "s.sqlite"
    assert run(store, f"{ODD}:Shouts") == 1
    assert 4000 <= len(cells(store).loc["shouts", "traceback"]) < 10_000
    assert sum(path.stat().st_size for path in (tmp_path / "tmp").rglob("*")) < 1e6


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fsibench", "run", "smoke", "--store", "s.sqlite", "--datasets", "yacht"]
    return subprocess.Popen([*command, *arguments], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_was_printed_as_done_survives_a_kill_in_the_next_instant(tmp_path: Path) -> None:
    driver = start(tmp_path, "--methods", f"constant,{ODD}:Sleeper[seconds=30]", "--workers", "1")
    assert driver.stderr is not None
    for line in driver.stderr:
        if "constant on yacht/0: ok" in line:
            break
    driver.kill()
    driver.communicate()
    assert cells(tmp_path / "s.sqlite").loc["constant", "status"] == "ok"


def wait_for_server(driver: subprocess.Popen[str]) -> int:
    """The process id of the warm server, as soon as there is one."""
    while True:
        assert driver.poll() is None
        for child in processes.children(driver.pid):
            try:
                if b"executors.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
            except OSError:
                continue  # gone meanwhile
        time.sleep(0.01)


@NEEDS_PROC
def test_a_server_killed_at_start_up_is_replaced(tmp_path: Path) -> None:
    driver = start(tmp_path, "--methods", "constant")
    os.kill(wait_for_server(driver), signal.SIGKILL)
    _, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert "Traceback" not in errors
    assert cells(tmp_path / "s.sqlite").loc["constant", "attempts"] == 1


def test_a_server_that_cannot_start_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, os\nif any('executors.worker' in a for a in sys.orig_argv): print('no torch today'); os._exit(7)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "fsibench", "run", "smoke", "--store", "s.sqlite", "--methods", "constant"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "ended 3 times before any cell could run (exit code 7; " in done.stderr
    assert "Traceback" not in done.stderr


@NEEDS_PROC
def test_ctrl_c_during_start_up_is_one_sentence(tmp_path: Path) -> None:
    driver = start(tmp_path, "--methods", "constant")
    wait_for_server(driver)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate()
    assert driver.returncode == 130
    assert errors.splitlines()[1:] == ["fsibench: stopped; the same command goes on from here"]


def test_a_script_without_a_main_guard_just_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    arguments = ["run", "smoke", "--store", "s.sqlite", "--methods", "constant,linear", "--datasets", "yacht"]
    script.write_text(f"from fsibench.cli import main\nprint('code', main({arguments!r}))\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("code 0") == 1
    assert cells(tmp_path / "s.sqlite")["attempts"].tolist() == [1, 1]


def test_every_budget_has_a_time_limit() -> None:
    from fsibench.cli import _parser
    from fsibench.cli.run import _limits
    from fsibench.harness.plan import load_protocol

    arguments = _parser().parse_args(["run", "smoke"])
    assert _limits(arguments, load_protocol("smoke", {"steps": 500}), 1).seconds == 1100
    assert _limits(arguments, load_protocol("smoke", {"seconds": 10.0}), 1).seconds == 150
