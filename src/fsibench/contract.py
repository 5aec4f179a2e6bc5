"""The whole contract on one screen: what a method gets, what it gives back.

A method is a frozen dataclass whose fields are its options. Its `fit` is a generator of improving posteriors: one
unit of work, one `yield`. The harness decides when to look, when to stop and how to score; no method contains any
of that.

Everything a method sees is standardised on the training rows, float32, and on one device. Randomness enters only
through the generators that are passed in.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from fsibench.errors import UsageError
from fsibench.predictive import Predictive

# Above this many rows an epoch is no longer walked in one permutation: a permutation of millions of rows would make
# the first step of each epoch slow, so rows are drawn uniformly with replacement instead.
LARGEST_PERMUTATION = 100_000


@dataclass(frozen=True)
class Data:
    """Training rows: x of shape [N, D], y of shape [N]; standardised, float32, possibly memory-mapped."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return self.y.shape[0]

    @property
    def num_inputs(self) -> int:
        return self.x.shape[1]

    def rows(self, index: Tensor) -> Data:
        """Some of the rows, by number."""
        return Data(self.x[index], self.y[index])

    def held_out(self, generator: torch.Generator, share: float = 0.2, at_most: int | None = None) -> tuple[Data, Data]:
        """That share of the rows, drawn at random, to choose by, and the others to learn from; at least one of each, a single row is both."""
        if len(self) < 2:
            return self, self
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        count = min(max(1, round(share * len(self))), len(self) - 1, at_most or len(self))
        return self.rows(order[:count]), self.rows(order[count:])

    def batches(self, batch_size: int, generator: torch.Generator) -> Iterator[Data]:
        """Minibatches without end: every epoch a fresh permutation, the short last batch kept.

        Beyond `LARGEST_PERMUTATION` rows: independent uniform rows, so that the cost per batch does not grow with N.
        """
        num_data = len(self)
        if num_data > LARGEST_PERMUTATION:
            while True:
                rows = torch.randint(num_data, (64, batch_size), generator=generator, device=generator.device)
                for index in rows:
                    yield self.rows(index)
        while True:
            order = torch.randperm(num_data, generator=generator, device=generator.device)
            x, y = self.x[order], self.y[order]
            for start in range(0, num_data, batch_size):
                yield Data(x[start : start + batch_size], y[start : start + batch_size])


class Budget:
    """How much work is allowed, and how much of it is spent: what a method sees, read-only.

    Either `seconds` of training or `steps` (pulls of `fit`) is given. `fraction` runs from 0 to 1, so warm-ups and
    learning-rate schedules need no epoch count. In a step budget it moves only when `fit` yields: a loop before the
    first `yield` must not wait for it. Evaluation costs no training second.

    A budget made by hand counts the seconds since it was made; `Meter` makes one that somebody counts for.
    """

    __slots__ = ("_spent", "seconds", "steps")
    seconds: float | None
    steps: int | None
    _spent: Callable[[], tuple[float, int]]

    def __init__(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        spent: Callable[[], tuple[float, int]] | None = None,
    ) -> None:
        if (seconds is None) == (steps is None):
            raise ValueError("a budget is either seconds or steps; give exactly one of them")
        limit = seconds if seconds is not None else steps
        assert limit is not None
        if not limit > 0:
            raise ValueError(f"a budget must be positive, got {limit}")
        made = time.perf_counter()
        for name, value in (
            ("seconds", seconds),
            ("steps", steps),
            ("_spent", spent or (lambda: (time.perf_counter() - made, 0))),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a budget is read-only; `{name}` cannot be set: the harness counts, a method only asks")

    @property
    def elapsed(self) -> float:
        """Training seconds so far."""
        return self._spent()[0]

    @property
    def steps_done(self) -> int:
        """Pulls of `fit` that have ended."""
        return self._spent()[1]

    @property
    def fraction(self) -> float:
        """Share of the budget that is spent, from 0 to 1."""
        elapsed, steps_done = self._spent()
        if self.seconds is not None:
            return min(elapsed / self.seconds, 1.0)
        assert self.steps is not None
        return min(steps_done / self.steps, 1.0)

    @property
    def exhausted(self) -> bool:
        return self.fraction >= 1.0

    @property
    def in_last_pull(self) -> bool:
        """Asked at the end of a pull, before its `yield`: whether the budget ends with it."""
        return self.exhausted if self.steps is None else self.steps_done + 1 >= self.steps


class Meter:
    """Counts for a budget: whoever pulls `fit` starts, stops and counts; the method gets `budget`, which only reads.

    The limits are kept here as well, so nothing that a method does to its budget moves the end of a fit.
    """

    def __init__(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.budget = Budget(seconds, steps, lambda: (self.elapsed, self.steps_done))
        self.seconds = seconds
        self.steps = steps
        self.steps_done = 0
        self._clock = clock
        self._spent = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """Training goes on."""
        self._started = self._clock()

    def stop(self) -> None:
        """Training pauses."""
        if self._started is not None:
            self._spent += self._clock() - self._started
            self._started = None

    @property
    def elapsed(self) -> float:
        """Training seconds so far."""
        running = 0.0 if self._started is None else self._clock() - self._started
        return self._spent + running

    @property
    def exhausted(self) -> bool:
        if self.seconds is not None:
            return self.elapsed >= self.seconds
        assert self.steps is not None
        return self.steps_done >= self.steps

    def pulls(self, method: Method, train: Data, generator: torch.Generator) -> Generator[Posterior, None, None]:
        """The posteriors of a fit until the budget is spent; the clock stands still while the caller has one."""
        self.start()
        for posterior in posteriors(method, train, self.budget, generator):
            self.steps_done += 1
            self.stop()
            yield posterior
            if self.exhausted:
                return
            self.start()


@runtime_checkable
class Posterior(Protocol):
    """What a fit yields: a live view of the current state, valid until the next pull.

    Optional, found by name: `draw_prior(x, num_draws, generator) -> Tensor [S, N]`, draws of the (learned) prior;
    `trace() -> dict[str, float | Tensor]`, whatever explains the fit (loss, kl, noise, inducing inputs, R-hat).
    """

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        """p(y | x) at each row of x [N, D], observation noise included: a mixture, or values."""
        ...

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Coherent functions f_s(x), noise not included, of shape [num_draws, N]."""
        ...


@dataclass(frozen=True)
class Between:
    """A range of numbers to search, both ends included; whole numbers where both ends are. `log`: evenly in its logarithm."""

    low: float
    high: float
    log: bool = False


Space = Mapping[str, Between | tuple[Any, ...]]  # option -> a range, or the values to choose from


@dataclass(frozen=True)
class Method(abc.ABC):
    """Base of every method. Subclasses are frozen dataclasses: options are the fields.

    `name` is what users type. `paper` is the citation. `note` is shown wherever the method is listed or ranked
    (for example "reconstruction"). `reproduces` is the column of the published table that the method answers for,
    and `variant` says in one line how its objective differs from that of the paper; empty when it does not. A variant
    is shown beside its column and gets no verdict. Where these depend on options, a method overrides
    `published_column` and `departure`. `presets` are named sets of option values: `sip[preset=paper]`.
    `search` names the options that `fsibench tune` may change, each with a range or a tuple of choices: what the paper leaves
    open, weights and priors of its objective among them, and not what makes it another objective. `max_rows` is the largest
    training set the method is meant for; a plan leaves it out of larger ones and says so.
    `requires` names modules of optional packages; without them a plan leaves the method out and says so, and with
    them they are imported before the clock starts. `waivers` names contract checks that do not apply, each with a
    reason, which `fsibench check` prints: {"different_seeds_differ": "exact: nothing is random"}.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    note: ClassVar[str] = ""
    reproduces: ClassVar[str] = ""
    variant: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    search: ClassVar[Space] = {}
    max_rows: ClassVar[int | None] = None
    requires: ClassVar[tuple[str, ...]] = ()
    waivers: ClassVar[Mapping[str, str]] = {}

    @abc.abstractmethod
    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        """Yield a posterior after each unit of work, for ever or until nothing can improve.

        Exact methods yield once. Pre-training happens before the first yield and is on the clock.
        Raise `fsibench.errors.Diverged` when the numbers are no longer finite.
        """

    def parts(self) -> tuple[type[Method], ...]:
        """The classes whose code decides what this entry does: its own, and those of methods that it runs."""
        return (type(self),)

    def published_column(self) -> str:
        """The published column that this entry, with these options, answers for; empty for none."""
        return self.reproduces

    def departure(self) -> str:
        """How the objective of this entry, with these options, differs from the published one; empty if it does not."""
        return self.variant


def posteriors(method: Method, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
    """What `fit` yields; a `fit` that returns something else is told so."""
    fits = method.fit(train, budget, generator)
    if not isinstance(fits, Iterable):
        kind = "None" if fits is None else f"an object of type {type(fits).__name__}"
        raise UsageError(f"`fit` of {method.name} returned {kind}; it must `yield` posteriors, also if there is only one.")
    return iter(fits)
