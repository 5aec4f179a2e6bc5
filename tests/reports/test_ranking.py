"""Means and ranks on bare tables."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsibench.metrics import known
from fsibench.reports.analysis import ranking
from fsibench.reports.analysis.standing import Standing


def long_table(rows: list[tuple[str, str, int, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["entry", "dataset", "split", "value"])


def grid_table(values: dict[str, list[float]], datasets: tuple[str, ...] = ("x", "y")) -> pd.DataFrame:
    """entry -> values over datasets x two splits."""
    keys = [(dataset, split) for dataset in datasets for split in (0, 1)]
    return long_table([(e, *key, v) for e, column in values.items() for key, v in zip(keys, column, strict=True)])


def test_equal_means_share_a_mark() -> None:
    assert ranking.marks({"a": 1.0, "b": 1.0 + 1e-9, "c": 2.0}, larger_is_better=False) == {"a": "best", "b": "best"}
    assert ranking.marks({"a": 3.0, "b": 2.0, "c": 2.0}, larger_is_better=True) == {"a": "best", "b": "second", "c": "second"}
    assert ranking.marks({}, larger_is_better=True) == {}


def test_mean_rank_averages_over_dataset_and_split() -> None:
    table = grid_table({"a": [1.0, 1.0, 1.0, 9.0], "b": [2.0, 2.0, 2.0, 1.0]})
    blocks = ranking.complete_blocks(table)
    assert ranking.mean_rank(blocks.values, larger_is_better=False).to_dict() == {"a": 1.25, "b": 1.75}
    assert ranking.mean_rank(blocks.values, larger_is_better=True).to_dict() == {"a": 1.75, "b": 1.25}


def test_rank_of_means_can_reverse_the_order() -> None:
    # a wins three blocks of four but loses both data sets on average.
    table = grid_table({"a": [1.0, 5.0, 1.0, 5.0], "b": [2.0, 2.0, 2.0, 2.0]})
    values = ranking.complete_blocks(table).values
    assert ranking.rank_of_means(values, larger_is_better=False).to_dict() == {"a": 2.0, "b": 1.0}


def test_equal_scores_share_the_mean_of_their_ranks() -> None:
    values = ranking.complete_blocks(grid_table({"a": [1.0] * 4, "b": [1.0] * 4, "c": [0.0] * 4})).values
    assert ranking.mean_rank(values, larger_is_better=False).to_dict() == {"a": 2.5, "b": 2.5, "c": 1.0}


def test_a_failed_cell_ranks_last_and_two_share_the_last_places() -> None:
    table = grid_table({"a": [math.nan] * 4, "b": [5.0, math.nan, 5.0, 5.0], "c": [9.0] * 4})
    ranks = ranking.ranks(ranking.complete_blocks(table).values, larger_is_better=False)
    assert ranks.iloc[0].to_dict() == {"a": 3.0, "b": 1.0, "c": 2.0}
    assert ranks.iloc[1].to_dict() == {"a": 2.5, "b": 2.5, "c": 1.0}


def test_constant_replaces_failed_cells_in_means() -> None:
    table = grid_table({"a": [1.0, math.nan, 1.0, 1.0], "constant": [4.0, 5.0, 4.0, 4.0]})
    blocks = ranking.complete_blocks(table)
    means = ranking.dataset_means(blocks.values, blocks.constant)
    assert means.loc["x", "a"] == 3.0  # (1 + 5)/2


def test_without_constant_an_entry_with_failures_ranks_last_among_means() -> None:
    table = grid_table({"a": [1.0, math.nan, 1.0, 1.0], "b": [2.0, 2.0, 2.0, 2.0]})
    blocks = ranking.complete_blocks(table)
    assert blocks.constant is None
    ranks = ranking.ranks_of_dataset_means(blocks.values, larger_is_better=False)
    assert ranks.loc["x"].to_dict() == {"a": 2.0, "b": 1.0}
    assert ranks.loc["y"].to_dict() == {"a": 1.0, "b": 2.0}


def test_a_block_that_one_entry_has_not_run_is_ranked_for_nobody() -> None:
    table = grid_table({"a": [1.0] * 4, "b": [2.0] * 4})
    table = table[~((table["entry"] == "b") & (table["dataset"] == "y") & (table["split"] == 1))]
    blocks = ranking.complete_blocks(table)
    assert len(blocks.values) == 3
    assert blocks.num_incomplete == 1
    assert blocks.unranked == []


def test_an_entry_that_was_hardly_run_is_set_aside() -> None:
    full = grid_table({"a": [1.0] * 4, "b": [2.0] * 4, "c": [3.0] * 4})
    partial = full[(full["entry"] != "c") | ((full["dataset"] == "x") & (full["split"] == 0))]
    blocks = ranking.complete_blocks(partial)
    assert blocks.unranked == ["c"]
    assert len(blocks.values) == 4
    everyone = ranking.complete_blocks(partial, entries=["a", "b", "c"])
    assert len(everyone.values) == 1


def test_constant_replaces_failures_even_when_it_is_not_ranked() -> None:
    table = grid_table({"a": [1.0, math.nan, 1.0, 1.0], "b": [2.0] * 4, "constant": [4.0, 5.0, 4.0, 4.0]})
    table = table[(table["entry"] != "constant") | (table["dataset"] == "x")]
    blocks = ranking.complete_blocks(table, entries=["a", "b"])
    assert ranking.dataset_means(blocks.values, blocks.constant).loc["x", "a"] == 3.0


def test_standard_error_is_over_splits_after_averaging_seeds() -> None:
    rows = [("a", "x", split, seed, float(split + 10 * seed)) for split in range(3) for seed in range(2)]
    table = pd.DataFrame(rows, columns=["entry", "dataset", "split", "seed", "value"])
    values = table.pivot(index=["dataset", "split", "seed"], columns="entry", values="value")
    row = ranking.summary(values, None, values.notna()).loc[("x", "a")]
    assert row["mean"] == 6.0
    assert row["standard_deviation"] == 1.0
    assert row["standard_error"] == pytest.approx(1 / math.sqrt(3))
    assert row["splits"] == 3


def test_summary_counts_failures_and_replacements() -> None:
    table = grid_table({"a": [1.0, math.nan, 1.0, 1.0], "constant": [4.0, 5.0, 4.0, 4.0]})
    values = table.pivot(index=["dataset", "split"], columns="entry", values="value")
    known = values.notna() | True
    row = ranking.summary(values, values["constant"], known).loc[("x", "a")]
    assert (row["failed"], row["imputed"], row["cells"], row["mean"]) == (1, 1, 2, 3.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(-10, 10) | st.just(math.nan), min_size=3, max_size=3), min_size=1, max_size=6))
def test_ranks_of_a_row_always_sum_to_the_same(rows: list[list[float]]) -> None:
    ranks = ranking.ranks(pd.DataFrame(rows, columns=list("abc")), larger_is_better=True)
    np.testing.assert_allclose(ranks.sum(axis=1), 6.0)


def test_scores_that_differ_in_the_last_bit_are_equal() -> None:
    values = pd.DataFrame({"a": [0.1 + 0.2, 0.0], "b": [0.3, 1e-30], "c": [0.30001, -1.0]})
    ranks = ranking.ranks(values, larger_is_better=False)
    assert ranks.iloc[0].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert ranks.iloc[1].to_dict() == {"a": 2.0, "b": 3.0, "c": 1.0}


def test_numbers_too_small_for_six_digits_do_no_harm() -> None:
    ranks = ranking.ranks(pd.DataFrame({"a": [5e-324], "b": [1.0]}), larger_is_better=False)
    assert ranks.iloc[0].to_dict() == {"a": 1.0, "b": 2.0}


def test_the_sentence_names_one_leader_or_all_that_are_level() -> None:
    crps = known()["crps"]
    apart = ranking.complete_blocks(grid_table({"a": [1.0, 1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0, 2.0], "c": [3.0, 3.0, 3.0, 3.0]}))
    assert Standing(crps, apart).sentence().startswith("a leads in CRPS with a mean rank of 1.00 and stays first in 100 %")
    level = ranking.complete_blocks(grid_table({"a": [1.0, 1.0, 2.0, 2.0], "b": [2.0, 2.0, 1.0, 1.0], "c": [3.0, 3.0, 3.0, 3.0]}))
    sentence = Standing(crps, level).sentence()
    assert sentence == "a, b lead in CRPS with equal mean ranks of 1.50. c cannot be told apart from them on 2 data sets."


@pytest.mark.parametrize(("late", "kept"), [(1, 10), (4, 10), (7, 17), (13, 23)])
def test_entries_that_lack_the_same_splits_leave_or_stay_together(late: int, kept: int) -> None:
    # ten entries on five splits of eight sets, others on three: 10 x 40 cells against (10 + late) x 24
    known_cells = pd.DataFrame(True, index=range(40), columns=[f"m{index:02}" for index in range(10 + late)])
    known_cells.iloc[24:, 10:] = False
    assert ranking.largest_complete_part(known_cells) == list(known_cells.columns[:kept])


def test_entries_that_lack_different_blocks_can_leave_together() -> None:
    # eight sets of five splits: gp lacks three sets, seven entries two splits, hmc both: alone none of them completes a block
    names = [f"m{index}" for index in range(10)] + [f"late{index}" for index in range(7)] + ["gp", "hmc"]
    blocks = pd.MultiIndex.from_product([range(8), range(5)], names=["dataset", "split"])
    known_cells = pd.DataFrame(True, index=blocks, columns=names)
    late, large = blocks.get_level_values("split") >= 3, blocks.get_level_values("dataset") >= 5
    known_cells.loc[late, [*names[10:17], "hmc"]] = False
    known_cells.loc[large, ["gp", "hmc"]] = False
    assert ranking.largest_complete_part(known_cells) == names[:17]  # 17 x 24 cells


def test_near_the_leader_is_what_the_critical_difference_does_not_separate() -> None:
    values = pd.DataFrame({name: [float(place)] * 8 for place, name in enumerate("abcdef")})
    values.index = pd.MultiIndex.from_tuples([(f"set{k}", 0) for k in range(8)], names=["dataset", "split"])
    standing = Standing(known()["crps"], ranking.Blocks(values, None, [], 0))
    assert standing.critical == pytest.approx(2.66, abs=0.01)  # six entries on eight sets
    assert standing.near("a") == ["b", "c"]
    assert standing.near("c") == ["a", "b", "d", "e"]
