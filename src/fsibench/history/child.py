"""Runs benchmarks of `benchmarks/` in a process of its own, with the `fsibench` of some commit on its path.

A script, not a module: `fsibench` is that of another commit here, so nothing of this one may be imported. One request
per line on standard input, one answer per line on standard output, both JSON.

    {"do": "list"}                          every series: name, kind, unit, splits
    {"do": "open", "series": S, "split": 0} set up one of them; {"absent": why} where the commit does not have it
    {"do": "time", "calls": 4}              CPU seconds of a call, over so many calls
    {"do": "units", "seconds": 0.04, "calls": 4}   CPU seconds of a call and of the calibration product, at least so much of each
    {"do": "track"}, {"do": "peak"}         the tracked value; the highest resident memory of this process, in MB
    {"do": "close"}
    {"do": "fork"}, {"do": "leave"}         go on in a copy of this process with memory of its own; end that copy

A benchmark is what asv takes for one: a method `time_*`, `track_*` or `peakmem_*` of a class, with `params`,
`param_names`, `setup`, `teardown`, `timer`, `unit`. The parameter `split`, where there is one, is no part of the name
of a series: its values are the pairs of a comparison.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pkgutil
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

KINDS = {"time": "time_", "peak": "peakmem_", "track": "track_"}


def benchmarks(package: str) -> Iterator[tuple[str, str, type, str]]:
    """Kind, name without parameters, class and function of everything in the suites."""
    root = importlib.import_module(package)
    for info in pkgutil.iter_modules(root.__path__):
        try:
            module = importlib.import_module(f"{package}.{info.name}")
        except ImportError as error:  # a suite of names that this commit does not have: its series are absent
            print(f"{info.name}: {error}", file=sys.stderr)
            continue
        for cls in vars(module).values():
            if not isinstance(cls, type) or cls.__module__ != module.__name__:
                continue
            for function in dir(cls):
                for kind, prefix in KINDS.items():
                    if function.startswith(prefix):
                        yield kind, f"{info.name}.{cls.__name__}.{function}", cls, function


def parameters(cls: Any) -> Iterator[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """For each combination of parameters other than `split`: their texts, and the full combinations in it."""
    given = list(getattr(cls, "params", ()))
    if given and not isinstance(given[0], tuple | list):
        given = [given]
    names = list(getattr(cls, "param_names", ())) or [f"param{place}" for place in range(len(given))]
    place = names.index("split") if "split" in names else None
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for values in itertools.product(*given):
        shown = tuple(str(value) for number, value in enumerate(values) if number != place)
        groups.setdefault(shown, []).append(values)
    return iter(groups.items())


def catalogue(package: str) -> dict[str, dict[str, Any]]:
    """Every series by name."""
    found: dict[str, dict[str, Any]] = {}
    for kind, name, cls, function in benchmarks(package):
        for shown, values in parameters(cls):
            full = f"{name}({', '.join(shown)})" if shown else name
            found[full] = {"kind": kind, "class": cls, "function": function, "values": values}
    return found


def calibration_product() -> Callable[[], object]:
    """The product of `fsibench.harness.step_costs`, which not every commit has."""
    import torch

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(100, rows, 50, generator=generator) for rows in (110, 50))
    return lambda: torch.bmm(left, right)


class Bench:
    """The series that is set up, if one is."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.catalogue = catalogue(package)
        self.call: Callable[[], Any] | None = None
        self.instance: Any = None
        self.values: tuple[Any, ...] = ()
        self.product: Callable[[], object] | None = None
        self.warm = False

    def warm_up(self) -> None:
        """Before the first copy is made, since every copy would pay for it again."""
        if not self.warm:
            self.warm = True
            suites = importlib.import_module(self.package)
            getattr(suites, "warm_up", lambda: None)()

    def list(self, request: dict[str, Any]) -> dict[str, Any]:
        rows = [
            {
                "name": name,
                "kind": found["kind"],
                "function": found["function"],
                "unit": getattr(getattr(found["class"], found["function"]), "unit", getattr(found["class"], "unit", "")),
                "splits": len(found["values"]),
            }
            for name, found in self.catalogue.items()
        ]
        return {"series": rows}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.close(request)
        found = self.catalogue.get(request["series"])
        if found is None:
            return {"absent": f"no benchmark is called {request['series']}"}
        self.values = found["values"][request.get("split", 0)]
        self.instance = found["class"]()
        if hasattr(self.instance, "setup"):
            try:
                self.instance.setup(*self.values)
            except NotImplementedError as error:  # what asv, too, takes for "not applicable"
                self.instance = None
                return {"absent": str(error) or "not applicable"}
        function = getattr(self.instance, found["function"])
        self.call = lambda: function(*self.values)
        self.timer = getattr(self.instance, "timer", time.process_time)
        return {"open": request["series"]}

    def close(self, request: dict[str, Any]) -> dict[str, Any]:
        if hasattr(self.instance, "teardown"):
            self.instance.teardown(*self.values)
        self.instance = self.call = None
        return {}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.call is not None
        start = self.timer()
        for _ in range(request["calls"]):
            self.call()
        return {"cpu": (self.timer() - start) / request["calls"]}

    def units(self, request: dict[str, Any]) -> dict[str, Any]:
        self.product = self.product or calibration_product()
        return {"product": self._spend(self.product, time.process_time, request), "cpu": self._spend(self.call, self.timer, request)}

    def _spend(self, call: Any, timer: Any, request: dict[str, Any]) -> float:
        start, calls = timer(), 0
        while True:
            call()
            calls += 1
            spent = float(timer() - start)
            if spent >= request["seconds"] and calls >= request["calls"]:
                return spent / calls

    def track(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.call is not None
        return {"value": float(self.call())}

    def peak(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.call is not None
        self.call()
        return {"value": peak_megabytes()}


def peak_megabytes() -> float:
    """Highest resident memory of this program. Not `ru_maxrss` where it can be had better: that one counts the parent's at the fork."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def fork() -> dict[str, Any] | None:
    """What the copy answers, in the copy; in the process itself nothing, and only after the copy has ended."""
    pid = os.fork()
    if pid == 0:
        return {"pid": os.getpid()}
    _, status = os.waitpid(pid, 0)
    if status != 0:  # it did not leave but died: whoever waits for its answer must hear of it
        print(f"a copy ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
        os._exit(1)
    return None


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a benchmark prints must not mix with the answers
    bench: Bench | None = None
    # not `for line in sys.stdin`: nothing may be read ahead, since a copy goes on with the same input
    while line := sys.stdin.readline():
        request = json.loads(line)
        try:
            bench = bench or Bench("benchmarks")
            if request["do"] == "fork":
                bench.warm_up()
                answer = fork()
            else:
                answer = {} if request["do"] == "leave" else getattr(bench, request["do"])(request)
        except Exception as error:  # noqa: BLE001 (a commit may fail in any way; the reader is told how)
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        if answer is not None:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        if request["do"] == "leave":
            os._exit(0)


if __name__ == "__main__":
    main()
