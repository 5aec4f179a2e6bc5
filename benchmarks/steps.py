"""CPU time of a training step, in milliseconds and in units of a batched matrix product."""

from __future__ import annotations

import torch

from fsibench.blocks.allocator import keep_freed_memory
from fsibench.harness import step_costs

# What has a limit, and the defaults that are not among them.
ENTRIES = (*step_costs.LIMITS, "vip", "vip_collapsed", "fbnn", "fbnn_moments")


class Step:
    """Ten steps of each entry on boston, after warm-up."""

    params = ENTRIES
    param_names = ("entry",)

    def setup(self, entry: str) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self.steps = step_costs.training_steps(entry)
        for _ in range(step_costs.WARM_UP_STEPS):
            next(self.steps)

    def time_ten_steps(self, entry: str) -> None:
        for _ in range(10):
            next(self.steps)

    def peakmem_ten_steps(self, entry: str) -> None:
        for _ in range(10):
            next(self.steps)


class InKernelUnits:
    """The same relative to T, measured in the same run: comparable across machines."""

    params = ENTRIES
    param_names = ("entry",)
    unit = "T"

    def track_step(self, entry: str) -> float:
        (row,) = step_costs.measure([entry])
        return float(row["in_T"])
