"""The stated prior of the reference problems with a Gaussian process: a fixed kernel. Nothing of it is learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsibench.blocks.kernels import GaussianProcess
from fsibench.blocks.priors.gp import GaussianProcessPrior

NUM_FEATURES = 500


def reference_process(num_inputs: int, noise: float = 0.1, like: Tensor | None = None) -> GaussianProcess:
    """GP(0, exp(−|x − x'|²/(2 D))): unit variance, and as lengthscale the typical distance of standardised inputs."""
    device = None if like is None else like.device
    numbers = torch.tensor([math.sqrt(num_inputs)] * num_inputs + [1.0, noise], dtype=torch.float64, device=device)
    return GaussianProcess(numbers[:-2], numbers[-2], numbers[-1])


class ReferenceProcess(GaussianProcessPrior):
    """f ~ GP(0, exp(−|x − x'|²/(2 D))) on standardised rows; through more features than `gp` where functions have to stay functions."""

    def __init__(
        self, num_inputs: int, generator: torch.Generator, num_features: int = NUM_FEATURES, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(num_inputs, generator, num_features, dtype)
        fixed = reference_process(num_inputs, like=self.phases)
        self.log_scales = torch.cat([fixed.lengthscales, fixed.signal[None]]).log().to(self.phases)

    @property
    def parameters(self) -> list[Tensor]:
        return []
