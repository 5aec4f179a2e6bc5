"""Time and memory of the pieces every run uses: CRPS of a mixture, loading a bundled set, a step of `bbb`."""

from __future__ import annotations

import torch

from fsibench import Budget, Predictive, registry
from fsibench.contract import Data
from fsibench.data import prepare


class Crps:
    """CRPS of 1000 points with 500 components each."""

    def setup(self) -> None:
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(0)
        loc = torch.randn(500, 1000, generator=generator)
        self.predictive = Predictive(loc, torch.full((1, 1000), 0.3))
        self.y = torch.randn(1000, generator=generator)

    def time_crps(self) -> None:
        self.predictive.crps(self.y)

    def peakmem_crps(self) -> None:
        self.predictive.crps(self.y)


class Loading:
    """A bundled set, split and standardised."""

    params = ("boston", "power")
    param_names = ("dataset",)

    def setup(self, dataset: str) -> None:
        self.dataset = registry.dataset(dataset)

    def time_prepare(self, dataset: str) -> None:
        prepare(self.dataset, "paper", 0)


class BayesByBackprop:
    """One hundred steps of `bbb` on boston, after a warm-up step that pays for lazy imports."""

    def setup(self) -> None:
        torch.set_num_threads(1)
        prepared = prepare(registry.dataset("boston"), "paper", 0)
        data = Data(torch.from_numpy(prepared.train_x), torch.from_numpy(prepared.train_y))
        method = registry.entry("bbb").method
        self.fits = iter(method.fit(data, Budget(steps=10**9), torch.Generator().manual_seed(0)))
        next(self.fits)

    def time_hundred_steps(self) -> None:
        for _ in range(100):
            next(self.fits)
