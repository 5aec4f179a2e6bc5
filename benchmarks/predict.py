"""What a prediction costs: against the number of rows, and against the number of draws."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks import common

ENTRIES = ("sip", "aadm", "bbb", "vip_collapsed", "fbnn", "ensemble", "laplace", "tfsvi", "dvip", "linear")


def posterior(entry: str) -> Any:
    """After one pull on boston."""
    common.one_thread()
    return next(common.pulls(entry, common.training(common.prepared("boston", 0)), steps=10))


def inputs(rows: int) -> torch.Tensor:
    return torch.randn(rows, 13, generator=torch.Generator().manual_seed(0))


class Rows:
    """p(y | x) at so many rows, draws as the entry has them."""

    params = (ENTRIES, (10, 1_000))
    param_names = ("entry", "rows")
    timer = time.process_time

    def setup(self, entry: str, rows: int) -> None:
        self.posterior, self.x = posterior(entry), inputs(rows)
        self.generator = torch.Generator().manual_seed(1)
        self.time_predict(entry, rows)

    def time_predict(self, entry: str, rows: int) -> None:
        with torch.no_grad():
            self.posterior.predict(self.x, self.generator)


class Draws:
    """Coherent functions at 100 rows."""

    params = (("sip", "bbb", "vip_collapsed", "ensemble"), (10, 500))
    param_names = ("entry", "draws")
    timer = time.process_time

    def setup(self, entry: str, draws: int) -> None:
        self.posterior, self.x = posterior(entry), inputs(100)
        self.generator = torch.Generator().manual_seed(1)
        self.time_draw(entry, draws)

    def time_draw(self, entry: str, draws: int) -> None:
        with torch.no_grad():
            self.posterior.draw(self.x, draws, self.generator)
