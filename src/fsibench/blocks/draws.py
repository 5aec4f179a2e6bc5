"""Random numbers as every block and method draws them, and functions evaluated in chunks of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Rows that are pushed through all functions at a time: 400 functions × 200 rows × 50 units are 16 MB.
CHUNK_ROWS = 200


def normal(generator: torch.Generator, *shape: int, like: Tensor) -> Tensor:
    """Standard normal numbers with the dtype and on the device of `like`."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def uniform(generator: torch.Generator, *shape: int, like: Tensor) -> Tensor:
    """Uniform numbers between 0 and 1 with the dtype and on the device of `like`."""
    return torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)


def some_rows(num_rows: int, at_most: int, generator: torch.Generator) -> Tensor:
    """All row numbers in order, or `at_most` distinct ones at random."""
    if num_rows <= at_most:
        return torch.arange(num_rows, device=generator.device)
    return torch.randperm(num_rows, generator=generator, device=generator.device)[:at_most]


def by_rows(function: Callable[[Tensor], Tensor], x: Tensor, chunk_rows: int = CHUNK_ROWS) -> Tensor:
    """`function` of x [N, D] -> [..., N], computed for some rows at a time."""
    return torch.cat([function(rows) for rows in x.split(chunk_rows)], -1)
