from __future__ import annotations

import torch

from fsibench.blocks.draws import Box, by_rows, chunks, normal, some_rows


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
    assert torch.equal(by_rows(lambda rows: rows, x, 3, dim=0), x)


def test_chunks_pair_the_rows_of_several_tensors() -> None:
    x, y = torch.arange(14).view(7, 2), torch.arange(7)
    pairs = list(chunks(x, y, chunk_rows=3))
    assert [len(rows) for rows, _ in pairs] == [3, 3, 1]
    assert all(torch.equal(rows[:, 0], 2 * targets) for rows, targets in pairs)


def test_random_points_fill_the_box_around_the_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator) * torch.tensor([1.0, 10.0, 0.1])
    points = Box.around(x).draw(2000, generator)
    low, width = x.amin(0), x.amax(0) - x.amin(0)
    shares = (points - low) / width
    assert points.shape == (2000, 3)
    assert 0.0 <= float(shares.min()) < 0.01
    assert 0.99 < float(shares.max()) <= 1.0
    torch.testing.assert_close(shares.mean(0), torch.full((3,), 0.5), atol=0.03, rtol=0.0)
    wider = Box.around(x, margin=0.5)
    torch.testing.assert_close(wider.low, low - 0.5 * width)
    torch.testing.assert_close(wider.high - wider.low, 2.0 * width)
