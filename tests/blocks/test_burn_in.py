"""A burn-in ends by its test: not while chains drift, not while they disagree, not while one is stuck."""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.blocks.burn_in import BurnIn, settled, stuck


def levels(num_iterations: int, num_chains: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(num_iterations, num_chains, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_chains_that_wander_around_one_level_have_settled() -> None:
    # two standard errors between six chains: one time in ten chance says no, and the next test says yes
    assert sum(settled(levels(200, seed=seed)) for seed in range(20)) >= 16


def test_a_drift_of_all_chains_is_seen() -> None:
    ramp = torch.linspace(0.0, 4.0, 100, dtype=torch.float64)[:, None]
    assert not settled(levels(100) + ramp)


def test_chains_on_different_levels_have_not_settled() -> None:
    assert not settled(levels(100) + 5.0 * torch.arange(6, dtype=torch.float64))


def test_a_level_that_is_not_finite_has_not_settled() -> None:
    values = levels(100)
    values[3, 2] = torch.nan
    assert not settled(values)


def test_one_chain_is_compared_with_itself() -> None:
    assert settled(levels(400, 1))
    assert not settled(levels(400, 1) + torch.linspace(0.0, 8.0, 400, dtype=torch.float64)[:, None])


def test_a_stuck_chain_is_named_whatever_the_mean_of_all_is() -> None:
    acceptance = torch.full((50, 8), 0.9)
    acceptance[:, 5] = 0.01
    assert acceptance.mean() > 0.75
    assert stuck(acceptance) == [5]


def run(values: Tensor, acceptance: Tensor) -> int | None:
    """The iteration after which the burn-in ended."""
    burn_in = BurnIn(first_test=40)
    for iteration, (level, accepted) in enumerate(zip(values, acceptance, strict=True), start=1):
        burn_in.record(level, accepted)
        if burn_in.settled:
            return iteration
    return None


def test_the_burn_in_ends_after_the_drift_does() -> None:
    climb = -20.0 * torch.exp(-torch.arange(600, dtype=torch.float64) / 60.0)[:, None]
    good = torch.full((600, 6), 0.8)
    ended, ended_at_once = run(levels(600) + climb, good), run(levels(600), good)
    assert ended is not None
    assert ended_at_once is not None
    assert ended_at_once <= 60
    assert 150 < ended < 600


def test_the_burn_in_does_not_end_while_a_chain_is_stuck() -> None:
    acceptance = torch.full((300, 6), 0.8)
    acceptance[:, 0] = 0.0
    assert run(levels(300), acceptance) is None


def test_a_restart_delays_the_next_test() -> None:
    burn_in = BurnIn(first_test=40)
    for level in levels(40):
        burn_in.record(level, torch.full((6,), 0.8))
    before = burn_in.next_test
    burn_in.restarted()
    assert burn_in.restarts == 1
    assert burn_in.next_test > before
