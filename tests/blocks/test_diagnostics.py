"""Convergence diagnostics on chains whose truth is known."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import norm, rankdata
from torch import Tensor

from fsibench.blocks.diagnostics import bulk_ess, ebfmi, plain_rhat, rank_normalised, rhat, tail_ess


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def autoregressive(T: int, C: int, coefficient: float, seed: int = 0) -> Tensor:
    noise, chain = normal(T, C, 1, seed=seed), [normal(C, 1, seed=seed + 1)]
    for t in range(1, T):
        chain.append(coefficient * chain[-1] + (1.0 - coefficient**2) ** 0.5 * noise[t])
    return torch.stack(chain)


def test_independent_draws_have_rhat_one_and_full_size() -> None:
    draws = normal(1000, 4, 20)
    assert rhat(draws).max().item() < 1.01
    assert bulk_ess(draws).mean().item() == pytest.approx(4000, rel=0.1)
    assert tail_ess(draws).mean().item() == pytest.approx(4000, rel=0.15)


def test_effective_size_of_an_autoregression_is_its_closed_form() -> None:
    # n (1 − ρ)/(1 + ρ) with ρ = 0.6: a quarter
    draws = autoregressive(4000, 8, 0.6)
    assert bulk_ess(draws).item() == pytest.approx(32_000 / 4, rel=0.1)


def test_alternating_chains_count_for_more_than_independent_ones() -> None:
    assert bulk_ess(autoregressive(2000, 4, -0.5)).item() > 1.5 * 8000


def test_chains_at_different_places_are_seen() -> None:
    draws = normal(500, 4, 1)
    draws[:, 0] += 1.0
    assert rhat(draws).item() > 1.05


def test_chains_of_different_spread_are_seen_although_their_means_agree() -> None:
    draws = normal(500, 4, 1)
    draws[:, 0] *= 4.0
    assert plain_rhat(draws).item() < 1.02  # the classical statistic is blind to it
    assert rhat(draws).item() > 1.05


def test_a_drift_within_chains_is_seen() -> None:
    draws = normal(500, 4, 1) + torch.linspace(0.0, 2.0, 500, dtype=torch.float64)[:, None, None]
    assert rhat(draws).item() > 1.05


def test_ranks_are_averaged_over_ties() -> None:
    draws = torch.tensor([3.0, 1.0, 1.0, 2.0, 2.0, 2.0], dtype=torch.float64).reshape(3, 2, 1)
    expected = norm.ppf((rankdata(draws.flatten().numpy()) - 0.375) / 6.25)
    assert rank_normalised(draws).flatten().numpy() == pytest.approx(expected)


def test_what_never_moves_has_rhat_one_when_all_agree_and_infinity_when_not() -> None:
    still = torch.ones(100, 4, 1, dtype=torch.float64)
    assert rhat(still).item() == 1.0
    still[:, 0] = 2.0
    assert rhat(still).item() == float("inf")


def test_ebfmi_of_independent_energies_is_two_and_of_a_random_walk_almost_zero() -> None:
    assert ebfmi(normal(20_000, 2)).numpy() == pytest.approx(2.0, rel=0.03)
    assert ebfmi(normal(20_000, 2).cumsum(0)).max().item() < 0.05
