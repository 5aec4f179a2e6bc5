"""The evidence of a prior that is known by its moments, and fits that maximise it before inference begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from fsibench.blocks.draws import some_rows
from fsibench.blocks.gaussian import low_rank_log_evidence
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.training import Optimiser, leaf

# Of a fit: rows and draws per step, learning rate, log of the noise variance at the start.
BATCH_ROWS, NUM_DRAWS, LEARNING_RATE, LOG_NOISE = 1000, 8, 1e-2, -2.0


class HasMoments(Protocol):
    """What an evidence needs of a prior (`fsibench.blocks.priors.Prior`)."""

    @property
    def parameters(self) -> list[Tensor]: ...

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor: ...

    def moments(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]: ...


def log_evidence(prior: HasMoments, x: Tensor, y: Tensor, noise: Tensor, variance: Tensor) -> Tensor:
    """log N(y | m, ΦΦᵀ + σ²I) with the moments of the draws that belong to `noise`, and σ² = `variance`; in float64."""
    mean, features = prior.moments(x, noise)
    return low_rank_log_evidence(y - mean, features, variance)


def fit_by_evidence(
    prior: HasMoments,
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
    max_steps: int,
    stop: Callable[[], bool] = lambda: False,
    log_hyperprior: Callable[[], Tensor] | None = None,
) -> None:
    """Adam on the evidence of random rows, scaled to all of them, with fresh draws at every step."""
    log_noise = leaf(x.new_full((1,), LOG_NOISE))
    optimiser = Optimiser([*prior.parameters, log_noise], LEARNING_RATE, "cosine")
    for step in range(max_steps):
        rows = some_rows(len(x), BATCH_ROWS, generator)
        draws = prior.draw_noise(NUM_DRAWS, generator)
        evidence = log_evidence(prior, x[rows], y[rows], draws, noise_variance(log_noise)[0]) / len(rows)
        if log_hyperprior is not None:
            evidence = evidence + log_hyperprior() / len(x)
        optimiser.minimise(-evidence, step / max_steps)
        if stop():
            return
