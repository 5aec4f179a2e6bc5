"""The Dask executor: local results bit for bit, a killed worker loses only its running cell."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.executors.dask import DaskExecutor, _reports
from fsibench.executors.wire import cell_from_json, cell_to_json
from fsibench.harness.events import Finished, MalformedMessage, encode
from fsibench.harness.plan import load_protocol, make_plan
from fsibench.harness.store import Store

pytest.importorskip("distributed", reason="Dask is an extra: pip install 'fsibench[dask]'")
pytestmark = pytest.mark.timeout(900)  # a cluster imports torch six times: minutes on a busy machine
ODD = Path(__file__).parent / "support" / "odd_methods.py"
COLUMNS = ["entry", "dataset", "split", "step", "rmse", "ll", "crps"]


def scores(path: Path) -> pd.DataFrame:
    with Store.read(path) as store:
        return store.evaluations()[COLUMNS].sort_values(COLUMNS, ignore_index=True)


@contextlib.contextmanager
def cluster_of(
    folder: Path, num_workers: int, environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    """A scheduler and workers as an administrator would start them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, "env": dict(environment)}
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard"],
        **quiet,  # type: ignore[call-overload]
    )
    worker = [*dask, "worker", address, "--nthreads", "1", "--resources", "slot=1", "--no-nanny", "--no-dashboard"]
    workers = [subprocess.Popen(worker, **quiet) for _ in range(num_workers)]  # type: ignore[call-overload]
    try:
        yield address, workers, scheduler
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    with cluster_of(tmp_path, 2) as parts:
        yield parts


def test_cells_survive_the_way_through_json() -> None:
    methods = ["bbb", f"{ODD}:RandomWalk[size=2]", "constant"]
    for cell in make_plan(load_protocol("smoke", {"methods": methods})):
        assert cell_from_json(cell_to_json(cell)) == cell
        assert json.loads(cell_to_json(cell))["id"] == cell.id
        assert dataclasses.is_dataclass(cell)


def test_a_running_cluster_gives_the_results_of_a_local_run_though_a_worker_and_the_driver_are_killed(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]
) -> None:
    address, workers, _ = cluster
    arguments = ["run", "smoke", "--methods", f"bbb,{ODD}:Sleeper[seconds=0.02]", "--splits", "3", "--steps", "60"]
    local, remote = tmp_path / "local.sqlite", tmp_path / "remote.sqlite"
    assert main([*arguments, "--datasets", "yacht", "--store", str(local)]) == 0
    command = [sys.executable, "-m", "fsibench", *arguments, "--datasets", "yacht", "--store", str(remote)]
    command += ["--executor", "dask", "--scheduler", address]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for_cells(remote, 1, driver)
    os.kill(workers[0].pid, signal.SIGKILL)
    wait_for_cells(remote, 2, driver)
    driver.kill()
    driver.wait()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    pd.testing.assert_frame_equal(scores(local), scores(remote), check_exact=True)


def wait_for_cells(path: Path, number: int, driver: subprocess.Popen[Any]) -> None:
    while not path.exists() or scores(path).groupby(["entry", "split"]).ngroups < number:
        time.sleep(0.1)
        assert driver.poll() is None


PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar
from fsibench import Method
print("a plugin says hello on import", flush=True)

@dataclass(frozen=True)
class Plug(Method):
    """Says hello."""
    name: ClassVar[str] = "plug"
    def fit(self, train, budget, generator):
        raise NotImplementedError
'''


def test_a_plugin_that_prints_at_import_shifts_no_result_on_the_cluster_that_is_made_when_none_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    (folder / "plug-1.0.dist-info").mkdir(parents=True)
    (folder / "plug.py").write_text(PLUGIN)
    (folder / "plug-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (folder / "plug-1.0.dist-info" / "entry_points.txt").write_text("[fsibench.methods]\nplug = plug\n")
    arguments = ["run", "smoke", "--methods", f"linear,{ODD}:RandomWalk", "--datasets", "yacht,boston", "--splits", "2"]
    local, remote = tmp_path / "local.sqlite", tmp_path / "remote.sqlite"
    assert main([*arguments, "--store", str(local)]) == 0
    command = [sys.executable, "-m", "fsibench", *arguments, "--store", str(remote), "--executor", "dask"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([*command, "--workers", "1"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout + done.stderr
    pd.testing.assert_frame_equal(scores(local), scores(remote), check_exact=True)
    with Store.read(remote) as store:
        table = store.cells()
    assert table["worker"].str.fullmatch("[0-9a-f]{8}").all()
    assert (table["calibration_seconds"] > 0).all()


GUESS = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from fsibench import Method, Predictive

class Guess:
    def predict(self, x, generator):
        return Predictive(torch.full((1, len(x)), LOCATION), torch.ones(1, 1))
    def draw(self, x, num_draws, generator):
        return torch.full((num_draws, len(x)), LOCATION)

@dataclass(frozen=True)
class Guesser(Method):
    """Guesses one number."""
    name: ClassVar[str] = "guesser"
    def fit(self, train, budget, generator):
        yield Guess()
'''


def plugin_folder(folder: Path, location: str) -> dict[str, str]:
    """The environment of a process that has the plugin `guesser` with this code installed."""
    info = folder / "guess-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "guess.py").write_text(GUESS.replace("LOCATION", location))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guess\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsibench.methods]\nguesser = guess\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_older_code_on_a_worker_is_refused_and_its_results_are_never_stored_under_the_new_version(tmp_path: Path) -> None:
    older, newer = plugin_folder(tmp_path / "older", "0.5"), plugin_folder(tmp_path / "newer", "0.25")
    arguments = ["run", "smoke", "--methods", "constant,guesser", "--datasets", "yacht", "--store", "s.sqlite"]

    def run(*executor: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fsibench", *arguments, "--executor", *executor]
        return subprocess.run(command, cwd=tmp_path, env=newer, capture_output=True, text=True, check=False)

    with cluster_of(tmp_path, 1, older) as (address, _, _):
        ended = run("dask", "--scheduler", address)
    assert ended.returncode == 1, ended.stderr
    with Store.read(tmp_path / "s.sqlite") as store:
        cells = store.cells().set_index("entry")
        assert cells["status"].to_dict() == {"constant": "ok", "guesser": "lost"}
        assert "is not the planned one" in cells.loc["guesser", "message"]
        assert set(store.evaluations()["entry"]) == {"constant"}
    ended = run("inline")  # with the planned code; what was refused is not final
    assert ended.returncode == 0, ended.stderr
    with Store.read(tmp_path / "s.sqlite") as store:
        assert store.cells().set_index("entry")["status"].to_dict() == {"constant": "ok", "guesser": "ok"}


def test_a_lost_scheduler_is_one_sentence(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]], subprocess.Popen[bytes]]
) -> None:
    address, _, scheduler = cluster
    arguments = ["run", "smoke", "--methods", f"constant,{ODD}:Gate", "--datasets", "yacht", "--store", "s.sqlite"]
    command = [sys.executable, "-m", "fsibench", *arguments, "--executor", "dask", "--scheduler", address]
    driver = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_for_cells(tmp_path / "s.sqlite", 1, driver)
    scheduler.kill()
    _, errors = driver.communicate()
    assert driver.returncode == 2
    assert "the connection to the Dask scheduler is lost. What is stored is safe" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    with Store.read(tmp_path / "s.sqlite") as store:
        assert store.cells().set_index("entry")["status"].to_dict() == {"constant": "ok", "gate": "interrupted"}


def test_reports_of_a_block_count_only_when_all_of_them_belong_to_it() -> None:
    one, two = make_plan(load_protocol("smoke", {"methods": ["constant"]}))
    ends = [encode(cell.id, Finished("ok")) for cell in (one, two)]
    assert _reports("\n".join(ends), [one, two]) == {one.id: [Finished("ok")], two.id: [Finished("ok")]}
    assert _reports(ends[0], [one, two])[two.id][0].status == "lost"
    for text in ("\n".join(ends), f"{ends[0]}\n{ends[0]}", f"hello\n{ends[0]}"):
        with pytest.raises(MalformedMessage):
            _reports(text, [one])


def test_short_cells_travel_in_blocks_and_long_ones_alone() -> None:
    executor = object.__new__(DaskExecutor)
    executor._num_workers = lambda: 2  # type: ignore[method-assign]
    executor._spent = []
    for seconds, expected in ((0.5, 20), (3.0, 3), (60.0, 1)):
        cells = make_plan(load_protocol("smoke", {"methods": ["constant"], "seconds": seconds, "splits": 20}))
        assert executor._block_size(deque(cells * 3)) == expected
    assert executor._block_size(deque(cells[:8])) == 1
    steps = deque(make_plan(load_protocol("smoke", {"methods": ["constant"], "steps": 5, "splits": 20})) * 3)
    assert executor._block_size(steps) == 1  # nobody knows yet how long they last
    executor._spent = [0.1]
    assert executor._block_size(steps) == 30  # an even share of 120 cells


def test_an_absent_scheduler_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "smoke", "--store", str(tmp_path / "s.sqlite"), "--scheduler", "tcp://127.0.0.1:9"]
    assert main(arguments) == 2
    assert "--scheduler needs --executor dask" in capsys.readouterr().err
    assert main([*arguments, "--executor", "dask"]) == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_the_documented_slurm_workers_have_one_thread_and_one_slot() -> None:
    """Runs the example of docs/clusters.md as far as a machine without Slurm can: to the job script."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is an extra: pip install 'fsibench[dask]'")
    text = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    program = f"{example}\nprint(cluster.job_script())\ncluster.close()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    script = done.stdout
    assert script.startswith("#!")
    for line in ("#SBATCH -p normal", "#SBATCH -n 1", "#SBATCH --cpus-per-task=1", "#SBATCH -t 08:00:00"):
        assert line in script
    assert "--nthreads 1" in script
    assert "--resources slot=1" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
