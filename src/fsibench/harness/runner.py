"""One cell: load, split, standardise, pull `fit`, evaluate at shared log-spaced instants, report as it happens.

Clocks: training runs only inside the pulls. Setup, prediction and scoring are timed apart, each in wall and CPU
seconds. The evaluation has its own random stream, a function of the cell and the step alone, so that the schedule of
evaluations changes neither the training path nor the scores at a step.
"""

from __future__ import annotations

import functools
import math
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from fsibench import options, registry
from fsibench.contract import Data, Meter, Method, Posterior
from fsibench.data import Prepared, Standardiser, prepare
from fsibench.errors import Diverged, UsageError
from fsibench.harness import identity, panels
from fsibench.harness.events import Artifact, Evaluation, Finished, Loaded, Report
from fsibench.harness.plan import Cell
from fsibench.metrics import Prediction, score
from fsibench.predictive import Predictive, concatenate
from fsibench.scoring import MOST_JOINT_ROWS, NUM_JOINT_DRAWS, pit_counts

# First evaluation instant in training seconds; further ones follow at equal ratios, shared by all entries.
FIRST_INSTANT = 0.1
# Test rows per call of `predict`: 500 components x 1000 rows x 50 hidden units are 100 MB in float32.
ROWS_PER_PREDICT = 1000
# Test rows per call of `draw` for joint scores, a multiple of their groups: exact draws of a process cost its cube.
ROWS_PER_DRAW = 200
# A cell whose training took this many times its CPU time shared its core with something else.
CONTENTION_FACTOR = 1.25


# Where a cell reports: `Loaded` and `Evaluation` as they happen, `Finished` once.
Emit = Callable[[Report], None]


@dataclass
class Clock:
    """Wall and CPU seconds of one activity."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> None:
        self._start = (time.perf_counter(), time.process_time())

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._start[0]
        self.cpu += time.process_time() - self._start[1]


class Schedule:
    """When to look: at instants `first · 10^(k / per_decade)` of training, in seconds or in steps."""

    def __init__(self, meter: Meter, per_decade: int) -> None:
        self._meter = meter
        self._instants = _instants(FIRST_INSTANT if meter.seconds is not None else 1.0, per_decade)
        self._next = next(self._instants)

    def due(self) -> bool:
        """Whether an instant has passed since the last look."""
        spent = self._meter.elapsed if self._meter.seconds is not None else self._meter.steps_done
        if spent < self._next:
            return False
        while self._next <= spent:
            self._next = next(self._instants)
        return True


def _instants(first: float, per_decade: int) -> Iterator[float]:
    k = 0
    while True:
        yield first * 10.0 ** (k / per_decade)
        k += 1


def run_cell(cell: Cell, emit: Emit) -> None:
    """Run one cell to its end; whatever happens is reported, nothing is raised but interrupts."""
    started = time.perf_counter()
    run = _Run(cell, emit)
    status, message, trace = "ok", None, None
    try:
        run.go()
    except (Diverged, LinAlgError) as error:
        status, message = "diverged", f"{type(error).__name__}: {error}"
    except UsageError as error:
        status, message = "error", str(error)
    except MemoryError as error:
        status, message, trace = "oom", f"MemoryError: {error}", traceback.format_exc()
    except Exception as error:  # noqa: BLE001 (whatever a method raises becomes a status)
        status, message, trace = "error", f"{type(error).__name__}: {error}", traceback.format_exc()
    clocks = {"total_seconds": time.perf_counter() - started, **run.clocks()}
    emit(Finished(status, message, trace, clocks))


class _Run:
    """The state of one running cell."""

    def __init__(self, cell: Cell, emit: Emit) -> None:
        self.cell = cell
        self.emit = emit
        self.setup, self.train, self.predict, self.evaluate = Clock(), Clock(), Clock(), Clock()
        self.device = torch.device("cpu")
        self.meter: Meter | None = None
        self.last_step = -1
        self.inducing: list[dict[str, Any]] = []

    def go(self) -> None:
        with self.setup:
            self.device = device_named(self.cell.device)
            method = build_method(self.cell)
            dataset = registry.dataset(self.cell.dataset)
            prepared = _prepared(self.cell.dataset, self.cell.scheme, self.cell.split)
            train = Data(self._tensor(prepared.train_x), self._tensor(prepared.train_y))
            test_x, test_y = self._tensor(prepared.test_x), torch.from_numpy(prepared.test_y)
            self.emit(_loaded(prepared))
        last = self._pull(method, train, lambda posterior, last: self._look(posterior, prepared, test_x, test_y, last))
        if self.keeps_functions(prepared):
            content = panels.payload(last, prepared, dataset, self.inducing, self.generator("functions"))
            self.emit(Artifact("functions", content))

    def keeps_functions(self, prepared: Prepared) -> bool:
        return "functions" in self.cell.keep and prepared.train_x.shape[1] == 1

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _pull(self, method: Method, train: Data, look: Callable[[Posterior, bool], None]) -> Posterior:
        """Pull `fit` until the budget is spent, looking when due and at the end; returns the last posterior."""
        clock = time.perf_counter if self.cell.clock == "wall" else time.process_time
        self.meter = meter = Meter(self.cell.seconds, self.cell.steps, clock)
        schedule = Schedule(meter, self.cell.per_decade)
        posterior: Posterior | None = None
        fits = iter(method.fit(train, meter.budget, self.generator("fit")))
        training = True
        while training:
            with self.train:
                meter.start()
                training = False
                for posterior in fits:  # noqa: B007 (looked at below)
                    meter.steps_done += 1
                    training = not meter.exhausted
                    if not training or schedule.due():
                        break
                else:
                    training = False  # nothing more to come
                synchronise(self.device)
                meter.stop()
            if posterior is None:
                raise UsageError(f"{self.cell.entry} yielded no posterior; `fit` must yield at least once.")
            # The last look is worth repeating where the fit turned out to be at its end: costly metrics wait for it.
            if meter.steps_done != self.last_step or not training:
                look(posterior, not training)
                self.last_step = meter.steps_done
        assert posterior is not None
        return posterior

    def _look(self, posterior: Posterior, prepared: Prepared, test_x: Tensor, test_y: Tensor, last: bool) -> None:
        assert self.meter is not None
        standard = prepared.standardiser
        with self.evaluate, torch.no_grad():
            with self.predict:
                predictive = self._predict(posterior, test_x)
            predictive = predictive.double().rescale(standard.y_scale, standard.y_mean)
            require_distribution(predictive)
            prediction = Prediction(predictive, test_y.double(), lambda: self._functions(posterior, test_x, standard))
            self.emit(
                Evaluation(
                    step=self.meter.steps_done,
                    train_seconds=self.meter.elapsed,
                    wall_seconds=self.train.wall,
                    cpu_seconds=self.train.cpu,
                    scores=score(prediction, last),
                    pit=pit_counts(predictive, prediction.y),
                    trace=scalar_trace(posterior),
                )
            )
            if self.keeps_functions(prepared):
                z = panels.inducing_inputs(posterior, standard)
                self.inducing += [] if z is None else [{"train_seconds": self.meter.elapsed, "z": z}]

    def _predict(self, posterior: Posterior, x: Tensor) -> Predictive:
        assert self.meter is not None
        generator = self.generator("evaluate", self.meter.steps_done)
        parts = [posterior.predict(rows, generator) for rows in torch.split(x, ROWS_PER_PREDICT)]
        synchronise(self.device)
        predictive = concatenate(parts)
        if predictive.num_points != len(x):
            raise UsageError(f"{self.cell.entry} predicted {predictive.num_points} points for {len(x)} test rows.")
        return predictive

    def _functions(self, posterior: Posterior, x: Tensor, standard: Standardiser) -> Tensor:
        """Coherent draws at the first test rows, in original units, [S, R]; coherent within each piece of rows."""
        generator = self.generator("joint", self.meter.steps_done if self.meter else 0)
        pieces = torch.split(x[:MOST_JOINT_ROWS], ROWS_PER_DRAW)
        draws = torch.cat([posterior.draw(rows, NUM_JOINT_DRAWS, generator) for rows in pieces], 1)
        return draws.detach().cpu().double() * standard.y_scale + standard.y_mean

    def generator(self, *purpose: object) -> torch.Generator:
        """A stream of its own for each entry, data set, split, repetition and purpose: no two methods share noise."""
        cell = self.cell
        seed = identity.derive_seed(cell.entry, cell.dataset, cell.scheme, cell.split, cell.seed, *purpose)
        return torch.Generator(self.device).manual_seed(seed)

    def clocks(self) -> dict[str, float]:
        """Seconds by activity, and peak memory, for the store."""
        contended = self.train.wall > CONTENTION_FACTOR * self.train.cpu + 0.5
        return {
            "train_seconds": self.meter.elapsed if self.meter else 0.0,
            "wall_seconds": self.train.wall,
            "cpu_seconds": self.train.cpu,
            "setup_seconds": self.setup.wall,
            "setup_cpu_seconds": self.setup.cpu,
            "predict_seconds": self.predict.wall,
            "predict_cpu_seconds": self.predict.cpu,
            "evaluate_seconds": self.evaluate.wall - self.predict.wall,
            "evaluate_cpu_seconds": self.evaluate.cpu - self.predict.cpu,
            "peak_memory_mb": peak_memory_mb(),
            "contended": int(contended and self.device.type == "cpu"),
        }


@functools.lru_cache(maxsize=32)
def _prepared(dataset: str, scheme: str, split: int) -> Prepared:
    """Kept for the cells of an inline run; a cell in a process of its own loads once anyway."""
    return prepare(registry.dataset(dataset), scheme, split)


def build_method(cell: Cell) -> Method:
    cls = registry.method_class(cell.reference)
    method: Method = options.build(cls, cell.method, dict(cell.options))
    return method


def device_named(name: str) -> torch.device:
    """`cpu`, `cuda` or `mps`, or a clear error where the machine has none."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in present:
        raise UsageError(f"unknown device {name!r}; choose cpu, cuda or mps.")
    if not present[name]:
        raise UsageError(f"this machine (or this build of torch) has no {name} device; use --device cpu.")
    return torch.device(name)


def synchronise(device: torch.device) -> None:
    """Wait for queued work, so that a clock read afterwards covers it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def require_distribution(predictive: Predictive) -> None:
    """Refuse what is no distribution, by what is wrong with it."""
    if not bool(torch.isfinite(predictive.loc).all()) or not bool(torch.isfinite(predictive.scale).all()):
        raise Diverged("the predictive distribution is not finite")
    if not bool((predictive.scale > 0).all()):
        raise Diverged("the predictive distribution has a scale that is not positive")


def scalar_trace(posterior: Posterior) -> dict[str, float]:
    """The finite numbers of a posterior's optional `trace()`."""
    trace = getattr(posterior, "trace", None)
    values = trace() if callable(trace) else {}
    numbers = {key: float(value) for key, value in values.items() if not isinstance(value, Tensor) or value.numel() == 1}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def _loaded(prepared: Prepared) -> Loaded:
    return Loaded(
        num_train=len(prepared.train_y),
        num_test=len(prepared.test_y),
        num_inputs=prepared.train_x.shape[1],
        target_scale=prepared.standardiser.y_scale,
    )
