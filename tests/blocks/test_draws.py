from __future__ import annotations

import torch

from fsibench.blocks.draws import by_rows, normal, some_rows


def test_some_rows_are_distinct() -> None:
    rows = some_rows(20_001, 20_000, torch.Generator().manual_seed(0))
    assert len(rows.unique()) == 20_000


def test_all_rows_are_taken_where_there_are_few() -> None:
    assert some_rows(5, 5, torch.Generator()).tolist() == [0, 1, 2, 3, 4]


def test_normal_numbers_follow_the_generator_and_look_like_the_tensor_given() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    drawn = normal(torch.Generator().manual_seed(0), 3, 2, like=like)
    assert drawn.dtype is torch.float64
    assert torch.equal(drawn, torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def test_chunks_of_rows_give_what_all_rows_give() -> None:
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(by_rows(lambda rows: rows.mT, x, 3), x.mT)
