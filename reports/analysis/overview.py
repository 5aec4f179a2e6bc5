"""The leaderboard as one table: ranks of all metrics, failures and cost per entry. Shared by terminal, site and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import plausibility, ranking
from fsibench.reports.analysis.results import Results

# What pages open with: it scores the whole distribution and exists for every predictive.
FIRST_METRIC = "crps"
# Columns that are means of seconds.
SECONDS = ["train_seconds", "cpu_seconds", "predict_seconds_per_1000_rows"]
# What the runner says about the clock of an entry, as a reader needs it.
FLAGS = {
    "works_while_paused": "threads or child processes worked while the clock stood still, so its times are too good",
    "costly_predict": "predicting one row costs more than ten training steps, so work is hidden from the clock",
}


@dataclass(frozen=True)
class Overview:
    results: Results

    @cached_property
    def blocks(self) -> dict[str, ranking.Blocks]:
        """Per metric the complete blocks at the end of the budget, over the entries that are ranked in it."""
        return {key: ranking.complete_blocks(self._trusted(key)) for key in self.results.metrics}

    def _trusted(self, metric: str) -> pd.DataFrame:
        table = self.results.table(metric)
        return table[~table["entry"].isin(self.distrusted)]

    @cached_property
    def main_metric(self) -> str:
        """The metric that pages open with."""
        headline = self.results.headline
        return FIRST_METRIC if FIRST_METRIC in headline else next(iter(headline or self.results.metrics))

    @cached_property
    def ranked(self) -> list[str]:
        """Entries ranked in the main metric."""
        entries: list[str] = self.blocks[self.main_metric].entries
        return entries

    @cached_property
    def distrusted(self) -> list[str]:
        """Entries whose own diagnostics failed in more than half of the cells that finished: shown, not ranked."""
        costs = self.costs
        return list(costs.index[costs["doubtful"] > 0.5 * (costs["cells"] - costs["failed"] - costs["unfinished"])])

    @cached_property
    def without_metric(self) -> dict[str, list[str]]:
        """Headline metric -> entries for which it does not exist."""
        results, found = self.results, {}
        for key in results.headline:
            absent = results.absent(key)
            here = results.finished & ~absent
            found[key] = sorted(set(results.cells["entry"][absent].unique()) - set(results.cells["entry"][here].unique()))
        return found

    @cached_property
    def unranked(self) -> list[str]:
        """Entries without a rank because too few of their cells were run."""
        explained = {*self.ranked, *self.distrusted, *self.without_metric.get(self.main_metric, ())}
        return [entry for entry in self.results.entries if entry not in explained]

    @cached_property
    def costs(self) -> pd.DataFrame:
        return costs(self.results)

    @cached_property
    def wide(self) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
        """Per metric the final scores, blocks x entries, and where there is an outcome."""
        return {key: ranking.wide(self.results.table(key)) for key in self.results.metrics}

    @cached_property
    def summaries(self) -> dict[str, pd.DataFrame]:
        """Per metric, data set and entry: mean, standard deviation, standard error, failures. Every finished cell counts."""
        return {key: ranking.summary(values, values.get(ranking.CONSTANT), known) for key, (values, known) in self.wide.items()}

    @cached_property
    def scores(self) -> dict[str, dict[tuple[str, str], dict[str, float]]]:
        """The summaries as plain dictionaries, metric -> (dataset, entry) -> column -> value: quick to look up."""
        return {key: frame.to_dict("index") for key, frame in self.summaries.items()}

    def means(self, metric: str, dataset: str) -> dict[str, float]:
        """Entry -> mean score on a data set, where there is one."""
        cells = ((entry, self.scores[metric].get((dataset, entry))) for entry in self.results.entries)
        return {entry: cell["mean"] for entry, cell in cells if cell is not None and not np.isnan(cell["mean"])}

    @cached_property
    def fewer_splits(self) -> dict[tuple[str, str], int]:
        """(dataset, entry) -> its number of splits, where another entry has more: such means are not of the same splits."""
        cells = self.results.cells[self.results.finished]
        numbers = cells.groupby(["dataset", "entry"], observed=True)["split"].nunique()
        most = numbers.groupby(level="dataset", observed=True).transform("max")
        return {(str(dataset), str(entry)): int(number) for (dataset, entry), number in numbers[numbers < most].items()}

    @cached_property
    def test_to_train(self) -> dict[str, float]:
        """n_test/n_train per data set: how much the splits overlap. Splits of synthetic sets are fresh draws: 0."""
        cells = self.results.cells
        ratio = (cells["num_test"].astype(float) / cells["num_train"].astype(float)).groupby(cells["dataset"], observed=True).mean()
        fresh = plausibility.oracles()
        return {
            str(name): 0.0 if plausibility.base_name(str(name)) in fresh else value if value > 0 else 0.25
            for name, value in ratio.items()
        }

    @cached_property
    def thinned(self) -> dict[str, Thinning]:
        return thinned(self.results)

    @cached_property
    def board(self) -> pd.DataFrame:
        """One row per entry, best mean rank (over the headline metrics) first and unranked ones last, or as was asked."""
        columns: dict[str, Any] = {}
        for key, metric in self.results.metrics.items():
            part = self.blocks[key]
            columns[f"mean_rank_{key}"] = ranking.mean_rank(part.values, metric.larger_is_better)
            columns[f"rank_of_means_{key}"] = ranking.rank_of_means(
                part.values, metric.larger_is_better, part.constant
            )
        board = self.costs.join(pd.DataFrame(columns))
        if self.results.subset.order != "rank":
            names = self.results.entries
            return board.loc[names if self.results.subset.order == "given" else sorted(names)]
        order = board[[f"mean_rank_{key}" for key in self.results.headline]].mean(axis=1)
        return board.iloc[np.lexsort((board.index.to_numpy(dtype=str), order.to_numpy()))]

    @cached_property
    def caveats(self) -> list[str]:
        """Sentences a reader must see beside the ranks."""
        results, blocks = self.results, self.blocks[self.main_metric]
        sentences = [*results.left_out]
        num_failed = int(results.failed.sum())
        if num_failed:
            sentences.append(f"{count(num_failed, 'cell')} failed: {failure_rule(blocks.constant is not None)}")
        if blocks.num_incomplete:
            sentences.append(
                f"{count(blocks.num_incomplete, 'dataset × split block')} not ranked, because a ranked entry has no result."
            )
        if self.distrusted:
            told = (f"{entry} ({self.costs.loc[entry, 'doubtful']} of {self.costs.loc[entry, 'cells']} cells)"
                    for entry in self.distrusted)  # fmt: skip
            sentences.append(f"Not ranked, because the method's own diagnostics failed: {', '.join(told)}.")
        for key, entries in self.without_metric.items():
            if entries:
                sentences.append(f"Not ranked in {results.metrics[key].label}, which they do not have: {', '.join(entries)}.")
        if self.unranked:
            sentences.append(f"Not ranked, because too few cells were run: {', '.join(self.unranked)}.")
        for entry, flags in self.costs["flags"].items():
            sentences += [f"{entry}: {FLAGS.get(flag, flag)}." for flag in (flags if isinstance(flags, list) else ())]
        sentences += thinning_sentences(self.thinned)
        # A cell that ended well has a message where a metric of a plugin failed.
        said = results.cells.loc[results.cells["status"] == "ok", "message"].dropna()
        sentences += [f"{text[0].upper()}{text[1:]} ({count(number, 'cell')})." for text, number in said.value_counts().items()]
        if not results.same_speed:
            sentences.append(
                f"The cells ran on machines whose speeds differ by a factor of {results.speed_ratio:.1f}: their seconds are not "
                "pooled, and scores against training seconds compare unequal machines. Use machines of one kind, the clock `reference`, or a budget in steps."
            )
        # A budget in CPU seconds is not shortened by a busy machine.
        on_the_wall = results.cells["clock"] == "wall"
        contended = int(results.cells.loc[on_the_wall, "contended"].fillna(0).astype(bool).sum())
        if contended:
            sentences.append(f"{count(contended, 'cell')} shared the processor with other work: seconds are too long.")
        return sentences


@dataclass(frozen=True)
class Thinning:
    """Test rows of a data set and numbers of them that last looks scored, where that were not all."""

    scored: list[int]
    present: int
    alike: bool  # whether all entries were scored on equally many rows of each split


def thinned(results: Results) -> dict[str, Thinning]:
    """Data sets that were scored on fewer test rows than they have. A PIT histogram counts every scored row once."""
    cells = results.cells[["dataset", "split"]].assign(
        scored=results.pit.sum(1).astype(int), present=results.cells["num_test"].astype(float)
    )
    cells = cells[cells["scored"] > 0]
    names = cells.loc[cells["scored"] < cells["present"], "dataset"].unique()
    found = {}
    for name, part in cells[cells["dataset"].isin(names)].groupby("dataset", observed=True):
        alike = part.groupby("split", observed=True)["scored"].nunique().max() == 1
        found[str(name)] = Thinning(sorted(part["scored"].unique().tolist()), int(part["present"].max()), bool(alike))
    return found


def thinning_sentences(found: Mapping[str, Thinning]) -> Iterator[str]:
    for name, rows in found.items():
        shown = " or ".join(f"{number:,}" for number in rows.scored)
        if rows.alike:
            yield f"{name}: scored on {shown} of {rows.present:,} test rows, the same for every entry; the budget is too short for all."
        else:
            yield f"{name}: entries were scored on different numbers of test rows ({shown}), so their differences are rough."


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def failure_rule(constant_was_run: bool) -> str:
    if constant_was_run:
        return "a failed cell ranks last, and in means it is replaced by the score of `constant` on the same split."
    return (
        "a failed cell ranks last; `constant` was not run, so means are over the other splits and the entry ranks "
        "last among the means of that data set."
    )


def costs(results: Results) -> pd.DataFrame:
    """Per entry: cells, failures, doubts, and means of seconds and memory over the cells that finished well."""
    cells = results.cells
    good = results.finished & ~results.failed
    doubtful = np.isin(np.arange(len(cells)), list(results.doubtful)) & good
    marked = cells[["entry"]].assign(
        cells=1, failed=results.failed, unfinished=~results.finished, doubtful=doubtful
    )
    counts = marked.groupby("entry", observed=True).sum()
    numbers = cells.loc[good, ["train_seconds", "cpu_seconds", "peak_memory_mb"]].astype(float)
    means = numbers.groupby(cells.loc[good, "entry"], observed=True).mean()
    table: pd.DataFrame = counts.join(means).join(prediction_costs(cells.loc[good, ["entry", "predict_cpu_seconds", "predict_rows", "flags"]]))
    if not results.same_speed:  # a mean over unequal machines describes none of them
        table[SECONDS] = np.nan
    return table.assign(note=[results.notes.get(entry, "") for entry in table.index])


def prediction_costs(cells: pd.DataFrame) -> pd.DataFrame:
    """Per entry: CPU seconds to predict 1,000 rows, and the flags that any of its cells carries."""
    grouped = cells.groupby("entry", observed=True)
    sums = grouped[["predict_cpu_seconds", "predict_rows"]].agg(lambda column: column.astype(float).sum(min_count=1))
    flags = grouped["flags"].agg(lambda texts: sorted({flag for text in texts for flag in text.split(",") if flag}))
    rate = 1000.0 * sums["predict_cpu_seconds"] / sums["predict_rows"].where(sums["predict_rows"] > 0)
    return pd.DataFrame({"predict_seconds_per_1000_rows": rate, "flags": flags})
