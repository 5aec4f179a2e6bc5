"""Records of chains: what was appended comes back, in one block."""

from __future__ import annotations

import torch

from fsibench.blocks.chain_record import Rows


def test_rows_come_back_in_their_order_however_many() -> None:
    rows = Rows()
    for number in range(200):
        rows.append(torch.full((2, 3), float(number)))
    assert len(rows) == 200
    assert torch.equal(rows.stacked()[:, 1, 2], torch.arange(200.0))


def test_rows_are_copies_in_a_block_that_grows_by_doubling() -> None:
    rows, row = Rows(), torch.zeros(4)
    addresses = set()
    for _ in range(1000):
        rows.append(row)
        addresses.add(rows.stacked().data_ptr())
        row.add_(1.0)
    assert rows.stacked()[:, 0].tolist() == list(range(1000))
    assert len(addresses) <= 5
