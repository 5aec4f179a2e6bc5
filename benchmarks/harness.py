"""What a cell costs that does nothing, and how storing, resuming and reporting grow with the number of cells."""

from __future__ import annotations

import dataclasses
import resource
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common

try:
    from fsibench.executors.inline import InlineExecutor
    from fsibench.harness import driver, plan
    from fsibench.harness.store import Store
except ImportError as error:  # commits before the harness had rooms
    MISSING: str | None = str(error)
else:
    MISSING = None


def whole_cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def make_plan(splits: int, seeds: int) -> Any:
    content = {"methods": ["constant"], "datasets": ["yacht"], "splits": splits, "seeds": list(range(seeds)), "steps": 1}
    return plan.make_plan(plan.load_protocol("smoke", content))


class Folder:
    """A folder for stores, gone at the end."""

    timer = staticmethod(whole_cpu_seconds)
    number = 1

    def setup(self) -> None:
        if MISSING is not None:
            raise NotImplementedError(MISSING)
        common.one_thread()
        self.folder = Path(tempfile.mkdtemp())
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def fresh(self) -> Path:
        self.count += 1
        return self.folder / f"{self.count}.sqlite"

    def fill(self, path: Path, splits: int, seeds: int) -> Any:
        cells = make_plan(splits, seeds)
        with Store.create(path) as store, open("/dev/null", "w", encoding="utf-8") as nowhere:
            run = store.begin_run([], {}, {})
            driver.drive(store, run, cells, InlineExecutor(), driver.Progress(cells, 1, nowhere))
        return cells


class NoOpCells(Folder):
    """Twenty cells of `constant` with one step, in this process."""

    def time_twenty_cells(self) -> None:
        self.fill(self.fresh(), 20, 1)


class ManyCells(Folder):
    """A store of one cell, copied under other names."""

    cells = 100_000

    def setup(self) -> None:
        super().setup()
        self.path = self.fresh()
        self.fill(self.path, 1, 1)
        multiply(self.path, self.cells)
        with Store.read(self.path) as store:
            self.ids = list(store.cells()["id"])

    def time_scan(self) -> None:
        """What a resumed run asks first: which of its cells are done?"""
        with Store.read(self.path) as store:
            store.statuses(self.ids)


class Report(Folder):
    """A report of 10,000 cells as pages, without figures."""

    timeout = 600

    def setup(self) -> None:
        super().setup()
        self.path = self.fresh()
        self.fill(self.path, 20, 1)
        multiply(self.path, 10_000)

    def time_report(self) -> None:
        from fsibench.reports import site

        site.build(self.path, self.fresh().with_suffix(""), formats=())


class Append(Folder):
    """A thousand looks at a cell written to its store."""

    def setup(self) -> None:
        super().setup()
        try:
            from fsibench.harness.events import Evaluation

            self.look = Evaluation(
                step=1, num_rows=50, train_seconds=1.0, wall_seconds=1.0, cpu_seconds=1.0,
                scores={"rmse": 1.0, "ll": -1.0, "crps": 0.5}, pit=(1,) * 20, trace={},
            )  # fmt: skip
        except (ImportError, TypeError) as error:
            raise NotImplementedError(str(error)) from None
        self.path = self.fresh()
        (self.cell,) = self.fill(self.path, 1, 1)

    def time_thousand_rows(self) -> None:
        with Store.create(self.path) as store:
            for _ in range(1000):
                self.step += 1
                store.add_evaluation(self.cell.id, dataclasses.replace(self.look, step=self.step))

    step = 1


def multiply(path: Path, cells: int) -> None:
    """Copies of every cell, with their looks, under other identities and seeds."""
    with sqlite3.connect(path) as connection:
        (start,) = connection.execute("select count(*) from cells").fetchone()
        for table, key in (("cells", "id"), ("evaluations", "cell")):
            columns = [name for _, name, *_ in connection.execute(f"pragma table_info({table})")]
            shown = [f"'copy' || n.n || '-' || t.{key}" if name == key else f"t.{name} + 1000 * n.n" if name == "seed" else f"t.{name}" for name in columns]
            connection.execute(
                f"insert into {table} ({', '.join(columns)}) with recursive n(n) as (select 1 union all select n + 1 from n where n < {cells // start - 1}) "
                f"select {', '.join(shown)} from {table} t, n"
            )
    connection.close()
