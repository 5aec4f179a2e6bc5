"""How planning, storing and reporting grow with the number of cells; the figures of docs/scaling.md.

    python scripts/scale.py                       # 1,000 and 10,000 cells executed, up to 100,000 planned and reported

A method that does nothing goes through the whole pipeline in one process. The store for the largest report is filled by
copying executed cells under new seeds, since running them would measure nothing new.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from fsibench.executors.inline import InlineExecutor
from fsibench.harness import driver, plan
from fsibench.harness.store import Store

METHOD = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from fsibench import Method, Predictive

class Nothing:
    def predict(self, x, generator):
        return Predictive(torch.zeros(1, len(x)), torch.ones(1, 1))
    def draw(self, x, num_draws, generator):
        return torch.zeros(num_draws, len(x))

@dataclass(frozen=True)
class NoOp(Method):
    """Yields for ever and learns nothing."""
    name: ClassVar[str] = "noop"
    size: int = 0
    def fit(self, train, budget, generator):
        while True:
            yield Nothing()
'''
SPLITS = 20
ENTRIES, DATASETS = 10, ("snelson", "yacht", "bimodal", "composite", "heteroscedastic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executed", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--reported", type=int, nargs="*", default=[10_000, 100_000])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "noop.py").write_text(METHOD)
        for number in (1_000, 10_000, 100_000):
            measure_plan(folder, number)
        stores = [measure_execution(folder, number) for number in arguments.executed]
        for number in arguments.reported:
            measure_report(folder, stores[-1], number)


def protocol(folder: Path, cells: int) -> plan.Protocol:
    """Ten entries, five sets, twenty splits: a thousand cells per seed."""
    methods = [f"{folder / 'noop.py'}:NoOp[size={size}]" for size in range(ENTRIES)]
    seeds = list(range(-(-cells // (ENTRIES * len(DATASETS) * SPLITS))))
    content = {"methods": methods, "datasets": list(DATASETS), "splits": SPLITS, "seeds": seeds, "steps": 1}
    return plan.load_protocol("smoke", content)


def measure_plan(folder: Path, cells: int) -> None:
    start = time.perf_counter()
    planned = plan.make_plan(protocol(folder, cells))
    seconds = time.perf_counter() - start
    print(f"plan     {len(planned):7} cells {seconds:8.2f} s {1e6 * seconds / len(planned):7.0f} us/cell", flush=True)


def measure_execution(folder: Path, cells: int) -> Path:
    path = folder / f"{cells}.sqlite"
    planned = plan.make_plan(protocol(folder, cells))
    with Store.create(path) as store, open("/dev/null", "w") as nowhere:
        run = store.begin_run([], {}, {})
        start, cpu = time.perf_counter(), time.process_time()
        driver.drive(store, run, planned, InlineExecutor(), driver.Progress(planned, 1, nowhere))
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    size = path.stat().st_size / len(planned)
    rates = f"{len(planned) / wall:.0f} cells/s by the clock, {len(planned) / cpu:.0f} cells per CPU second"
    print(f"execute  {len(planned):7} cells {wall:8.2f} s, {rates}, {size:.0f} bytes each", flush=True)
    return path


def measure_report(folder: Path, executed: Path, cells: int) -> None:
    path = folder / f"report-{cells}.sqlite"
    multiply(executed, path, cells)
    program = (
        "import re, time\n"
        "from fsibench.cli import main\n"
        "start = time.perf_counter()\n"
        f"main(['report', '--store', {str(path)!r}, '--out', {str(folder / 'report')!r}])\n"
        # of this program alone: `ru_maxrss` begins at what the process that started it has
        "peak = int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1e3\n"
        "print(f'{time.perf_counter() - start:.1f} s by the clock, {time.process_time():.1f} CPU s, {peak:.0f} MB peak')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    print(f"report   {cells:7} cells {done.stdout.splitlines()[-1]}", flush=True)


def multiply(source: Path, target: Path, cells: int) -> None:
    """A store with the cells of `source`, repeated under new seeds and ids until there are enough."""
    target.write_bytes(source.read_bytes())
    with sqlite3.connect(target) as connection:
        there = connection.execute("SELECT count(*) FROM cells").fetchone()[0]
        seeds = 1 + connection.execute("SELECT max(seed) FROM cells").fetchone()[0]
        for copy in range(1, -(-cells // there)):
            changed = {"id": f"id || '-{copy}'", "cell": f"cell || '-{copy}'", "seed": f"seed + {copy * seeds}"}
            for table, key in (("cells", "id"), ("evaluations", "cell"), ("artifacts", "cell")):
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                values = ", ".join(changed.get(name, name) for name in names)
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE {key} NOT LIKE '%-%'"
                )
    connection.close()


if __name__ == "__main__":
    main()
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
