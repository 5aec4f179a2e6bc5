"""Racing: the tests hold however often one looks, and a board's tiers are found at a third of the cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from fsibench.cli import main
from fsibench.reports.analysis import statistics
from fsibench.reports.analysis.racing import Race, adjusted_means, e_bh_limit, log_e_values, tiers_of

NUM_ENTRIES, NUM_SETS, NUM_SPLITS = 22, 8, 20


def t_statistics(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts and t statistics of every prefix of at least two numbers, over the last axis."""
    count = np.arange(1, values.shape[-1] + 1.0)
    mean = values.cumsum(-1) / count
    variance = (np.square(values).cumsum(-1) - count * mean**2) / np.maximum(count - 1, 1)
    return np.broadcast_to(count, values.shape)[..., 1:], (mean / np.sqrt(np.maximum(variance, 1e-300) / count))[..., 1:]


def test_the_e_value_is_the_ratio_of_marginal_densities_of_t() -> None:
    """Under effect size δ, t is noncentral t with δ√n; the alternative averages it over δ ~ N(0, g)."""
    g = 2.0
    for n, t in ((2, 0.5), (5, 1.7), (12, -3.0)):
        marginal, _ = integrate.quad(
            lambda d, n=n, t=t: stats.nct.pdf(t, n - 1, d * np.sqrt(n)) * stats.norm.pdf(d, scale=np.sqrt(g)), -12, 12, limit=200
        )
        expected = np.log(marginal / stats.t.pdf(t, n - 1))
        assert log_e_values(np.array([float(n)]), np.array([t]), g)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_looking_after_every_split_does_not_find_differences_where_there_are_none(spread: float) -> None:
    differences = spread * np.random.default_rng(1).normal(size=(20_000, NUM_SPLITS))
    ever = log_e_values(*t_statistics(differences)).max(-1) >= np.log(1 / 0.05)
    assert ever.mean() <= 0.05
    looked = np.abs(t_statistics(differences)[1])
    naive = (2 * stats.t.sf(looked, np.arange(1, NUM_SPLITS)) < 0.05).any(-1)
    assert naive.mean() > 0.2, "the usual test, looked at as often, would"


def test_differences_with_heavy_tails_are_not_separated_more_often() -> None:
    differences = np.random.default_rng(2).standard_t(3, size=(20_000, NUM_SPLITS))
    assert (log_e_values(*t_statistics(differences)).max(-1) >= np.log(1 / 0.05)).mean() <= 0.05


def test_the_limit_is_that_of_e_bh() -> None:
    values = np.log([1000.0, 90.0, 45.0, 3.0])  # K = 4, α = 5 %: needed 80, 40, 26.7, 20 for the 1st, 2nd, 3rd, 4th
    assert e_bh_limit(values, 0.05) == pytest.approx(np.log(4 / 0.15))
    assert e_bh_limit(np.log([70.0, 3.0, 2.0, 1.0]), 0.05) == pytest.approx(np.log(80))


def test_a_hard_split_that_only_some_entries_saw_does_not_count_against_them() -> None:
    generator = np.random.default_rng(0)
    quality, hard = generator.normal(size=6), generator.normal(size=(9, 1))
    values = quality + hard
    values[4:, :3] = np.nan
    means, residuals = adjusted_means(values, 200)
    assert np.allclose(means - means.mean(), quality - quality.mean(), atol=1e-8)
    assert np.nanmax(np.abs(residuals)) < 1e-8


def test_tiers_of_many_boards_are_those_of_each() -> None:
    boards = np.random.default_rng(3).uniform(1, 22, size=(50, NUM_ENTRIES))
    expected = [statistics.tiers(pd.Series(board), 4.0).to_numpy() for board in boards]
    assert (tiers_of(boards, 4.0) == np.stack(expected)).all()


def simulated_board(generator: np.random.Generator, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """True means [sets, entries] in three groups, four pairs truly equal; scores [sets, splits, entries]."""
    level = np.repeat([0.0, 1.25, 2.5], 8)[:NUM_ENTRIES]
    means = level + 0.3 * generator.normal(size=(NUM_SETS, NUM_ENTRIES))
    for a, b in ((0, 1), (2, 3), (8, 9), (15, 16)):
        means[:, a] = means[:, b]
    hard = generator.normal(size=(NUM_SETS, NUM_SPLITS, 1))
    return means, means[:, None] + hard + noise * generator.normal(size=(NUM_SETS, NUM_SPLITS, NUM_ENTRIES))


def race(scores: np.ndarray) -> tuple[dict[str, pd.DataFrame], int]:
    """What a race has seen in the end, and the number of cells that it ran."""
    rules = Race(most=NUM_SPLITS)
    names = [f"e{number:02}" for number in range(NUM_ENTRIES)]
    seen = {str(place): pd.DataFrame(np.nan, index=range(NUM_SPLITS), columns=names) for place in range(NUM_SETS)}
    cost = 0
    for split in range(NUM_SPLITS):
        going = rules.next(seen, larger_is_better=False)
        for place, entries in going.items():
            full = pd.Series(scores[int(place), split], index=names)
            seen[place].loc[split, entries] = full[entries]
            cost += len(entries)
        if not any(going.values()):
            break
    return seen, cost


def board_tiers(means: np.ndarray) -> np.ndarray:
    ranks = pd.DataFrame(means).rank(axis=1).mean()
    critical = statistics.nemenyi_critical_difference(NUM_ENTRIES, NUM_SETS)
    return np.asarray(statistics.tiers(ranks, critical))


@pytest.mark.parametrize("noise", [0.15, 0.3, 0.6])
def test_the_tiers_of_a_full_board_are_found_at_a_third_of_the_cost(noise: float) -> None:
    generator = np.random.default_rng(11)
    costs, separated, false = [], 0, 0
    for _ in range(4):
        means, scores = simulated_board(generator, noise)
        seen, cost = race(scores)
        costs.append(cost / scores.size)
        raced = np.stack([adjusted_means(seen[str(place)].to_numpy())[0] for place in range(NUM_SETS)])
        assert (board_tiers(raced) == board_tiers(scores.mean(1))).all()
        for place, pairs in Race(most=NUM_SPLITS).standing(seen).items():
            truth = np.sign(np.subtract.outer(means[int(place)], means[int(place)]))
            found = np.triu(pairs.order != 0, 1)
            separated += int(found.sum())
            false += int((found & (pairs.order != truth)).sum())
    assert np.mean(costs) <= 1 / 3
    assert false <= 0.05 * separated
    assert separated > 100


def test_a_race_gives_later_splits_to_open_pairs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`constant` and `linear` are far apart on both sets: after five splits nothing is open."""
    call = ["run", "smoke", "--methods", "constant,linear", "--splits", "7", "--steps", "2", "--executor", "inline"]
    assert main([*call, "--race", "rmse", "--store", f"{tmp_path}/s.sqlite"]) == 0
    told = capsys.readouterr().err
    assert "split 5: 0 of 2 entries go on" in told
    assert "split 6: 0 of 2 entries go on" in told
    assert main([*call, "--race", "taste", "--store", f"{tmp_path}/t.sqlite"]) == 2
    assert "unknown metric 'taste'" in capsys.readouterr().err
