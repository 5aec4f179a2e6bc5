"""Seconds that mean the same on every machine: CPU seconds times the speed of the machine beside a reference.

A CPU second of a fast processor has more steps than one of a slow processor, and fewer when the other thread of its core is
busy. So results of several machines, or of one that had other work, cannot be pooled by CPU seconds. The clock `reference` counts
CPU seconds in units of a fixed kernel, which runs in the cell itself: before training, and again at every look, off the clock.

The kernel is half a batched matrix product and half small operations, since that is what training steps consist of. What remains is
that methods differ in their shares of the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

# CPU seconds of the kernel on the reference machine: by definition.
KERNEL_SECONDS = 2e-3
NUM_SMALL = 300
FIRST_SECONDS, NEXT_SECONDS = 0.3, 0.05
# How much of the speed of the moments before stays in a new measurement, which is short.
MEMORY = 0.5


def kernel(left: Tensor, right: Tensor, small: Tensor) -> None:
    """A batched product of the size that dominates a step of SIP, and about as much time of operations on small tensors."""
    torch.bmm(left, right)
    for _ in range(NUM_SMALL // 3):
        small = torch.tanh(small * 0.5 + 0.1)


def measured(at_least: float) -> float:
    """Speed of this process now, beside the reference: median over so many CPU seconds, at least three kernels."""
    times: list[float] = []
    tensors = torch.ones(100, 110, 50), torch.ones(100, 50, 50), torch.ones(10, 50)
    while sum(times) < at_least or len(times) < 3:
        start = time.process_time()
        kernel(*tensors)
        times.append(time.process_time() - start)
    return KERNEL_SECONDS / sorted(times)[len(times) // 2]


class ReferenceClock:
    """Seconds of the reference machine, from a clock that counts CPU seconds of this one."""

    def __init__(self, cpu: Callable[[], float], speed: Callable[[float], float] = measured) -> None:
        self._cpu, self._measured = cpu, speed
        self.speed = speed(FIRST_SECONDS)
        self._last, self._total = cpu(), 0.0

    def __call__(self) -> float:
        now = self._cpu()
        self._total += self.speed * (now - self._last)
        self._last = now
        return self._total

    def measure_again(self) -> None:
        """Between two pulls: the machine may have become slower or faster."""
        self()
        self.speed = MEMORY * self.speed + (1.0 - MEMORY) * self._measured(NEXT_SECONDS)
        self._last = self._cpu()
