"""The same plan on a Dask cluster: a local one by default, a running one by its scheduler's address.

The engine only carries blocks of cells to machines. Each worker has a local executor of its own, so a cell runs with the
isolation and the limits of a local run, and results for step budgets are those of a local run, bit for bit. Reports
come back when a block ends, each with the id of its cell. A worker that dies loses its running block only; Dask runs
that one again elsewhere. When the driver disappears, the cluster forgets its cells, and the same command goes on with
what the store lacks.

Workers need fsibench installed, one thread and one slot each: `dask worker ADDRESS --nthreads 1 --resources slot=1`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import queue as queues
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

from fsibench.errors import UsageError
from fsibench.executors.base import Event, Limits, lost
from fsibench.executors.local import LocalExecutor
from fsibench.executors.wire import cell_from_json, cell_to_json
from fsibench.harness.environment import calibrate
from fsibench.harness.events import Finished, MalformedMessage, Report, Started, decode, encode
from fsibench.harness.plan import Cell

# A block per worker computes and one waits: no worker is idle between two blocks, and little is lost with a worker.
BLOCKS_AHEAD = 2
# Short cells are sent together, in blocks of about this many seconds and at most this many cells.
BLOCK_SECONDS = 10.0
MOST_CELLS_PER_BLOCK = 50
# Dask gives a block up when this many workers died under it; the driver counts further attempts.
DEATHS_PER_BLOCK = 2
TICK = 0.5


class DaskExecutor:
    """Blocks of cells as Dask tasks, a bounded number in flight."""

    def __init__(self, workers: int, limits: Limits, scheduler: str | None = None) -> None:
        self.limits = limits
        self._client, self._cluster = _connect(workers, scheduler)
        self._flying: dict[str, tuple[Any, list[Cell]]] = {}
        self._landed: queues.SimpleQueue[str] = queues.SimpleQueue()
        self._spent: list[float] = []  # wall seconds of finished cells
        self._number = 0

    def run(self, queue: deque[Cell]) -> Iterator[Event | None]:
        try:
            while queue or self._flying:
                while queue and len(self._flying) < BLOCKS_AHEAD * self._num_workers():
                    yield from (Event(cell, Started()) for cell in self._submit(queue))
                with contextlib.suppress(queues.Empty):
                    future, cells = self._flying.pop(self._landed.get(timeout=TICK))
                    for event in _events(future, cells):
                        self._note(event.report)
                        yield event
                yield None
        except (OSError, CancelledError) as error:
            raise self._lost_scheduler() from error

    def stop(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, CancelledError, RuntimeError):  # the scheduler has ended
            self._client.cancel([future for future, _ in self._flying.values()], force=True)
        self._flying.clear()
        self._client.close(timeout=2)
        if self._cluster is not None:
            self._cluster.close()

    def _num_workers(self) -> int:
        if self._client.status != "running":
            raise OSError("the connection is closed")
        return max(1, len(self._client.nthreads()))

    def _submit(self, queue: deque[Cell]) -> list[Cell]:
        cells = [queue.popleft() for _ in range(self._block_size(queue))]
        request = {"cells": [cell_to_json(cell) for cell in cells], "limits": dataclasses.asdict(self.limits)}
        self._number += 1
        key = f"fsibench-{self._number}-{cells[0].id}-{time.time_ns()}"
        # Not pure: a cell that is submitted again is meant to run again.
        future = self._client.submit(
            run_block, json.dumps(request), resources={"slot": 1}, retries=0, pure=False, key=key
        )
        self._flying[key] = (future, cells)
        future.add_done_callback(lambda done: self._landed.put(done.key))
        return cells

    def _block_size(self, queue: deque[Cell]) -> int:
        """As many cells as last about `BLOCK_SECONDS`, but no more than an even share of what is left."""
        expected = queue[0].seconds
        if expected is None:
            expected = sum(self._spent) / len(self._spent) if self._spent else BLOCK_SECONDS
        share = len(queue) // (BLOCKS_AHEAD * self._num_workers())
        return max(1, min(MOST_CELLS_PER_BLOCK, share, int(BLOCK_SECONDS / max(expected, 1e-3))))

    def _note(self, report: Report) -> None:
        if isinstance(report, Finished) and "total_seconds" in report.clocks:
            self._spent = [*self._spent[-99:], float(report.clocks["total_seconds"])]

    def _lost_scheduler(self) -> UsageError:
        return UsageError(
            "the connection to the Dask scheduler is lost. What is stored is safe; "
            "start the scheduler and its workers again, then run the same command: it goes on from there."
        )


def _events(future: Any, cells: list[Cell]) -> Iterator[Event]:
    """What the cells of a block reported; a cell that has no clean record from its worker is lost."""
    try:
        reports = _reports(future.result(), cells)
    except (OSError, CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 (Dask wraps whatever went wrong on the way)
        reports = {cell.id: [lost(f"{type(error).__name__}: {error}")] for cell in cells}
    future.release()
    for cell in cells:
        yield from (Event(cell, report) for report in reports[cell.id])


def _reports(text: str, cells: list[Cell]) -> dict[str, list[Report]]:
    """Reports by cell id. A message with an unknown id means a broken channel, so the whole block is discarded."""
    found: dict[str, list[Report]] = {cell.id: [] for cell in cells}
    for line in text.splitlines():
        sender, report = decode(line)
        if sender not in found:
            raise MalformedMessage(f"a report carries the id {sender[:24]!r} of a cell that is not in the block")
        if any(isinstance(earlier, Finished) for earlier in found[sender]):
            raise MalformedMessage("a report came after the last one")
        found[sender].append(report)
    for reports in found.values():
        if not reports or not isinstance(reports[-1], Finished):
            reports.append(lost("the worker did not say how it ended"))
    return found


def _connect(workers: int, scheduler: str | None) -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError:
        raise UsageError("--executor dask needs Dask; install it with: pip install 'fsibench[dask]'.") from None
    dask.config.set({"distributed.scheduler.allowed-failures": DEATHS_PER_BLOCK})
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is reported by our own message
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


@dataclasses.dataclass
class _Worker(threading.local):
    """What a worker keeps between blocks, per thread: its warm executor, its speed and its name."""

    executor: LocalExecutor | None = None
    identity: dict[str, float | str] = dataclasses.field(default_factory=dict)


_worker = _Worker()


def run_block(request: str) -> str:
    """Run cells on this worker, one after the other; returns their reports, one line of JSON each."""
    content = json.loads(request)
    if _worker.executor is None:
        _worker.executor = LocalExecutor(1)
        _worker.identity = _who_am_i()
    executor = _worker.executor
    executor.limits = Limits(**content["limits"])
    lines = []
    try:
        for event in executor.run(deque(cell_from_json(cell) for cell in content["cells"])):
            if event is not None and not isinstance(event.report, Started):
                lines.append(encode(event.cell.id, _signed(event.report)))
    except BaseException:
        executor.stop()  # nothing of this block may reach the next one
        raise
    return "\n".join(lines)


def _signed(report: Report) -> Report:
    """The end of a cell says on which worker it ran, and how fast that is."""
    if not isinstance(report, Finished):
        return report
    return dataclasses.replace(report, clocks={**report.clocks, **_worker.identity})


def _who_am_i() -> dict[str, float | str]:
    """A name that tells workers apart without naming a host, and the seconds of the calibration kernel here."""
    import distributed

    address: str = distributed.get_worker().address
    return {"worker": hashlib.sha256(address.encode()).hexdigest()[:8], "calibration_seconds": calibrate()}
