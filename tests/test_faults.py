"""Methods that misbehave, limits that hold, and runs that lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.executors import server
from fsibench.executors.worker import CELL, SERVER, SUPERVISOR
from fsibench.harness import processes
from fsibench.harness.store import Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, prctl and core pinning")

ODD = Path(__file__).parent / "support" / "odd_methods.py"


def run(store: Path, methods: str, *arguments: str) -> int:
    return main(["run", "smoke", "--store", str(store), "--datasets", "yacht", "--methods", methods, *arguments])


def cells(store: Path) -> pd.DataFrame:
    with Store.read(store) as opened:
        return opened.cells().set_index("entry")


def evaluations(store: Path) -> pd.DataFrame:
    with Store.read(store) as opened:
        return opened.evaluations()


def comes_to(marker: str, number: int) -> bool:
    """Whether so many processes with this marker are alive, within a minute."""
    for _ in range(600):
        if live_processes(marker) == number:
            return True
        time.sleep(0.1)
    return False


def live_processes(marker: str) -> int:
    """Processes whose command line ends with a marker."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            count += (entry / "cmdline").read_bytes().rstrip(b"\0").endswith(marker.encode())
        except OSError:
            continue  # gone meanwhile
    return count


def test_a_method_that_hangs_in_native_code_is_killed_and_keeps_its_points(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert run(store, f"constant,{ODD}:Hangs", "--time-limit", "3s") == 1
    hung = cells(store).loc["hangs"]
    assert hung["status"] == "timeout"
    assert hung["message"].startswith("killed after 3 s; the limit is 3 s")
    assert evaluations(store).query("entry == 'hangs'")["step"].tolist() == [1]
    assert cells(store).loc["constant", "status"] == "ok"


def test_a_method_that_allocates_without_end_is_killed_at_the_memory_limit(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert run(store, f"{ODD}:Hog", "--budget", "60s", "--memory-limit", "700") == 1
    hog = cells(store).loc["hog"]
    assert hog["status"] == "oom"
    assert "the limit is 700 MB" in hog["message"]
    assert not evaluations(store).empty


def test_a_crash_in_native_code_is_lost_after_three_attempts_and_harms_nobody(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert run(store, f"{ODD}:Segfaults,constant,linear") == 1
    table = cells(store)
    assert table.loc["segfaults", "status"] == "lost"
    assert table.loc["segfaults", "attempts"] == 3
    assert table.loc["segfaults", "message"] == f"the worker process was lost: signal {int(signal.SIGSEGV)}"
    assert set(table.loc[["constant", "linear"], "status"]) == {"ok"}


def test_what_a_method_starts_ends_with_its_cell(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-end"
    assert run(tmp_path / "s.sqlite", f"{ODD}:Forks[marker={marker}]") == 0
    assert live_processes(marker) == 0


def test_what_a_method_starts_ends_with_a_killed_driver(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-kill"
    command = [sys.executable, "-m", "fsibench", "run", "smoke", "--store", "s.sqlite", "--datasets", "yacht"]
    methods = ["--methods", f"{ODD}:Forks[marker={marker},forever=true]", "--budget", "60s"]
    driver = subprocess.Popen([*command, *methods], cwd=tmp_path, stderr=subprocess.DEVNULL)
    assert comes_to(marker, 3)
    driver.kill()
    driver.wait()
    assert comes_to(marker, 0)


def test_the_next_run_ends_what_is_left_when_all_of_ours_were_killed_at_once(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-all"
    command = [sys.executable, "-m", "fsibench", "run", "smoke", "--store", "s.sqlite", "--datasets", "yacht"]
    methods = ["--methods", f"{ODD}:Forks[marker={marker},forever=true]", "--budget", "60s"]
    driver = subprocess.Popen([*command, *methods], cwd=tmp_path, stderr=subprocess.DEVNULL)
    assert comes_to(marker, 3)
    ours = [p for p in processes.descendants(driver.pid) if processes.name_of(p) in (SERVER, SUPERVISOR, CELL)]
    for process in (driver.pid, *ours):  # none of them may clean up after another
        os.kill(process, signal.SIGSTOP)
    processes.kill([driver.pid, *ours])
    driver.wait()
    assert live_processes(marker) > 0
    server.end_strays()
    assert comes_to(marker, 0)


def test_one_cells_settings_do_not_reach_the_next(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert run(store, f"{ODD}:ChangesTheWorld,{ODD}:Where", "--workers", "1") == 0
    trace = json.loads(evaluations(store).query("entry == 'where'")["trace"].iloc[0])
    assert trace["threads"] == 1
    assert trace["cores"] in (1, len(os.sched_getaffinity(0)))  # all of them when other runs hold every core


def test_statuses_can_be_run_again_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.sqlite"
    methods = f"constant,{ODD}:Raises,{ODD}:Explodes"
    run(store, methods)
    run(store, methods, "--retry", "diverged")
    assert cells(store)["attempts"].to_dict() == {"constant": 1, "raises": 1, "explodes": 2}
    run(store, methods, "--retry", "failed")
    assert cells(store)["attempts"].to_dict() == {"constant": 1, "raises": 2, "explodes": 3}
    capsys.readouterr()
    assert run(store, methods, "--retry", "divergd") == 2
    assert "did you mean 'diverged'" in capsys.readouterr().err


def test_a_full_disk_stops_the_run_with_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    """A limit on file size acts like a full disk for the store: writes beyond it fail."""

    arguments = ["run", "smoke", "--store", "s.sqlite", "--methods", f"{ODD}:NoOp", "--splits", "20"]
    command = [sys.executable, "-m", "fsibench", *arguments, "--datasets", "yacht,boston,snelson,bimodal"]
    limited = ["bash", "-c", 'ulimit -f 120; exec "$@"', "bash", *command]
    full = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert full.returncode == 2
    assert "Make room and run the same command again" in full.stderr
    assert "Traceback" not in full.stderr
    before = cells_of(tmp_path / "s.sqlite", "ok")
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0
    with Store.read(tmp_path / "s.sqlite") as store:
        table = store.cells()
    assert len(table) == 80
    assert set(table["status"]) == {"ok"}
    kept = table.set_index("id").loc[sorted(before), "attempts"]
    assert before
    assert set(kept) == {1}


def cells_of(path: Path, status: str) -> set[str]:
    with Store.read(path) as store:
        table = store.cells()
    return set(table.loc[table["status"] == status, "id"])


def test_a_stopped_and_continued_machine_changes_nothing_but_the_clock(tmp_path: Path) -> None:
    """What sleep does to a laptop: everything stands still for a while, then goes on."""
    arguments = ["run", "smoke", "--store", "s.sqlite", "--methods", f"{ODD}:Sleeper[seconds=0.01]", "--steps", "150"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "fsibench", *arguments, "--datasets", "yacht"], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    while not (tmp_path / "s.sqlite").exists() or evaluations(tmp_path / "s.sqlite").empty:
        time.sleep(0.05)
    group = [driver.pid, *_descendants(driver.pid)]
    for process in group:
        os.kill(process, signal.SIGSTOP)
    time.sleep(1.0)
    for process in reversed(group):
        os.kill(process, signal.SIGCONT)
    assert driver.wait(timeout=60) == 0
    assert evaluations(tmp_path / "s.sqlite")["step"].max() == 150


def _descendants(process: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return [*children, *(below for child in children for below in _descendants(child))]


def test_cells_of_two_runs_never_share_a_core_while_one_is_free(tmp_path: Path) -> None:
    program = "from fsibench.executors.cores import claim_core as c; k = c(0); print(k and k.number, flush=True); input()"
    cores = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # locks of other runs on this machine do not count
    holders = []
    for _ in range(len(cores) + 1):
        holder = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert holder.stdout is not None
        holders.append((holder, holder.stdout.readline().strip()))
    assert [core for _, core in holders] == [*(str(core) for core in cores), "None"]
    for holder, _ in holders:
        holder.communicate("\n")
