"""The stated prior of the reference posteriors: a small Bayesian network with fixed scales. Nothing of it is learned."""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.blocks.priors.bnn import BNNPrior

HIDDEN_UNITS = 20


class ReferencePrior(BNNPrior):
    """f(x) = c + Σ_h v_h tanh(w_hᵀx + b_h) with w ~ N(0, 1/D), b ~ N(0, 1), v ~ N(0, 1/20), c ~ N(0, 1), 20 units."""

    def __init__(
        self, num_inputs: int, generator: torch.Generator, dtype: torch.dtype = torch.float32, units: int = HIDDEN_UNITS
    ) -> None:
        super().__init__(
            num_inputs, generator, hidden=(units,), mean_scale=0.0, log_scale=None, bias_scale=0.0, dtype=dtype,
            nonlinearity="tanh", bias_log_scale=0.0,
        )  # fmt: skip

    @property
    def parameters(self) -> list[Tensor]:
        return []
