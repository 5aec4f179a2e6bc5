"""CPU time of a training step: every entry at its defaults and at the settings of its paper."""

from __future__ import annotations

import time

from benchmarks import common

WARM_UP_STEPS = 20


class Step:
    """One step on boston, batches as the entry has them."""

    params = (*common.DEFAULTS, *common.PAPER)
    param_names = ("entry",)

    def setup(self, entry: str) -> None:
        self.steps = common.Steps(entry, WARM_UP_STEPS)

    def timer(self) -> float:
        """CPU time without that of starts: a fit may end by itself, and prepare before its first step."""
        return self.steps.clock()

    def time_step(self, entry: str) -> None:
        self.steps.step()


class Fit:
    """A whole fit of what is exact, on boston."""

    params = common.EXACT
    param_names = ("entry",)
    timer = time.process_time

    def setup(self, entry: str) -> None:
        common.one_thread()
        self.train = common.training(common.prepared("boston", 0))
        self.time_fit(entry)

    def time_fit(self, entry: str) -> None:
        for _ in common.pulls(entry, self.train, steps=100):
            pass
