"""The linear model on moments: both forms of its posterior, and draws from it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsibench.blocks import draws as blocks_draws
from fsibench.blocks.linear_process import RootModel, RowModel, conditioned
from fsibench.blocks.training import Refresh

F64 = torch.float64


def features(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean x and five cosines."""
    return x[:, 0], torch.cos(x * torch.arange(1.0, 6.0, dtype=F64) + torch.arange(5.0, dtype=F64))


def rows(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    return x, torch.sin(3.0 * x[:, 0])


def test_fewer_rows_than_features_give_the_posterior_of_the_other_form() -> None:
    """Three rows said twice are six rows of twice the noise variance: one form for each, one posterior."""
    x, y = rows(3)
    few = conditioned(features, x, y, 0.1)
    many = conditioned(features, x.repeat(2, 1), y.repeat(2), 0.1, nugget=0.1)
    assert isinstance(few, RowModel)
    assert isinstance(many, RootModel)
    at = torch.linspace(-2.0, 2.0, 9, dtype=F64)[:, None]
    torch.testing.assert_close(few.moments(at), many.moments(at))


def test_draws_have_the_moments_of_the_posterior() -> None:
    at = torch.linspace(-2.0, 2.0, 6, dtype=F64)[:, None]
    for count in (3, 8):
        model = conditioned(features, *rows(count), 0.1)
        draws = model.draw(at, 40_000, torch.Generator().manual_seed(1))
        mean, scale = model.moments(at)
        torch.testing.assert_close(draws.mean(0), mean, atol=0.03, rtol=0.0)
        torch.testing.assert_close(draws.var(0), scale.square() - 0.1, atol=0.03, rtol=0.03)


def test_chunks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = rows(11)
    whole = conditioned(features, x, y, 0.1)
    monkeypatch.setattr(blocks_draws, "CHUNK_ROWS", 4)
    torch.testing.assert_close(conditioned(features, x, y, 0.1).mean, whole.mean)


def test_renewals_come_at_growing_intervals() -> None:
    refresh = Refresh()
    assert [step for step in range(1, 30) if refresh.due()] == [1, 2, 3, 5, 8, 12, 18, 27]
