"""When a running cell is looked at, and on how many test rows.

Looks are at shared log-spaced instants of training. They are off the clock but still cost time, and are meant to cost
at most a tenth of a budget in seconds. The last look scores as many rows as the plan says, a function of the budget
(`plan.most_test_rows`); looks before it at most `ROWS_PER_LOOK`. Rows are the first of one permutation of the test
rows, so that all entries of a comparison are scored on the same ones, and fewer rows are among more. Looks before the
end share `LOOK_SHARE` of the budget, about half of that tenth: one that would exceed it is left out. Two looks are
always taken: the first, whose cost is not known beforehand, and the last. In a step budget no look is skipped, so that
equal seeds give equal rows. Each look says how many rows it used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.contract import Meter
from fsibench.data import Prepared
from fsibench.harness.identity import derive_seed
from fsibench.harness.plan import Cell

# First evaluation instant in training seconds; further ones follow at equal ratios, shared by all entries.
FIRST_INSTANT = 0.1
LOOK_SHARE = 0.05
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


def chosen_rows(num_test: int, at_most: int | None, dataset: str, scheme: str, split: int) -> Tensor | None:
    """The first `at_most` rows of a permutation that belongs to the split; None for all of them, in their own order."""
    if at_most is None or num_test <= at_most:
        return None
    generator = torch.Generator().manual_seed(derive_seed("rows of a look", dataset, scheme, split))
    return torch.randperm(num_test, generator=generator)[:at_most]


@dataclass(frozen=True)
class ScoredRows:
    """Test rows of a look, standardised: all of them, or some."""

    x: Tensor
    y: Tensor
    prepared: Prepared
    chosen: Tensor | None  # their numbers among the test rows

    @classmethod
    def of(cls, cell: Cell, prepared: Prepared, device: torch.device, at_most: int | None) -> ScoredRows:
        rows = chosen_rows(len(prepared.test_y), at_most, cell.dataset, cell.scheme, cell.split)
        x, y = torch.from_numpy(prepared.test_x).to(device), torch.from_numpy(prepared.test_y)
        return cls(x, y, prepared, None) if rows is None else cls(x[rows.to(device)], y[rows], prepared, rows)

    @classmethod
    def of_looks(cls, cell: Cell, prepared: Prepared, device: torch.device) -> tuple[ScoredRows, ScoredRows]:
        """Those of looks before the end, and those of the last one; the same object where they are equal."""
        last = cls.of(cell, prepared, device, cell.test_rows)
        return (last if len(last) <= ROWS_PER_LOOK else cls.of(cell, prepared, device, ROWS_PER_LOOK)), last

    def __len__(self) -> int:
        return len(self.y)
