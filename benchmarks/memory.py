"""Highest resident memory of a fit on many rows; each value comes from a process of its own."""

from __future__ import annotations

import torch

from benchmarks import common
from fsibench.contract import Data


class Fit:
    """Some steps on a made-up table of 10 inputs."""

    params = (("bbb", "sip", "vip_collapsed", "svgp", "ensemble"), (10_000, 1_000_000))
    param_names = ("entry", "rows")

    def setup(self, entry: str, rows: int) -> None:
        common.one_thread()
        common.method(entry)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(rows, 10, generator=generator)
        self.train = Data(x, torch.sin(x[:, 0]) + 0.1 * torch.randn(rows, generator=generator))

    def peakmem_fit(self, entry: str, rows: int) -> None:
        for _ in common.pulls(entry, self.train, steps=10):
            pass
