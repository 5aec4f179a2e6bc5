"""Where the entries stand in one metric: ranks, intervals, tiers, and how firm the order is. Computed here, shown everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fsibench.metrics import Metric
from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.ranking import Blocks

MOST_BOOTSTRAP_NUMBERS = 20_000_000


def num_draws(num_blocks: int, num_entries: int) -> int:
    """Bootstrap draws that a page can afford to repeat."""
    return int(np.clip(MOST_BOOTSTRAP_NUMBERS // max(num_blocks * num_entries, 1), 400, 2000))


@dataclass(frozen=True)
class Standing:
    """The ranked entries in one metric; `blocks` must hold at least one block."""

    metric: Metric
    blocks: Blocks

    @cached_property
    def block_ranks(self) -> pd.DataFrame:
        return ranking.ranks(self.blocks.values, self.metric.larger_is_better)

    @cached_property
    def set_ranks(self) -> pd.DataFrame:
        """Data sets x entries: ranks of the means."""
        blocks = self.blocks
        return ranking.ranks_of_dataset_means(blocks.values, self.metric.larger_is_better, blocks.constant)

    @cached_property
    def num_sets(self) -> int:
        return len(self.set_ranks)

    @cached_property
    def critical(self) -> float:
        """Nemenyi's critical difference of the ranks of means: what this number of data sets can show."""
        critical: float = statistics.nemenyi_critical_difference(max(self.set_ranks.shape[1], 2), self.num_sets)
        return critical

    @cached_property
    def draws(self) -> pd.DataFrame:
        """Mean ranks under resampling, draws x entries."""
        return statistics.two_level_bootstrap(self.block_ranks, num_draws(*self.block_ranks.shape))

    @cached_property
    def left_out(self) -> pd.DataFrame:
        """Mean ranks without each data set in turn."""
        return statistics.leave_one_dataset_out(self.block_ranks)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Per entry, best first: mean_rank, low, high, rank_of_means, tier, best_place, worst_place, leads.

        `leads` is the share of resamples in which the entry has the best mean rank.
        """
        of_means = self.set_ranks.mean()
        interval = statistics.expanded_interval(self.draws, self.num_sets)
        places = self.left_out.rank(axis=1, method="min")
        leads = self.draws.idxmin(axis=1).value_counts(normalize=True)
        table = pd.DataFrame(
            {
                "mean_rank": self.block_ranks.mean(),
                "low": interval["low"],
                "high": interval["high"],
                "rank_of_means": of_means,
                "tier": statistics.tiers(of_means, self.critical),
                "best_place": places.min(),
                "worst_place": places.max(),
                "leads": leads,
            }
        )
        return table.fillna({"leads": 0.0}).sort_values("mean_rank", kind="stable")

    def near(self, entry: str) -> list[str]:
        """Other entries that Nemenyi's test over data sets does not tell from this one, best first."""
        of_means = self.table["rank_of_means"]
        return [str(other) for other in of_means.index if other != entry and abs(of_means[other] - of_means[entry]) <= self.critical]

    def sentence(self) -> str:
        """Who leads, how firmly, and what this run could not have seen."""
        table, label = self.table, self.metric.label
        leader = str(table.index[0])
        if len(table) < 2:
            return f"Only {leader} is ranked in {label}."
        rank = f"{table['mean_rank'].iloc[0]:.2f}"
        level = [str(entry) for entry, other in table["mean_rank"].items() if f"{other:.2f}" == rank]
        if len(level) > 1:
            text = f"{_names(level)} lead in {label} with equal mean ranks of {rank}."
        else:
            share = table["leads"].iloc[0]
            firm = f"and stays first in {100 * share:.0f} % of resamples" if self.num_sets > 1 else "on one data set"
            text = f"{leader} leads in {label} with a mean rank of {rank} {firm}; {table.index[1]} follows."
        same = [entry for entry in self.near(leader) if entry not in level]
        if same and self.num_sets > 1:
            text += f" {_names(same)} cannot be told apart from {'it' if len(level) == 1 else 'them'} on {self.num_sets} data sets."
        return text


def _names(entries: list[str], most: int = 4) -> str:
    shown = entries[:most] if len(entries) <= most + 1 else entries[: most - 1]
    rest = len(entries) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
