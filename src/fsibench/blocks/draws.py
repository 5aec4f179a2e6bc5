"""Random numbers as every block and method draws them, and functions evaluated in chunks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Rows that are pushed through all functions at a time: 400 functions × 200 rows × 50 units are 16 MB.
CHUNK_ROWS = 200
# The same for what passes through one network or one kernel only, where small chunks take twice as long.
ONE_PASS_ROWS = 2000
# The same for functions that keep their own temporaries small (`networks.network_pieces`): what does not depend on the
# rows, such as drawn weights, is then computed less often.
PREDICTION_ROWS = 1000


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


@dataclass(frozen=True)
class Box:
    """A range for each input: `low` and `high` are [D]."""

    low: Tensor
    high: Tensor

    @classmethod
    def around(cls, x: Tensor, margin: float = 0.0) -> Box:
        """The smallest box around the rows of x, widened on each side by the share `margin` of its range."""
        low, high = x.amin(0), x.amax(0)
        return cls(low - margin * (high - low), high + margin * (high - low))

    def draw(self, num_points: int, generator: torch.Generator) -> Tensor:
        """Points [R, D], uniform in the box."""
        return self.low + (self.high - self.low) * uniform(generator, num_points, len(self.low), like=self.low)


def chunks(*tensors: Tensor, chunk_rows: int | None = None) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of all `tensors`, some at a time."""
    size = CHUNK_ROWS if chunk_rows is None else chunk_rows
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)


def by_rows(function: Callable[[Tensor], Tensor], x: Tensor, chunk_rows: int | None = None, dim: int = -1) -> Tensor:
    """`function` of x [N, D] -> [..., N], computed for some rows at a time; `dim` is that of the rows in the result."""
    return torch.cat([function(rows) for (rows,) in chunks(x, chunk_rows=chunk_rows)], dim)
