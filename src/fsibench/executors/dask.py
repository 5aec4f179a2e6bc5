"""The same plan on a Dask cluster: a local one by default, a running one by its scheduler's address.

The engine only carries cells to machines. On each worker a cell server (see `fsibench.executors.worker`) runs the cell with
the isolation and the limits of a local run, so results for step budgets are those of a local run, bit for bit. Events
come back when the cell ends. A worker that dies loses its running cell only; Dask runs that one again elsewhere. When
the driver disappears, the cluster forgets its cells, and the same command goes on with what the store lacks.

Workers need fsibench installed, one thread and one slot each: `dask worker ADDRESS --nthreads 1 --resources slot=1`.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from fsibench.errors import UsageError
from fsibench.executors.base import Event, Limits, lost
from fsibench.executors.worker import cell_to_json
from fsibench.harness.events import Finished, Report, Started, decode, encode
from fsibench.harness.plan import Cell

# A cell per worker computes and one waits: no worker is idle between two cells, and little is lost with a worker.
CELLS_AHEAD = 2
# Dask gives a cell up when this many workers died under it; the driver counts further attempts.
DEATHS_PER_CELL = 2


class DaskExecutor:
    """Cells as Dask tasks, a bounded number in flight."""

    def __init__(self, workers: int, limits: Limits, scheduler: str | None = None) -> None:
        self.limits = limits
        self._client, self._cluster = _connect(workers, scheduler)
        self._flying: dict[Any, Cell] = {}

    def run(self, queue: deque[Cell]) -> Iterator[Event]:
        from distributed import as_completed

        done = as_completed()
        while queue or self._flying:
            while queue and len(self._flying) < CELLS_AHEAD * max(1, self._num_workers()):
                cell = queue.popleft()
                future = self._submit(cell)
                self._flying[future] = cell
                done.add(future)
                yield Event(cell, Started())
            future = next(done)
            cell = self._flying.pop(future)
            yield from (Event(cell, report) for report in _result(future, cell))
            future.release()

    def stop(self) -> None:
        self._client.cancel(list(self._flying), force=True)
        self._flying.clear()
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _num_workers(self) -> int:
        return len(self._client.nthreads())

    def _submit(self, cell: Cell) -> Any:
        request = json.dumps({"cell": cell_to_json(cell), "limits": dataclasses.asdict(self.limits)})
        # Not pure: a cell that is submitted again is meant to run again.
        return self._client.submit(
            run_remotely, request, resources={"slot": 1}, retries=0, pure=False, key=f"{cell.id}-{id(request)}"
        )


def _result(future: Any, cell: Cell) -> list[Report]:
    """The reports of a cell; a message of another cell means that the channel is broken, and nothing of it counts."""
    try:
        messages = [decode(line) for line in future.result().splitlines()]
    except Exception as error:  # noqa: BLE001 (Dask wraps whatever went wrong on the way)
        return [lost(f"{type(error).__name__}: {error}")]
    if any(sender != cell.id for sender, _ in messages):
        return [lost("its messages carry the id of another cell")]
    return [report for _, report in messages if not isinstance(report, Started)]


def _connect(workers: int, scheduler: str | None) -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError:
        raise UsageError("--executor dask needs Dask; install it with: pip install 'fsibench[dask]'.") from None
    dask.config.set({"distributed.scheduler.allowed-failures": DEATHS_PER_CELL})
    if scheduler is None:
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, resources={"slot": 1}, dashboard_address=None
        )
        return distributed.Client(cluster), cluster
    try:
        return distributed.Client(scheduler, timeout=10), None
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}.") from None


# On the worker -------------------------------------------------------------------------------------------------------

_server: subprocess.Popen[str] | None = None


def run_remotely(request: str) -> str:
    """Run one cell through this worker's cell server; returns its events as JSON."""
    server = _running_server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(request + "\n")
    server.stdin.flush()
    cell_id = json.loads(json.loads(request)["cell"])["id"]
    lines = []
    for line in server.stdout:
        lines.append(line.strip())
        if isinstance(decode(line)[1], Finished):
            return "\n".join(lines)
    return "\n".join([*lines, encode(cell_id, lost("the cell server ended"))])


def _running_server() -> subprocess.Popen[str]:
    global _server  # one per worker process, kept warm between cells
    if _server is None or _server.poll() is not None:
        command = [sys.executable, "-m", "fsibench.executors.worker"]
        _server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(_server.terminate)
    return _server
