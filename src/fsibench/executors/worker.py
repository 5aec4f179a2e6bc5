"""Cells over a pipe: `python -m fsibench.executors.worker` reads one cell a line, writes one event a line, both JSON.

A worker of a cluster engine keeps one such server: the warm fork server, the limits and the isolation of a local run,
without a torch import per cell. When the worker dies, standard input closes and the server takes its cell down.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import sys
import threading
from collections import deque
from typing import Any

from fsibench.executors.base import Limits
from fsibench.executors.local import LocalExecutor
from fsibench.harness.events import encode
from fsibench.harness.plan import Cell


def cell_to_json(cell: Cell) -> str:
    return json.dumps(dataclasses.asdict(cell))


def cell_from_json(text: str) -> Cell:
    content = json.loads(text)
    content["keep"] = tuple(content["keep"])
    content["options"] = tuple((key, _tuples(value)) for key, value in content["options"])
    return Cell(**content)


def _tuples(value: Any) -> Any:
    """JSON has lists only; options hold tuples, which can be hashed."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def main() -> None:
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        executor = LocalExecutor(1, Limits(**request["limits"]))
        try:
            for event in executor.run(deque([cell_from_json(request["cell"])])):
                print(encode(event.cell.id, event.report), flush=True)
        finally:
            executor.stop()


def _read(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    # The worker has gone. Its cell's supervisor notices that we have too, and ends the cell.
    os._exit(0)


if __name__ == "__main__":
    main()
