"""The leaderboard as one table: ranks of all metrics, failures and cost per entry. Shared by terminal, site and files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import plausibility, ranking
from fsibench.reports.analysis.results import METRICS, Results

# Trace entries by which a method says that its own result should not be trusted.
DIAGNOSTICS_FAILED = "diagnostics_failed"


@dataclass(frozen=True)
class Overview:
    results: Results

    @cached_property
    def blocks(self) -> dict[str, ranking.Blocks]:
        """Per metric the complete blocks at the end of the budget; the same blocks and entries for all metrics."""
        return {key: ranking.complete_blocks(self.results.table(self.results.final(key))) for key in METRICS}

    @cached_property
    def ranked(self) -> list[str]:
        entries: list[str] = self.blocks["rmse"].entries
        return entries

    @cached_property
    def unranked(self) -> list[str]:
        """Entries without a rank: set aside for missing cells, or without one finished cell."""
        return sorted(set(self.results.entries) - set(self.ranked))

    @cached_property
    def summaries(self) -> dict[str, pd.DataFrame]:
        """Per metric, data set and entry: mean, standard deviation, standard error, failures. Every finished cell counts."""
        return {key: summarise(self.results, key) for key in METRICS}

    @cached_property
    def scores(self) -> dict[str, dict[tuple[str, str], dict[str, float]]]:
        """The summaries as plain dictionaries, metric -> (dataset, entry) -> column -> value: quick to look up."""
        return {key: frame.to_dict("index") for key, frame in self.summaries.items()}

    def means(self, metric: str, dataset: str) -> dict[str, float]:
        """Entry -> mean score on a data set, where there is one."""
        cells = ((entry, self.scores[metric].get((dataset, entry))) for entry in self.results.entries)
        return {entry: cell["mean"] for entry, cell in cells if cell is not None and not np.isnan(cell["mean"])}

    @cached_property
    def test_to_train(self) -> dict[str, float]:
        """n_test/n_train per data set: how much the splits overlap. Splits of synthetic sets are fresh draws: 0."""
        cells = self.results.cells
        ratio = (cells["num_test"].astype(float) / cells["num_train"].astype(float)).groupby(cells["dataset"]).mean()
        fresh = plausibility.oracles()
        return {
            str(name): 0.0 if plausibility.base_name(str(name)) in fresh else value if value > 0 else 0.25
            for name, value in ratio.items()
        }

    @cached_property
    def board(self) -> pd.DataFrame:
        """One row per entry, best mean rank (over RMSE, LL and CRPS) first, unranked entries last."""
        columns: dict[str, Any] = {}
        for key, metric in METRICS.items():
            part = self.blocks[key]
            columns[f"mean_rank_{key}"] = ranking.mean_rank(part.values, metric.larger_is_better)
            columns[f"rank_of_means_{key}"] = ranking.rank_of_means(
                part.values, metric.larger_is_better, part.constant
            )
        board = costs(self.results).join(pd.DataFrame(columns))
        order = board[["mean_rank_rmse", "mean_rank_ll", "mean_rank_crps"]].mean(axis=1)
        return board.iloc[np.lexsort((board.index.to_numpy(dtype=str), order.to_numpy()))]

    @cached_property
    def caveats(self) -> list[str]:
        """Sentences a reader must see beside the ranks."""
        results, blocks = self.results, self.blocks["rmse"]
        sentences = [*results.left_out]
        num_failed = int(results.failed.sum())
        if num_failed:
            sentences.append(f"{count(num_failed, 'cell')} failed: {failure_rule(blocks.constant is not None)}")
        if blocks.num_incomplete:
            sentences.append(
                f"{count(blocks.num_incomplete, 'dataset × split block')} not ranked, because a ranked entry has no result."
            )
        if self.unranked:
            sentences.append(f"Not ranked, because too few cells were run: {', '.join(self.unranked)}.")
        # A budget in CPU seconds is not shortened by a busy machine.
        on_the_wall = results.cells["clock"] == "wall"
        contended = int(results.cells.loc[on_the_wall, "contended"].fillna(0).astype(bool).sum())
        if contended:
            sentences.append(f"{count(contended, 'cell')} shared the processor with other work: seconds are too long.")
        return sentences


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def failure_rule(constant_was_run: bool) -> str:
    if constant_was_run:
        return "a failed cell ranks last, and in means it is replaced by the score of `constant` on the same split."
    return (
        "a failed cell ranks last; `constant` was not run, so means are over the other splits and the entry ranks "
        "last among the means of that data set."
    )


def summarise(results: Results, metric: str) -> pd.DataFrame:
    values = results.table(results.final(metric)).pivot(
        index=["dataset", "split", "seed"], columns="entry", values="value"
    )
    known = results.table(np.ones(len(results.cells))).pivot(
        index=["dataset", "split", "seed"], columns="entry", values="value"
    )
    constant = values[ranking.CONSTANT] if ranking.CONSTANT in values.columns else None
    summary: pd.DataFrame = ranking.summary(values, constant, known.notna())
    return summary


def costs(results: Results) -> pd.DataFrame:
    """Per entry: cells, failures, doubts, and means of seconds and memory over the cells that finished well."""
    cells = results.cells
    good = results.finished & ~results.failed
    doubtful = np.array([bool(trace.get(DIAGNOSTICS_FAILED)) for trace in results.traces], dtype=bool) & good
    marked = cells[["entry"]].assign(
        cells=1, failed=results.failed, unfinished=~results.finished, doubtful=doubtful
    )
    counts = marked.groupby("entry").sum()
    numbers = cells.loc[good, ["train_seconds", "cpu_seconds", "predict_seconds", "peak_memory_mb"]].astype(float)
    means = numbers.groupby(cells.loc[good, "entry"]).mean()
    table: pd.DataFrame = counts.join(means).join(prediction_costs(cells[good]))
    return table.assign(note=[results.notes.get(entry, "") for entry in table.index])


def prediction_costs(cells: pd.DataFrame) -> pd.DataFrame:
    """Per entry: CPU seconds to predict 1,000 rows, and the flags that any of its cells carries."""
    grouped = cells.groupby("entry")
    sums = grouped[["predict_cpu_seconds", "predict_rows"]].agg(lambda column: column.astype(float).sum(min_count=1))
    flags = grouped["flags"].agg(lambda texts: sorted({flag for text in texts for flag in text.split(",") if flag}))
    rate = 1000.0 * sums["predict_cpu_seconds"] / sums["predict_rows"].where(sums["predict_rows"] > 0)
    return pd.DataFrame({"predict_seconds_per_1000_rows": rate, "flags": flags})
