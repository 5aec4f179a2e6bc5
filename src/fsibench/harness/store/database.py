"""Reading and writing a store.

Journal mode DELETE with synchronous FULL: the slowest setting and the only one without a known race in the SQLite
versions that Python ships. A benchmark writes a few rows per second, so nothing is lost by it. Only the driver
writes; cells report to it. Writes are grouped into transactions of at most `COMMIT_EVERY` seconds.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import filelock

from fsibench.errors import StoreError
from fsibench.harness.events import Artifact, Evaluation, Finished, Loaded
from fsibench.harness.store import merging, packing, schema
from fsibench.metrics import RESERVED_KEYS, known

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_STORE = Path("results/fsibench.sqlite")
COMMIT_EVERY = 0.2
# What the end of a cell may set. The names come from a cell's process, so nothing else is let in.
MEASURED = (
    *("train_seconds", "wall_seconds", "cpu_seconds", "total_seconds", "setup_seconds", "setup_cpu_seconds"),
    *("predict_seconds", "predict_cpu_seconds", "predict_rows", "evaluate_seconds", "evaluate_cpu_seconds"),
    *("paused_cpu_seconds", "peak_memory_mb", "contended", "flags", "calibration_seconds", "worker"),
)

# ok: ran to the end of its budget; diverged: left the finite numbers; error: raised; timeout, oom: over a limit;
# interrupted: the driver was told to stop; lost: the worker vanished or held other code; running: being worked on (or the driver died).
STATUSES = ("ok", "diverged", "error", "timeout", "oom", "interrupted", "lost", "running")
# A cell with one of these is not run again by the same command.
FINAL_STATUSES = ("ok", "diverged", "error", "timeout", "oom")

# The coordinates of a cell as users think of them. When the code or the data changed between two runs, a store holds
# two cells with equal coordinates; readers take the one that started last.
COORDINATES = ("entry", "dataset", "scheme", "split", "seed", "budget", "clock", "device")

# Columns of `Store.evaluations`; the store's metrics follow them.
EXPORT_COLUMNS = (
    *("entry", "method", "note", "dataset", "scheme", "split", "seed", "budget", "clock", "device", "status"),
    *("step", "train_seconds", "wall_seconds", "cpu_seconds", "pit", "trace"),
    *("num_rows", "final", "cell", "message", "num_train", "num_test", "num_inputs", "peak_memory_mb", "contended"),
    *("predict_seconds_per_1000_rows", "paused_cpu_seconds", "flags"),
)

# Columns of `Store.curve_chunks`; the store's metrics follow them.
CURVE_COLUMNS = ("cell", "step", "train_seconds", "cpu_seconds", "pit", "trace")


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Kept(NamedTuple):
    """Kinds of artifacts that a cell was told to keep, and its number of inputs."""

    kinds: frozenset[str]
    num_inputs: int | None

    def lacks(self, kind: str) -> bool:
        """Whether running the cell again would add an artifact; functions exist for one input only."""
        return kind not in self.kinds and (kind != "functions" or self.num_inputs == 1)


class Store:
    """One open store. Use `Store.create` to write and `Store.read` to look."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: filelock.BaseFileLock | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._last_commit = time.monotonic()
        self._metrics: set[str] | None = None

    @classmethod
    def create(cls, path: Path) -> Store:
        """Open for writing, making the file if need be. One driver at a time: a second one is refused."""
        if packing.is_packed(path):
            raise StoreError(f"{path} is a packed store, which is only read: give another --store and --take-over {path}.")
        try:
            real = path.resolve()  # a link to a store is the same store, with the same lock
            real.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(f"{real}.lock", timeout=0)
            lock.acquire()
        except filelock.Timeout:
            raise StoreError(
                f"the store {path} is being written by another fsibench run; "
                "wait for it, or give this one its own --store and merge them later."
            ) from None
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
            raise StoreError(f"the store {path} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
        try:
            return cls(path, schema.connect_for_writing(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def read(cls, path: Path) -> Store:
        """Open for reading only; also while a driver is writing. A packed store is read into memory."""
        if not path.is_file():
            raise StoreError(f"there is no store at {path}; `fsibench run` makes one, --store names another.")
        if packing.is_packed(path):
            return cls(path, packing.unpacked(path), None)
        return cls(path, schema.connect_for_reading(path), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.commit()
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    # Writing -------------------------------------------------------------------------------------------------

    def commit(self, force: bool = True) -> None:
        """Make everything so far durable; without `force` only when the last commit is `COMMIT_EVERY` seconds old."""
        if force or time.monotonic() - self._last_commit >= COMMIT_EVERY:
            self._connection.commit()
            self._last_commit = time.monotonic()

    def begin_run(self, command: list[str], protocol: Mapping[str, Any], environment: Mapping[str, Any]) -> int:
        # Nobody else can hold the lock, so a cell still marked as running belongs to a driver that died.
        self._connection.execute(
            "UPDATE cells SET status = 'interrupted', message = 'the driver died' WHERE status = 'running'"
        )
        cursor = self._connection.execute(
            "INSERT INTO runs (started, command, protocol, environment) VALUES (?, ?, ?, ?)",
            (now(), json.dumps(command), json.dumps(protocol), json.dumps(environment)),
        )
        self.commit()
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def end_run(self, run: int, outcome: str) -> None:
        self._connection.execute("UPDATE runs SET finished = ?, outcome = ? WHERE id = ?", (now(), outcome, run))
        self.commit()

    def start_cell(self, run: int, cell: Mapping[str, Any]) -> None:
        """Mark a cell as running; the results of an earlier attempt are deleted."""
        row = {**cell, "run": run, "status": "running", "started": now()}
        previous = self._connection.execute("SELECT attempts FROM cells WHERE id = ?", (row["id"],)).fetchone()
        row["attempts"] = 1 if previous is None else previous[0] + 1
        if previous is not None:
            self._connection.execute("DELETE FROM evaluations WHERE cell = ?", (row["id"],))
            self._connection.execute("DELETE FROM artifacts WHERE cell = ?", (row["id"],))
        self._insert("cells", row)
        self.commit(force=False)

    def set_size(self, cell: str, size: Loaded) -> None:
        self._update_cell(cell, dataclasses.asdict(size))

    def _update_cell(self, cell: str, values: Mapping[str, Any]) -> None:
        assignments = ", ".join(f"{column} = :{column}" for column in values)
        self._connection.execute(f"UPDATE cells SET {assignments} WHERE id = :id", {**values, "id": cell})

    def add_evaluation(self, cell: str, look: Evaluation) -> None:
        clocks = {key: getattr(look, key) for key in ("step", "num_rows", "train_seconds", "wall_seconds", "cpu_seconds")}
        texts = {"pit": json.dumps(look.pit), "trace": json.dumps(dict(look.trace))}
        self._make_room_for(look.scores)
        self._insert("evaluations", {"cell": cell, **clocks, **look.scores, **texts})
        self.commit(force=False)

    def _make_room_for(self, metrics: Collection[str]) -> None:
        """A column for each metric that the store has not met before."""
        if self._metrics is None or not self._metrics.issuperset(metrics):
            self._metrics = schema.make_room_for(self._connection, metrics)

    def add_artifact(self, cell: str, artifact: Artifact) -> None:
        self._insert("artifacts", {"cell": cell, "kind": artifact.kind, "payload": json.dumps(artifact.content)})

    def finish_cell(self, cell: str, end: Finished) -> None:
        """Record how a cell ended; its last evaluation becomes the final one."""
        assert end.status in STATUSES, end.status
        told = {"status": end.status, "message": end.message, "traceback": end.traceback}
        measured = {column: end.clocks[column] for column in MEASURED if column in end.clocks}
        self._update_cell(cell, {**measured, **told, "finished": now()})
        self._connection.execute(
            "UPDATE evaluations SET final = 1 WHERE cell = ?1 "
            "AND step = (SELECT max(step) FROM evaluations WHERE cell = ?1)",
            (cell,),
        )
        self.commit(force=False)

    def _insert(self, table: str, row: Mapping[str, Any]) -> None:
        columns = ", ".join(row)
        places = ", ".join(f":{column}" for column in row)
        self._connection.execute(f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({places})", dict(row))

    # Reading -------------------------------------------------------------------------------------------------

    def metrics(self) -> list[str]:
        """Keys of the metrics that the store has a column for: in the order of the metric list, foreign ones last."""
        columns = [row[1] for row in self._connection.execute("PRAGMA table_info(evaluations)")]
        present = [column for column in columns if column not in RESERVED_KEYS]
        order = list(known())
        return sorted(present, key=lambda key: order.index(key) if key in order else len(order))

    def statuses(self, cells: Iterable[str]) -> dict[str, str]:
        """Status of those of the given cells that the store knows."""
        known = dict(self._connection.execute("SELECT id, status FROM cells"))
        return {cell: known[cell] for cell in cells if cell in known}

    def _frame(self, query: str, categories: Collection[str] = ()) -> pd.DataFrame:
        from fsibench.harness.store import frames

        return frames.read(self._connection.execute(query), categories)

    def kept(self) -> dict[str, Kept]:
        """What each cell that ended well was told to keep beside its scores."""
        rows = self._connection.execute("SELECT id, keep, num_inputs FROM cells WHERE status = 'ok'")
        return {cell: Kept(frozenset((keep or "").split(",")), num_inputs) for cell, keep, num_inputs in rows}

    def cells(self, without: Collection[str] = (), categories: Collection[str] = ()) -> pd.DataFrame:
        """One row per cell, the latest where coordinates repeat.

        `without` names columns that are not needed, `categories` those of few texts, to be read as categories.
        """
        names = [row[1] for row in self._connection.execute("PRAGMA table_info(cells)") if row[1] not in without]
        frame = self._frame(f"SELECT {', '.join(names)} FROM cells ORDER BY started, id", categories)
        replaced = frame.duplicated(list(COORDINATES), keep="last")
        return frame[~replaced].reset_index(drop=True) if replaced.any() else frame

    def evaluations(self, only_final: bool = False, having: str | None = None) -> pd.DataFrame:
        """One row per evaluation with the cell's coordinates (`EXPORT_COLUMNS`, then metrics); a cell without any has none.

        `having`: only those with a value of this metric.
        """
        metrics = self.metrics()  # read before the rows, because a driver may add columns in between
        conditions = ["e.final"] if only_final else ["1"]
        if having is not None:
            conditions.append(f"e.{having} IS NOT NULL" if having in metrics else "0")
        query = (
            "SELECT e.*, c.entry, c.method, c.note, c.dataset, c.scheme, c.split, c.seed, c.budget, c.clock, c.device,"
            " c.status, c.message, c.num_train, c.num_test, c.num_inputs, c.peak_memory_mb, c.contended, c.started,"
            " 1000.0 * c.predict_cpu_seconds / c.predict_rows AS predict_seconds_per_1000_rows,"
            " c.paused_cpu_seconds, c.flags"
            f" FROM evaluations e JOIN cells c ON c.id = e.cell WHERE {' AND '.join(conditions)}"
            " ORDER BY c.started, c.id, e.step"
        )
        frame = self._frame(query)
        latest = frame.drop_duplicates([*COORDINATES], keep="last")["cell"]
        frame = frame[frame["cell"].isin(latest)]
        return frame.loc[:, [*EXPORT_COLUMNS, *metrics]].reset_index(drop=True)

    def num_evaluations(self) -> int:
        """How many there are now; a driver may add others at any time."""
        return int(self._connection.execute("SELECT count(*) FROM evaluations").fetchone()[0])

    def curve_chunks(self, size: int = 50_000) -> Iterator[list[tuple[Any, ...]]]:
        """Every evaluation as a row of `CURVE_COLUMNS` and metrics, by cell and step, in pieces that fit into memory."""
        columns = ", ".join((*CURVE_COLUMNS, *self.metrics()))
        cursor = self._connection.execute(f"SELECT {columns} FROM evaluations ORDER BY cell, step")
        while rows := cursor.fetchmany(size):
            yield rows

    def runs(self) -> list[dict[str, Any]]:
        cursor = self._connection.execute("SELECT * FROM runs ORDER BY id")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        for row in rows:
            row.update({key: json.loads(row[key]) for key in ("command", "protocol", "environment")})
        return rows

    def show(self, prefix: str) -> dict[str, Any]:
        """Everything about the one cell whose id begins with `prefix`."""
        cursor = self._connection.execute("SELECT * FROM cells WHERE substr(id, 1, ?) = ?", (len(prefix), prefix))
        rows = cursor.fetchall()
        if len(rows) != 1:
            found = f"{len(rows)} cells begin" if rows else "no cell begins"
            raise StoreError(f"{found} with {prefix!r} in {self.path}; `fsibench store list` shows the ids.")
        cell = dict(zip([column[0] for column in cursor.description], rows[0], strict=True))
        names = ("step", "num_rows", "train_seconds", "cpu_seconds", *self.metrics())
        query = f"SELECT {', '.join(names)} FROM evaluations WHERE cell = ? ORDER BY step"
        points = self._connection.execute(query, (cell["id"],)).fetchall()
        return {**cell, "evaluations": [dict(zip(names, point, strict=True)) for point in points]}

    # Maintenance ---------------------------------------------------------------------------------------------

    def merge(self, other: Path) -> int:
        """Take over the cells of another store that this one lacks or has no final result for; returns how many."""
        if other.resolve() == self.path.resolve():
            raise StoreError(f"{other} is the store to merge into; name another one.")
        Store.read(other).close()  # refuses what is no store, and undoes what a killed writer left
        self.commit()
        try:
            with packing.as_database(other) as database:
                return merging.merge(self._connection, database, FINAL_STATUSES)
        finally:
            self._metrics = None  # the merge may have added columns

    def pack(self, path: Path) -> int:
        """Write everything to one Parquet file (`packing`), which `read` and `merge` take; returns the number of cells."""
        return packing.pack(self._connection, path)

    def collect_garbage(self) -> int:
        """Drop cells that a later one with equal coordinates replaces, and give the space back; returns how many."""
        current = set(self.cells()["id"])
        stale = [(row[0],) for row in self._connection.execute("SELECT id FROM cells") if row[0] not in current]
        self._connection.executemany("DELETE FROM cells WHERE id = ?", stale)
        self._connection.execute("DELETE FROM runs WHERE id NOT IN (SELECT run FROM cells)")
        self.commit()
        self._connection.execute("VACUUM")
        return len(stale)

    def scored_rows(self) -> dict[str, int | None]:
        """Cell id -> test rows that its last look scored; None where an older version did not tell."""
        return dict(self._connection.execute("SELECT cell, num_rows FROM evaluations WHERE final"))

    def final_scores(self, cell: str) -> dict[str, float | None]:
        """Metrics of a cell's final evaluation by key; empty if it has none."""
        keys = self.metrics()
        row = self._connection.execute(
            f"SELECT {', '.join(keys)} FROM evaluations WHERE cell = ? AND final", (cell,)
        ).fetchone()
        return {} if row is None else dict(zip(keys, row, strict=True))

    def add_scores(self, cell: str, scores: Mapping[str, float]) -> None:
        """Further metrics of a cell's final evaluation."""
        self._make_room_for(scores)
        for key, value in scores.items():
            self._connection.execute(f"UPDATE evaluations SET {key} = ? WHERE cell = ? AND final", (value, cell))

    def artifacts(self, kind: str, cells: Iterable[str] | None = None) -> dict[str, Any]:
        """Cell id -> payload of the artifacts of a kind, all of them or those of some cells."""
        query = "SELECT cell, payload FROM artifacts WHERE kind = ?"
        if cells is None:
            return {cell: json.loads(payload) for cell, payload in self._connection.execute(query, (kind,))}
        rows = (self._connection.execute(f"{query} AND cell = ?", (kind, cell)).fetchone() for cell in cells)
        return {row[0]: json.loads(row[1]) for row in rows if row is not None}

    def cells_with(self, kind: str) -> set[str]:
        """Ids of the cells that have an artifact of a kind."""
        return {row[0] for row in self._connection.execute("SELECT cell FROM artifacts WHERE kind = ?", (kind,))}
