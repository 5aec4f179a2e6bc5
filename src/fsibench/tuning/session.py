"""Drives a search: its requests become cells of a store, which remembers them; a killed search goes on from there."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsibench import options, registry
from fsibench.contract import Space
from fsibench.errors import Unreachable, UsageError
from fsibench.executors.base import Executor
from fsibench.harness import driver
from fsibench.harness.plan import Cell, Protocol, make_plan
from fsibench.harness.store import FINAL_STATUSES, Store
from fsibench.tuning import objective
from fsibench.tuning.search import Measured, Outcome, Request, Settings, search
from fsibench.tuning.space import space_of

# What a cell spends, by activity.
CPU_COLUMNS = ("cpu_seconds", "setup_cpu_seconds", "predict_cpu_seconds", "evaluate_cpu_seconds")


@dataclass(frozen=True)
class Task:
    """What is tuned: an entry, whose written options stay as they are, on data sets that are here and not too large."""

    entry: registry.Entry
    space: Space
    datasets: tuple[str, ...]
    settings: Settings

    @classmethod
    def of(cls, text: str, settings: Settings, datasets: Sequence[str], say: Callable[[str], None]) -> Task:
        """Left out, with a sentence: what cannot be had here, and what is too large for the method."""
        entry = registry.entry(text)
        fixed = options.changed(entry.method)
        space = {name: values for name, values in space_of(type(entry.method)).items() if name not in fixed}
        kept = []
        for name in datasets:
            try:
                registry.dataset(name).fetch()
            except Unreachable as error:
                say(f"{name} is left out: {error}")
                continue
            task = cls(entry, space, (name,), settings)
            if task.cells(Request(task.defaults, name, 0, settings.cell_seconds)):
                kept.append(name)
            else:
                say(f"{name} is left out: it is too large for {entry.label}")
        if not kept:
            raise UsageError("none of the data sets of the development suite can be used.")
        return cls(entry, space, tuple(kept), settings)

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: getattr(self.entry.method, name) for name in self.space}

    def cells(self, request: Request) -> list[Cell]:
        """The cell of a request; none where the data set is too large for the method."""
        method = dataclasses.replace(self.entry.method, **request.options)
        label = options.label(self.entry.file or method.name, options.changed(method))
        protocol = Protocol(
            "dev", (label,), (request.dataset,), splits=(request.split,), seeds=(self.settings.seed,),
            seconds=request.seconds, clock="cpu", per_decade=1,
        )  # fmt: skip
        return make_plan(protocol)


def tune(
    task: Task, store: Store, run: int, make_executor: Callable[[], Executor], say: Callable[[str], None]
) -> Outcome:
    """Run the search to its end; raises KeyboardInterrupt when a fit is interrupted."""
    steps = search(task.space, task.defaults, task.datasets, task.settings)
    request, trial, last = next(steps), 0, None
    while True:
        measured = measure(task, request, store, run, make_executor)
        trial, last = (trial + 1, request.options) if request.options is not last else (trial, last)
        say(f"trial {trial}, {request.dataset}/{request.split}, {request.seconds:g} s: {measured.merit:.3f}, {measured.cpu_seconds:.1f} CPU s")
        try:
            request = steps.send(measured)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def measure(
    task: Task, request: Request, store: Store, run: int, make_executor: Callable[[], Executor]
) -> Measured:
    """One fit, from the store if it is there."""
    [cell] = task.cells(request)
    if store.statuses([cell.id]).get(cell.id) not in FINAL_STATUSES:
        quiet = driver.Progress([], 1, io.StringIO())
        if not driver.drive(store, run, [cell], make_executor(), quiet):
            raise KeyboardInterrupt
    found = store.show(cell.id)
    scores = found["evaluations"][-1] if found["status"] == "ok" and found["evaluations"] else {}
    return Measured(objective.merit(request.dataset, request.split, scores), _cost(found, request.seconds))


def _cost(found: Mapping[str, Any], seconds: float) -> float:
    """CPU seconds of a cell; one that was killed told none, and its whole training budget counts."""
    told = [found[column] for column in CPU_COLUMNS if found[column] is not None]
    return float(sum(told)) if told else seconds
