"""The pieces that methods and scores are made of."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks import common
from fsibench import Predictive


class Crps:
    """CRPS of 50 points with 500 components: wide, and narrow beside the distance between components."""

    params = (0.3, 0.001)
    param_names = ("scale",)
    timer = time.process_time

    def setup(self, scale: float) -> None:
        common.one_thread()
        generator = torch.Generator().manual_seed(0)
        loc = torch.randn(500, 50, generator=generator)
        self.predictive = Predictive(loc, torch.full((1, 50), scale))
        self.y = torch.randn(50, generator=generator)

    def time_crps(self, scale: float) -> None:
        self.predictive.crps(self.y)


class Ensemble:
    """CRPS of 1,000 points with 500 values each."""

    timer = time.process_time

    def setup(self) -> None:
        common.one_thread()
        try:
            from fsibench.predictive import crps_ensemble
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        self.crps: Any = crps_ensemble
        generator = torch.Generator().manual_seed(0)
        self.draws, self.y = torch.randn(500, 1000, generator=generator), torch.randn(1000, generator=generator)

    def time_crps_ensemble(self) -> None:
        self.crps(self.draws, self.y)


class Energy:
    """Energy score of 100 groups of 10 points from 100 draws."""

    timer = time.process_time

    def setup(self) -> None:
        common.one_thread()
        try:
            from fsibench import scoring

            draws = torch.randn(100, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            self.groups = scoring.groups(draws, torch.ones(1000, dtype=torch.float64), draws[0])
        except (ImportError, AttributeError) as error:
            raise NotImplementedError(str(error)) from None
        self.score: Any = scoring.energy_score

    def time_energy_score(self) -> None:
        self.score(self.groups)


class Conditional:
    """Mean and variance of f(x) given f(Z): 100 inducing inputs, 10 points, 100 draws, forward and backward."""

    timer = time.process_time

    def setup(self) -> None:
        common.one_thread()
        try:
            from fsibench.blocks.conditionals import gaussian_conditional
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        self.conditional: Any = gaussian_conditional
        generator = torch.Generator().manual_seed(0)
        self.at_x = torch.randn(100, 10, generator=generator, requires_grad=True)
        self.at_z = torch.randn(100, 100, generator=generator, requires_grad=True)
        self.u = torch.randn(100, 100, generator=generator)

    def time_conditional(self) -> None:
        mean, variance = self.conditional(self.at_x, self.at_z, self.u, 1e-3)
        (mean.sum() + variance.sum()).backward()


class Stein:
    """Spectral Stein scores at 15 points from 100 draws."""

    timer = time.process_time

    def setup(self) -> None:
        common.one_thread()
        try:
            from fsibench.blocks.stein import spectral_score
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        self.score: Any = spectral_score
        self.draws = torch.randn(100, 15, generator=torch.Generator().manual_seed(0))

    def time_spectral_score(self) -> None:
        self.score(self.draws)


class Discriminator:
    """One step of the network that tells two sets of 100 draws at 100 points apart."""

    timer = time.process_time

    def setup(self) -> None:
        common.one_thread()
        try:
            from fsibench.blocks import adversarial
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        generator = torch.Generator().manual_seed(0)
        self.network: Any = adversarial.Discriminator(100, generator, 1e-3)
        self.first, self.second = (torch.randn(100, 100, generator=generator) for _ in range(2))

    def time_improve(self) -> None:
        self.network.improve(self.first, self.second, 0.5)
