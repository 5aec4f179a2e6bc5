"""Runs one cell again in a process of its own, under watch: what it reports, and what its code does that it should not.

While the method's code is on the stack, the watch notes
  * its own calls into the data sets, the registry or the harness: a fit needs none of them;
  * files of data sets that are opened, processes and threads that are started, places on the network;
  * looks at the interpreter's frames and objects, where the test rows lie.
Afterwards it notes functions of the harness that were replaced.

A watch in the same process finds mistakes and simple cheats. Code that expects it can work around it.
"""

from __future__ import annotations

import _thread
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import fsibench
from fsibench import registry
from fsibench.errors import FsibenchError
from fsibench.harness import processes, tampering
from fsibench.harness.events import Evaluation, Finished, Report, decode, encode
from fsibench.harness.plan import Cell

CORE = Path(fsibench.__file__).parent
# A watched cell gets this many seconds: watching slows Python down, and machines differ.
TIME_LIMIT = 900.0
# Nothing that fits needs these; of the registry, a method may ask for another method.
CLOSED = tuple(f"{CORE / part}/" for part in ("data", "harness", "executors"))
REGISTRY = str(CORE / "registry.py")
EVENTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.connect": "connects to a network",
    "sqlite3.connect": "opens a database",
}
# The frames and objects of a process lead to the test rows.
INTROSPECTION = ("sys._getframe", "gc.get_objects", "gc.get_referrers", "gc.get_referents")
DATA_ENDINGS = (".csv", ".gz", ".npy", ".npz", ".parquet", ".pq", ".tsv", ".arff", ".toml")


@dataclass(frozen=True)
class Account:
    """What a watched cell reported, and sentences about what it did besides."""

    reports: tuple[Report, ...]
    findings: tuple[str, ...]

    @property
    def evaluations(self) -> list[Evaluation]:
        return [report for report in self.reports if isinstance(report, Evaluation)]

    @property
    def end(self) -> Finished:
        ends = [report for report in self.reports if isinstance(report, Finished)]
        return ends[-1] if ends else Finished("lost", "the watched process vanished")


class Watch:
    """Notes what the code of one method does."""

    def __init__(self, code: Path) -> None:
        self.findings: set[str] = set()
        self._folder = str(code.parent)
        self._busy = threading.local()

    def start(self) -> None:
        sys.addaudithook(self._event)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._busy.now = True  # an audit hook stays for the life of the process

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and _is_closed(frame) and self._is_own(frame.f_back):
            place = Path(frame.f_code.co_filename).relative_to(CORE).with_suffix("").as_posix().replace("/", ".")
            self.findings.add(f"calls {place}.{frame.f_code.co_name}")
        elif event == "c_call" and argument is _thread.start_new_thread and self._on_the_stack(frame):
            self.findings.add("starts a thread")

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if getattr(self._busy, "now", False) or not (event in EVENTS or event in INTROSPECTION or event == "open"):
            return
        self._busy.now = True
        try:
            caller = sys._getframe(1)
            if event in INTROSPECTION:
                if self._is_own(caller):
                    self.findings.add(f"looks at the interpreter's frames or objects ({event})")
            elif self._on_the_stack(caller) and (event != "open" or _is_data(arguments[0])):
                self.findings.add(f"opens {Path(str(arguments[0])).name}" if event == "open" else EVENTS[event])
        finally:
            self._busy.now = False

    def _is_own(self, frame: FrameType | None) -> bool:
        return frame is not None and str(Path(frame.f_code.co_filename).parent) == self._folder

    def _on_the_stack(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if self._is_own(frame):
                return True
            frame = frame.f_back
        return False


def _is_closed(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(CLOSED) or (file == REGISTRY and frame.f_code.co_name in ("dataset", "datasets"))


def _is_data(path: object) -> bool:
    return isinstance(path, str | bytes) and str(path).rstrip("'").endswith(DATA_ENDINGS)


def watch(cell: Cell, limit: float) -> Account:
    """Run a cell under watch; it is killed after `limit` seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fsibench.executors.preload"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(cell, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit):
            return Account((Finished("timeout", f"killed after {limit:g} s"),), ())
        content = json.loads(receiver.recv_bytes())
        return Account(tuple(decode(text)[1] for text in content["reports"]), tuple(content["findings"]))
    except (EOFError, OSError, ValueError, FsibenchError) as error:
        return Account((Finished("lost", f"the watched process was lost: {error!r}"),), ())
    finally:
        receiver.close()
        processes.kill([*processes.descendants(process.pid or 0), process.pid or 0] if process.is_alive() else [])
        process.join()


def _run(cell: Cell, sender: Connection) -> None:
    from fsibench.executors.preload import run_in_fresh_process

    _leave_the_terminal()
    processes.adopt_orphans()
    processes.die_with_parent()
    _scramble_global_streams()
    reports: list[str] = []
    observer = Watch(_code_of(cell))
    observer.start()  # before a file of the user's own is imported
    run_in_fresh_process(cell, lambda report: reports.append(encode(cell.id, report)))
    observer.stop()
    findings = sorted(observer.findings) + [f"replaces {name}" for name in tampering.replaced()]
    sender.send_bytes(json.dumps({"reports": reports, "findings": findings}).encode())
    sender.close()
    processes.end_descendants()


def _leave_the_terminal() -> None:
    """Discard what a method prints, and leave Ctrl-C to the process that runs the audit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _scramble_global_streams() -> None:
    """Results follow from the generators that the harness gives; with other global streams they stay the same."""
    import numpy as np
    import torch

    seed = random.SystemRandom().randrange(2**32)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _code_of(cell: Cell) -> Path:
    if cell.file is not None:
        return Path(cell.file.rpartition(":")[0])
    return Path(str(sys.modules[registry.method_class(cell.method).__module__].__file__))
