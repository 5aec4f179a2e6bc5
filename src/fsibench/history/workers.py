"""Processes that run the benchmarks, each with the code of one commit; two of them run side by side in a duet."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fsibench.errors import UsageError

CHILD = Path(__file__).with_name("child.py")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WorkerLost(UsageError):
    """The process of a commit ended without an answer."""


@dataclass(frozen=True)
class Place:
    """Where code is found: the laid-out package of a commit, the folder that holds `benchmarks/`, a scratch folder."""

    label: str
    site: Path
    suites: Path
    scratch: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> Mapping[str, str]:
        path = os.pathsep.join((str(self.site), str(self.suites)))
        own = {
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "",  # else every new process compiles the package again
            "PYTHONHASHSEED": "0",  # sets of names are walked in the same order by both sides
            "FSIBENCH_CACHE": str(self.scratch / "cache"),  # an index that one side writes must not serve the other
        }
        return {**os.environ, **ONE_THREAD, **own, **self.extra}


class Worker:
    """One process of one commit. `send` and `receive` are apart, so that two of them can work at the same time."""

    def __init__(self, place: Place) -> None:
        self.label = place.label
        self._copy: int | None = None  # the process that answers, where the first one has made a copy of itself
        place.scratch.mkdir(parents=True, exist_ok=True)
        self._log = (place.scratch / "stderr.txt").open("a+", encoding="utf-8")
        self._process = subprocess.Popen(
            # -P: the folder of the script must not stand on the path, where its neighbours would be found as modules
            [sys.executable, "-P", str(CHILD)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            text=True, cwd=place.scratch, env=place.environment(),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def pin(self, core: int | None) -> None:
        """The copy, or the process where there is none, to one core, with everything it starts from now on."""
        if core is not None:
            os.sched_setaffinity(self._copy or self._process.pid, {core})

    def send(self, do: str, **request: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._lost()
        answer: dict[str, Any] = json.loads(line)
        self._copy = answer.get("pid", self._copy)
        return answer

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        self.send(do, **request)
        return self.receive()

    def leave(self) -> None:
        """End the copy and go on with the process itself."""
        self.ask("leave")
        self._copy = None

    def end(self) -> None:
        if self._copy is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._copy, signal.SIGKILL)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # what was written to a process that has ended is lost, as it should be

    def _lost(self) -> WorkerLost:
        self._process.wait()
        self._log.seek(0)
        last = (self._log.read().strip().splitlines() or ["it said nothing"])[-1]
        return WorkerLost(f"the process of {self.label} ended with code {self._process.returncode}: {last}")


def cores() -> Sequence[int | None]:
    """The cores that this process may use; [None] where they cannot be told apart."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
