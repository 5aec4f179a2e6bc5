"""When a running cell is looked at, and on how many test rows.

Looks are at shared log-spaced instants of training. They are off the clock but still cost time, so looks
before the end use at most `ROWS_PER_LOOK` test rows, the same ones for every entry, and in a time budget a look that
would bring their cost above `LOOK_SHARE` of it is left out. Two looks are always taken and can exceed that share: the
first, whose cost is not known beforehand, and the last, on every row. In a step budget no look is skipped, so that
equal seeds give equal rows. Each look says how many rows it used.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsibench.contract import Meter
from fsibench.harness.identity import derive_seed

# First evaluation instant in training seconds; further ones follow at equal ratios, shared by all entries.
FIRST_INSTANT = 0.1
LOOK_SHARE = 0.1
ROWS_PER_LOOK = 1000


class Schedule:
    """Instants `first · 10^(k / per_decade)` of training, in seconds or in steps."""

    def __init__(self, meter: Meter, per_decade: int) -> None:
        self._meter = meter
        self._first = FIRST_INSTANT if meter.seconds is not None else 1.0
        self._per_decade = per_decade
        self._passed = 0  # instants so far
        self._next = self._first
        self._spent = self._latest = 0.0  # seconds of all looks, and of the latest

    def due(self) -> bool:
        """Whether an instant has passed since the last look, and a look at it can be paid for."""
        now = self._meter.elapsed if self._meter.seconds is not None else self._meter.steps_done
        if now < self._next:
            return False
        while self._next <= now:
            self._passed += 1
            self._next = self._first * 10.0 ** (self._passed / self._per_decade)
        return self._affordable()

    def paid(self, seconds: float) -> None:
        """What the look that was just taken has cost."""
        self._latest = seconds
        self._spent += seconds

    def _affordable(self) -> bool:
        """Each instant adds an equal part of the share; the first look, whose cost is unknown, is always taken."""
        if self._meter.seconds is None:
            return True
        num_instants = 1 + int(self._per_decade * math.log10(max(self._meter.seconds / self._first, 1.0)))
        part = LOOK_SHARE * self._meter.seconds / num_instants
        return self._spent == 0.0 or self._spent + self._latest <= part * self._passed


def rows_for_looks(num_test: int, dataset: str, scheme: str, split: int) -> Tensor | None:
    """The test rows of a look before the end, a function of the split alone; None for all of them."""
    if num_test <= ROWS_PER_LOOK:
        return None
    generator = torch.Generator().manual_seed(derive_seed("rows of a look", dataset, scheme, split))
    return torch.randperm(num_test, generator=generator)[:ROWS_PER_LOOK].sort().values
