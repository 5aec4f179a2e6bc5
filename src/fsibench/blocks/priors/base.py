"""What a prior is: a distribution over functions, known by its draws."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable

import torch
from torch import Tensor

from fsibench.blocks.conditionals import Conditional, gaussian_conditional
from fsibench.blocks.draws import PREDICTION_ROWS, by_rows
from fsibench.blocks.evidence import fit_by_evidence
from fsibench.blocks.linalg import JITTER
from fsibench.blocks.networks import DropoutMasks
from fsibench.errors import UsageError


class Prior(abc.ABC):
    """A distribution over functions of one output.

    A prior draws noise once and is then an ordinary function of its inputs: the same noise gives the same functions at
    any inputs, and gradients reach both the inputs and the prior's parameters.
    """

    @property
    @abc.abstractmethod
    def parameters(self) -> list[Tensor]:
        """Leaf tensors to train; empty when the prior is fixed."""

    @abc.abstractmethod
    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """What makes one draw differ from another, of shape [S, ...]."""

    @abc.abstractmethod
    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        """f_s(x) for the functions that belong to `noise`: x [N, D] -> [S, N]; differentiable."""

    def functions_at(
        self, x: Tensor, z: Tensor, noise: Tensor, dropout: DropoutMasks | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same functions at data x and at z, in one pass: [S, N] and [S, M]. Gradients need to reach z only."""
        f = self.functions(torch.cat([x, z]), noise, dropout)
        f_x, f_z = torch.split_with_sizes(f, [len(x), len(z)], 1)
        return f_x, f_z

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Fresh functions at x: [S, N]."""
        noise = self.draw_noise(num_draws, generator)
        return by_rows(lambda rows: self.functions(rows, noise), x, PREDICTION_ROWS)

    def moments(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Mean m [N] and features Φ [N, K] with covariance ΦΦᵀ, estimated from the functions that belong to `noise`."""
        return sample_moments(self.functions(x, noise))

    def log_hyperprior(self, means: float, scales: float) -> Tensor:
        """log p(θ) up to a constant: Gaussians around a process of unit scale, of these relative widths."""
        raise UsageError(f"{type(self).__name__} has no hyper-prior on its parameters.")

    def fit_evidence(
        self, x: Tensor, y: Tensor, generator: torch.Generator, max_steps: int, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Maximise the evidence log N(y | m, ΦΦᵀ + σ²I) in the parameters; ends early once `stop()`."""
        fit_by_evidence(self, x, y, generator, max_steps, stop)

    def condition(
        self,
        x: Tensor,
        z: Tensor,
        u: Tensor,
        noise: Tensor,
        dropout: DropoutMasks | None = None,
        jitter: float = JITTER,
    ) -> Conditional:
        """p(f(x) | f(z) = u) under a Gaussian process with the moments of the functions that belong to `noise`."""
        f_x, f_z = self.functions_at(x, z, noise, dropout)
        mean, variance = gaussian_conditional(f_x, f_z, u, jitter)
        return Conditional(mean, variance, f_z)


def sample_moments(f: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [N] and Φ [N, S] of functions f [S, N], with ΦΦᵀ their sample covariance (divisor S − 1)."""
    mean = f.mean(0)
    return mean, ((f - mean) / math.sqrt(len(f) - 1)).mT
