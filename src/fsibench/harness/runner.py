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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from fsibench import registry
from fsibench.contract import Data, Meter, Method, Posterior, posteriors
from fsibench.data import Prepared, Standardiser, prepare
from fsibench.errors import Diverged, Mismatch, UsageError, told
from fsibench.harness import hardest, identity, panels, predictives, processes
from fsibench.harness.events import Artifact, Evaluation, Finished, Loaded, Report
from fsibench.harness.plan import Cell
from fsibench.harness.planned import build_method, refuse_what_was_not_planned
from fsibench.harness.schedule import Schedule, ScoredRows
from fsibench.harness.speed import ReferenceClock
from fsibench.metrics import Prediction, left_out, score
from fsibench.predictive import Predictive, concatenate
from fsibench.references import Reference
from fsibench.scoring import MOST_ROWS, NUM_JOINT_DRAWS, pit_counts

# Test rows per call of `predict`: 500 components x 1000 rows x 50 hidden units are 100 MB in float32.
ROWS_PER_PREDICT = 1000
# Test rows per call of `draw` for joint scores, a multiple of their groups: exact draws of a process cost its cube.
ROWS_PER_DRAW = 200
# A cell whose training took this many times its CPU time shared its core with something else.
CONTENTION_FACTOR = 1.25
# Flags of an entry: other threads or processes of it used this much CPU time while training was paused, more than
# this share of the pauses; or predicting one row costs more than this many steps, and more than this many seconds.
PAUSED_SECONDS, PAUSED_SHARE = 0.05, 0.02
SEVERAL_STEPS, COSTLY_SECONDS = 10.0, 0.02


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


class FamilyClock:
    """CPU seconds of this process and of what it started: a child process costs its method what it uses.

    Children are looked up at most every `LOOK_UP_EVERY` seconds, since a step may be much shorter than a look-up.
    """

    LOOK_UP_EVERY = 0.02

    def __init__(self) -> None:
        self._below = 0.0
        self._looked_up = -1.0

    def __call__(self) -> float:
        now = time.perf_counter()
        if now - self._looked_up > self.LOOK_UP_EVERY:
            self._below = processes.family_cpu_seconds() - time.process_time()
            self._looked_up = now
        return time.process_time() + self._below


def clock_named(name: str) -> Callable[[], float]:
    """What a budget in seconds counts."""
    if name == "wall":
        return time.perf_counter
    return FamilyClock() if name == "cpu" else ReferenceClock(FamilyClock())


def run_cell(cell: Cell, emit: Emit) -> None:
    """Run one cell to its end. Every outcome is reported; only interrupts are raised."""
    started = time.perf_counter()
    run = _Run(cell, emit)
    status, message, trace = "ok", None, None
    try:
        run.go()
        message = left_out(run.metric_faults)
    except (Diverged, LinAlgError) as error:
        status, message = "diverged", f"{type(error).__name__}: {error}"
    except Mismatch as error:
        status, message = "lost", str(error)  # not final: another worker, or the next plan, can run it
    except UsageError as error:
        status, message = "error", str(error)
    except MemoryError as error:
        status, message, trace = "oom", f"MemoryError: {error}", traceback.format_exc()
    except Exception as error:  # noqa: BLE001 (whatever a method raises becomes a status)
        status, message, trace = "error", told(error), traceback.format_exc()
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
        self.paused_cpu = self.one_row_seconds = 0.0
        self.predicted_rows = 0
        self.looked = (0, False)  # step of the latest look, and whether it was the last
        self.seen: Prediction | None = None  # what the latest look saw, where it saw the rows of the last one
        self.inducing: list[dict[str, Any]] = []
        self.metric_faults: dict[str, str] = {}
        self.reference: Reference | None = None

    def go(self) -> None:
        cell = self.cell
        with self.setup:
            self.device = device_named(cell.device)
            method = build_method(cell)
            dataset = registry.dataset(cell.dataset)
            refuse_what_was_not_planned(cell, method, dataset)
            # Loaded anew for every cell: nothing that a method does to its rows reaches another one.
            prepared = prepare(dataset, cell.scheme, cell.split)
            train = Data(self._tensor(prepared.train_x), self._tensor(prepared.train_y))
            self.reference = dataset.reference()
            self.emit(_loaded(prepared))
        last = self._pull(method, train, *ScoredRows.of_looks(cell, prepared, self.device))
        if self.keeps_functions(prepared):
            content = panels.payload(last, prepared, dataset, self.inducing, self.generator("functions"))
            self.emit(Artifact("functions", content if "functions" in self.cell.keep else panels.small(content)))

    def keeps_functions(self, prepared: Prepared) -> bool:
        """Sets with one or two inputs can be drawn: a small payload of the first split, all of it where it is asked for."""
        wanted = "functions" in self.cell.keep or self.cell.split == 0
        return wanted and prepared.train_x.shape[1] in (1, 2)

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _pull(self, method: Method, train: Data, before: ScoredRows, at_end: ScoredRows) -> Posterior:
        """Pull `fit` until the budget is spent, looking when due and at the end; returns the last posterior."""
        clock = clock_named(self.cell.clock)
        self.meter = meter = Meter(self.cell.seconds, self.cell.steps, clock)
        schedule = Schedule(meter, self.cell.per_decade)
        posterior: Posterior | None = None
        fits = posteriors(method, train, meter.budget, self.generator("fit"))
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
                synchronise(self.device)
                meter.stop()
            if not meter.steps_done:
                raise UsageError(f"{self.cell.entry} ended without a posterior; `fit` must yield at least once.")
            # A look is repeated where the fit turned out to be at its end: the last one has all metrics and more rows.
            if self.looked != (meter.steps_done, not training):
                self.seen = self.seen if self.looked[0] == meter.steps_done else None
                paid = self._looking_seconds()
                test = before if training else at_end
                self._look(_checked(posterior, self.cell.entry), test, not training, reusable=test is at_end)
                self.looked = (meter.steps_done, not training)
                schedule.paid(self._looking_seconds() - paid)
                if isinstance(clock, ReferenceClock):
                    clock.measure_again()
        assert posterior is not None
        return posterior

    def _looking_seconds(self) -> float:
        """What looks have cost by the clock of the budget."""
        return self.evaluate.wall if self.cell.clock == "wall" else self.evaluate.cpu

    def _look(self, posterior: Posterior, test: ScoredRows, last: bool, reusable: bool) -> None:
        assert self.meter is not None
        standard = test.prepared.standardiser
        others = _cpu_of_others()
        with self.evaluate, torch.no_grad():
            if last:
                self.one_row_seconds = self._cost_of_one_row(posterior, test.x[:1])
            prediction = self.seen or self._prediction(posterior, test)
            self.seen = prediction if reusable else None
            self.emit(
                Evaluation(
                    step=self.meter.steps_done,
                    num_rows=len(test),
                    train_seconds=self.meter.elapsed,
                    wall_seconds=self.train.wall,
                    cpu_seconds=self.train.cpu,
                    scores=score(prediction, last, self.metric_faults),
                    pit=pit_counts(prediction.pit),
                    trace=scalar_trace(posterior),
                )
            )
            if last:
                self.emit(Artifact("hardest", hardest.payload(prediction, test.prepared, test.chosen)))
            if last and "predictives" in self.cell.keep:
                kept = predictives.payload(prediction.predictive, prediction.y, standard.y_scale, standard.y_mean)
                self.emit(Artifact("predictives", kept))
            if self.keeps_functions(test.prepared):
                z = panels.inducing_inputs(posterior, standard)
                self.inducing += [] if z is None else [{"train_seconds": self.meter.elapsed, "z": z}]
        self.paused_cpu += max(0.0, _cpu_of_others() - others)

    def _prediction(self, posterior: Posterior, test: ScoredRows) -> Prediction:
        standard = test.prepared.standardiser
        with self.predict:
            predictive = self._predict(posterior, test.x)
        predictive = predictive.double().rescale(standard.y_scale, standard.y_mean)
        require_distribution(predictive)
        draws = functools.partial(self._functions, posterior, test.x, standard)
        return Prediction(predictive, test.y.double(), draws, self.reference)

    def _predict(self, posterior: Posterior, x: Tensor) -> Predictive:
        assert self.meter is not None
        generator = self.generator("evaluate", self.meter.steps_done)
        parts = [posterior.predict(rows, generator) for rows in torch.split(x, ROWS_PER_PREDICT)]
        synchronise(self.device)
        for part in parts:
            if not isinstance(part, Predictive):
                raise UsageError(f"`predict` of {self.cell.entry} returned {_kind(part)}; it must return a Predictive.")
        predictive = concatenate(parts)
        if predictive.num_points != len(x):
            raise UsageError(f"{self.cell.entry} predicted {predictive.num_points} points for {len(x)} test rows.")
        self.predicted_rows += len(x)
        return predictive

    def _functions(self, posterior: Posterior, x: Tensor, standard: Standardiser) -> Tensor:
        """Coherent draws at the first test rows, in original units, [S, R]; coherent within each piece of rows."""
        generator = self.generator("joint", self.meter.steps_done if self.meter else 0)
        pieces = torch.split(x[:MOST_ROWS], ROWS_PER_DRAW)
        draws = torch.cat([posterior.draw(rows, NUM_JOINT_DRAWS, generator) for rows in pieces], 1)
        return draws.detach().cpu().double() * standard.y_scale + standard.y_mean

    def _cost_of_one_row(self, posterior: Posterior, x: Tensor) -> float:
        """CPU seconds of predicting one row: work that belongs into `fit` shows here."""
        started = time.process_time()
        posterior.predict(x, self.generator("one row"))
        synchronise(self.device)
        return time.process_time() - started

    def generator(self, *purpose: object) -> torch.Generator:
        """A stream of its own for each entry, data set, split, repetition and purpose: no two methods share noise."""
        cell = self.cell
        seed = identity.derive_seed(cell.entry, cell.dataset, cell.scheme, cell.split, cell.seed, *purpose)
        return torch.Generator(self.device).manual_seed(seed)

    def clocks(self) -> dict[str, Any]:
        """Seconds by activity, peak memory and flags, for the store."""
        contended = self.train.wall > CONTENTION_FACTOR * self.train.cpu + 0.5
        return {
            "train_seconds": self.meter.elapsed if self.meter else 0.0,
            "wall_seconds": self.train.wall,
            "cpu_seconds": self.train.cpu,
            "setup_seconds": self.setup.wall,
            "setup_cpu_seconds": self.setup.cpu,
            "predict_seconds": self.predict.wall,
            "predict_cpu_seconds": self.predict.cpu,
            "predict_rows": self.predicted_rows,
            "evaluate_seconds": self.evaluate.wall - self.predict.wall,
            "evaluate_cpu_seconds": self.evaluate.cpu - self.predict.cpu,
            "paused_cpu_seconds": self.paused_cpu,
            "peak_memory_mb": peak_memory_mb(),
            "contended": int(contended and self.device.type == "cpu"),
            "flags": ",".join(self.flags()),
        }

    def flags(self) -> list[str]:
        """Reasons to doubt the times of an entry: work that it does while the clock is stopped."""
        found = []
        if self.paused_cpu > max(PAUSED_SECONDS, PAUSED_SHARE * self.evaluate.wall) and torch.get_num_threads() == 1:
            found.append("works_while_paused")
        step = self.train.cpu / max(self.meter.steps_done if self.meter else 0, 1)
        if self.one_row_seconds > max(COSTLY_SECONDS, SEVERAL_STEPS * step):
            found.append("costly_predict")
        return found


def _checked(posterior: object, entry: str) -> Posterior:
    if not isinstance(posterior, Posterior):
        raise UsageError(f"`fit` of {entry} yielded {_kind(posterior)}; a posterior has `predict` and `draw`.")
    return posterior


def _kind(thing: object) -> str:
    return "None" if thing is None else f"an object of type {type(thing).__name__}"


def _cpu_of_others() -> float:
    """CPU seconds of every thread but this one, and of every child."""
    return processes.family_cpu_seconds() - time.thread_time()


def device_named(name: str) -> torch.device:
    """`cpu`, `cuda` or `mps`, or a clear error where the machine has none."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name not in present:
        raise UsageError(f"unknown device {name!r}; choose cpu, cuda or mps.")
    if not present[name]:
        raise UsageError(f"this machine (or this build of torch) has no {name} device; use cpu.")
    return torch.device(name)


def synchronise(device: torch.device) -> None:
    """Wait for queued work, so that a clock read afterwards covers it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def require_distribution(predictive: Predictive) -> None:
    """Refuse what is no distribution, by what is wrong with it."""
    fault = predictive.fault()
    if fault is not None:
        raise Diverged(f"the predictive distribution {fault}")


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
