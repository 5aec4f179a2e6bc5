"""Committed results as text: what README and documentation print between markers, always made from the packed store.

    <!-- published NAME -->  ...  <!-- /published -->
    <!-- published NAME of STORE -->  ...  <!-- /published -->

STORE is another packed store of the same folder. A fragment of a protocol whose store is still to come is empty. `FRAGMENTS` lists the names. Nothing here is
typed by hand: a sentence is either computed from the store or absent.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from fsibench import registry
from fsibench.errors import UsageError, unknown
from fsibench.harness.plan import load_protocol
from fsibench.reports import figures, markdown
from fsibench.reports.analysis import ledger, plausibility
from fsibench.reports.analysis.overview import count
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import Subset
from fsibench.reports.analysis.standing import Standing
from fsibench.reports.companions import (
    against_first,
    against_printed,
    agreement,
    convergence,
    defaults,
    distances,
    peers_table,
    truth_finals,
    until,
    which_method,
)
from fsibench.reports.evenness import fewer_splits, other_options, slower
from fsibench.reports.experiments import briefly, shapes_of, splits_to_settle
from fsibench.reports.texts import score_table

MARKER = re.compile(r"(<!-- published ([a-z-]+)(?: of ([a-z0-9-]+))? -->\n)(.*?)(<!-- /published -->)", re.DOTALL)
NUM_PUBLISHED = 168
MOST_FAILURES = 0.01
WANTED_REPRODUCED = 140
FUNCTION_SPACE = "function space"
UNEXPLAINED = "not explained yet"


@dataclass(frozen=True)
class Publication:
    """One packed store and what was written down about it in `board.toml`."""

    store: Path
    families: Mapping[str, list[str]] = field(default_factory=dict)  # family -> names of methods
    explanations: Mapping[str, str] = field(default_factory=dict)  # "LL wine VIP" -> why ours differs
    doubts: Mapping[str, str] = field(default_factory=dict)  # "LL wine gp" -> why an implausible score is right

    @classmethod
    def read(cls, store: Path, notes: Path) -> Publication:
        if not notes.is_file():
            return cls(store)
        try:
            content = tomllib.loads(notes.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"{notes} is not valid TOML: {error}.") from None
        known = [item.name for item in dataclasses.fields(cls) if item.name != "store"]
        for key in content.keys() - set(known):
            raise unknown(f"key in {notes}", key, known)
        return cls(store, **content)

    def sibling(self, name: str) -> Publication:
        """Another packed store of the same folder."""
        store = self._path_of(name)
        if not store.is_file():
            raise UsageError(f"there are no committed results at {store}; `fsibench publish --name {name} --from STORE` makes them.")
        return dataclasses.replace(self, store=store)

    def _path_of(self, name: str) -> Path:
        return self.store.with_name(f"{name}.parquet")

    def awaited(self, text: str) -> set[str]:
        """Protocols whose packed stores are still to come: those of empty fragments. A misspelt name, or a store that was lost, is neither."""
        empty = {match[3] for match in MARKER.finditer(text) if match[3] is not None and not match[4].strip()}
        return {name for name in empty if name in registry.protocols().items and not self._path_of(name).is_file()}

    @cached_property
    def report(self) -> Report:
        return Report.read(self.store)

    @cached_property
    def with_all(self) -> Report | None:
        """The same on the data sets that every entry was run on, where the whole board leaves an entry unranked for that."""
        cells = self.report.results.cells
        have = cells.groupby("dataset", observed=True)["entry"].nunique()
        kept = sorted(have.index[have == cells["entry"].nunique()])
        if len(kept) in (0, len(have)):
            return None
        return Report.read(self.store, subset=Subset(datasets=kept))

    def family(self, entry: str) -> str:
        method = self.report.results.methods.get(entry, entry)
        return next((name for name, methods in self.families.items() if method in methods), "")

    @cached_property
    def planned(self) -> dict[int, int]:
        """Split -> number of its cells: the most that one run planned, or those that are there; else every pair of entry and data set.

        Plans of separate runs are not added up: a run of other entries that was stopped leaves what it lacks to `_to_come`.
        """
        results = self.report.results
        plans = [run["protocol"]["cells_per_split"] for run in results.runs if "cells_per_split" in run["protocol"]]
        if plans:
            numbers = {int(split): int(number) for split, number in results.cells.groupby("split", observed=True).size().items()}
            for split, number in ((int(split), int(number)) for plan in plans for split, number in plan.items()):
                numbers[split] = max(numbers.get(split, 0), number)
            return dict(sorted(numbers.items()))
        pairs = len(results.cells[["entry", "dataset"]].drop_duplicates())
        return {int(split): pairs for split in results.cells["split"].unique()}

    @cached_property
    def num_complete_splits(self) -> int:
        results = self.report.results
        ended = results.cells[results.finished].groupby("split", observed=True).size()
        return sum(int(ended.get(split, 0)) >= number for split, number in self.planned.items())

    @cached_property
    def judged(self) -> list[ledger.Line]:
        """One line per published score: that of the entry which bears the paper's name."""
        lines = [line for line in self.report.ledger if line.dataset != ledger.AVERAGE_RANK and line.verdict != "variant"]
        first: dict[tuple[str, str, str], ledger.Line] = {}
        for line in lines:
            first.setdefault((line.dataset, line.metric, line.method), line)
        return list(first.values())

    @cached_property
    def truth_finals(self) -> pd.DataFrame:
        """The last look of each cell of a problem with a reference posterior."""
        return truth_finals(self.store)

    @cached_property
    def failure_rates(self) -> pd.Series:
        costs = self.report.overview.costs
        ended = (costs["cells"] - costs["unfinished"]).clip(lower=1)
        return costs["failed"] / ended

    def explanation(self, line: ledger.Line) -> str:
        return self.explanations.get(f"{line.metric.upper()} {line.dataset} {line.method}", UNEXPLAINED)

    @cached_property
    def own_doubts(self) -> dict[str, tuple[plausibility.Doubt, str]]:
        """"LL wine gp" -> what the plausibility checks say about this score of ours, and the explanation."""
        found: dict[str, tuple[plausibility.Doubt, str]] = {}
        for doubt in ledger.own_doubts(self.report.overview):
            key = f"{doubt.metric.upper()} {doubt.dataset} {doubt.method}"
            found.setdefault(key, (doubt, self.doubts.get(key, UNEXPLAINED)))
        return found


# Fragments ---------------------------------------------------------------------------------------------------------


def size(board: Publication, _: str) -> str:
    """How much was run, in one paragraph."""
    results, cells = board.report.results, board.report.results.cells
    unit = {("cpu",): "CPU s", ("reference",): "reference s"}.get(tuple(set(cells["clock"])), "s")
    usual = cells.loc[cells["own_budget"] == "", "budget"].mode()
    own = cells.loc[cells["own_budget"] != "", ["entry", "budget"]].drop_duplicates().itertuples(index=False)
    longer = "".join(f", {entry} {_seconds(budget, unit)}" for entry, budget in own)
    complete, planned = board.num_complete_splits, len(board.planned)
    text = (
        f"{len(results.entries)} {'entry' if len(results.entries) == 1 else 'entries'}, {count(len(results.datasets), 'data set')}, "
        f"{_seconds(usual.iloc[0], unit) if len(usual) else 'no budget'} per fit{longer}; {complete} of {count(planned, 'split')} "
        f"complete, {int(results.finished.sum()):,} of {sum(board.planned.values()):,} cells ended, {int(results.failed.sum())} of them badly."
    )
    revisions = sorted({run["environment"].get("revision", "") for run in results.runs} - {""})
    text += f" Code: revision {', '.join(revisions)}." if revisions else ""
    left = planned - complete
    text += f" The board is partial: {count(left, 'split')} to go, and its order can change." if left else ""
    return f"{text}{fewer_splits(results)}{slower(results)}{other_options(results)}{_to_come(board)}"


def _to_come(board: Publication) -> str:
    """What the protocol that the store is named after has beyond the board; empty where that is nothing."""
    if board.store.stem not in registry.protocols().items:
        return ""
    protocol, results = load_protocol(board.store.stem, {}), board.report.results
    entries = [label for label in (registry.entry(name).label for name in protocol.methods) if label not in results.entries]
    splits = len(protocol.splits) - len(board.planned)
    parts = [f"{count(splits, 'more split')}"] if splits > 0 else []
    parts += [f"{count(len(entries), 'more entry', 'more entries')} ({', '.join(entries)})"] if entries else []
    return f" Not run, though in the protocol: {' and '.join(parts)}." if parts else ""


def _seconds(budget: str, unit: str) -> str:
    return re.sub(r"^([\d.]+)s$", rf"\1 {unit}", budget)


def winner(board: Publication, _: str) -> str:
    """Who wins, and where the best function-space method stands; first on all sets, then where everybody could run."""
    parts = [_winner_of(board, board.report, "")]
    if board.with_all is not None:
        overview = board.report.overview
        absent = [entry for entry in board.report.results.entries if entry not in (*overview.ranked, *overview.distrusted)]
        names = ", ".join(board.with_all.results.datasets)
        others = [entry for entry in absent if entry in board.with_all.overview.ranked]
        where = f"On the {count(len(board.with_all.results.datasets), 'data set')} that {', '.join(others)} can take too ({names})"
        if others:
            parts.append(_winner_of(board, board.with_all, where))
    return "\n\n".join(part for part in parts if part) or "Nothing is ranked yet."


def _winner_of(board: Publication, report: Report, where: str) -> str:
    sentences = []
    for key in ("crps", "ll", "rmse"):
        standing = report.standings.get(key)
        if standing is None:
            continue
        table, label = standing.table, standing.metric.label
        leader = str(table.index[0])
        own = [str(entry) for entry in table.index if board.family(str(entry)) == FUNCTION_SPACE]
        text = f"**{leader}** is first in {label} (mean rank {table['mean_rank'].iloc[0]:.2f})"
        if own and leader != own[0]:
            place = list(table.index).index(own[0]) + 1
            text += f", before every function-space method; the best of these is {own[0]}, place {place} ({table.loc[own[0], 'mean_rank']:.2f})"
        elif own:
            other = next((str(entry) for entry in table.index if board.family(str(entry)) != FUNCTION_SPACE), None)
            text += f", a function-space method; the best other is {other} ({table.loc[other, 'mean_rank']:.2f})" if other else ""
        sentences.append(text)
    if not sentences:
        return ""
    start = f"{where}: " if where else ""
    main = report.standings.get(report.overview.main_metric)
    firmness = _firmness(main) if main is not None else ""
    return f"{start}{'; '.join(sentences)}.{firmness}"


def _firmness(standing: Standing) -> str:
    table, label = standing.table, standing.metric.label
    if standing.num_sets < 2 or len(table) < 2:
        return ""
    leader = str(table.index[0])
    told = f" {leader} stays first in {label} in {100 * table['leads'].iloc[0]:.0f} % of resamples of data sets and splits"
    same = f"{len(standing.near(leader))} of {len(table) - 1} others cannot be told apart from it on {standing.num_sets} data sets"
    return f"{told}; {same} (Nemenyi's test of {len(table)} entries: their mean ranks of means differ by less than {standing.critical:.1f})."


def ranks(board: Publication, _: str) -> str:
    """The leaderboard: mean ranks with intervals, failures, notes."""
    heads, rows = _rank_table(board, _rank_with_interval)
    costs = board.report.overview.board
    rows = [[*row, f"{int(cells['failed'])} of {int(cells['cells'])}"] for row, (_, cells) in zip(rows, costs.iterrows(), strict=True)]
    notes = [f"- \\* `{entry}`: {note}." for entry, note in sorted(board.report.results.notes.items())]
    caption = f"{_ranked_over(board)}; in brackets 95 % intervals over resampled data sets and splits."
    bullets = "\n".join([*notes, *(f"- {text}" for text in board.report.overview.caveats)])
    return "\n\n".join([markdown.table(rows, [*heads, "failed"]), caption, bullets])


def board_table(board: Publication, _: str) -> str:
    """The leaderboard in short: mean ranks alone."""
    heads, rows = _rank_table(board, lambda row: f"{row['mean_rank']:.2f}")
    caption = f"{_ranked_over(board)}. – is not ranked."
    return "\n\n".join([markdown.table(rows, heads), caption])


def _ranked_over(board: Publication) -> str:
    each = board.report.overview.blocks[board.report.overview.main_metric].splits
    if each.empty:
        return "Nothing is ranked"
    splits = count(each.max(), "split") if each.min() == each.max() else f"{each.min()} to {each.max()} splits"
    return f"Mean rank over {count(len(each), 'data set')} × {splits} that every ranked entry has, lower is better"


def _rank_table(board: Publication, text: Callable[[pd.Series], str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: entry, family, its rank in each headline metric, and in the main one where every entry was run."""
    report = board.report
    standings = {f"{report.results.metrics[key].label} rank": report.standings[key] for key in report.results.headline if key in report.standings}
    main = report.overview.main_metric
    if board.with_all is not None and main in board.with_all.standings:
        small = board.with_all.standings[main]
        standings[f"{small.metric.label} rank, {count(small.num_sets, 'set')}"] = small
    rows = []
    for entry, row in report.overview.board.iterrows():
        name = f"`{entry}{' *' if row['note'] else ''}`"
        tables = (standing.table for standing in standings.values())
        rows.append([name, board.family(str(entry)), *(text(table.loc[entry]) if entry in table.index else "–" for table in tables)])
    return ["entry", "family", *standings], rows


def _rank_with_interval(row: pd.Series) -> str:
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.1f}, {row['high']:.1f}]"
    return f"{row['mean_rank']:.2f}{interval}"


def scores(board: Publication, _: str) -> str:
    """Means of the headline metrics on every data set."""
    parts, overview = [], board.report.overview
    for key in board.report.results.headline:
        shown = score_table(overview, key)
        rows = [
            [f"`{entry}`", *(text.removesuffix(" ± –") for text in row[1:])]
            for entry, row in zip(overview.board.index, shown["rows"], strict=True)
        ]
        parts += [f"**{shown['title']}.** {shown['caption']}", markdown.table(rows, ["entry", *shown["heads"]])]
    return "\n\n".join(parts)


def published(board: Publication, folder: str) -> str:
    """The verdicts on the published scores, and each shortfall with its explanation."""
    lines = board.judged
    verdicts = pd.Series([line.verdict for line in lines]).value_counts()
    told = ", ".join(f"{name} {verdicts[name]}" for name in ledger.VERDICTS if name in verdicts)
    reached = sum(line.verdict in ("reproduced", "better") for line in lines)
    text = f"Of the {len(lines)} published scores {reached} are reproduced or better: {told}."
    worse = [line for line in lines if line.verdict == "worse"]
    rows = [[f"{line.metric.upper()} {line.dataset}", line.method, line.printed, line.ours_text, board.explanation(line)] for line in worse]
    table = markdown.table(rows, ["score", "published column", "published", "ours", "why ours is worse"]) if rows else ""
    return "\n\n".join(filter(None, [text, ledger.banner(lines), table, f"All verdicts: [ledger.csv]({folder}ledger.csv)."]))


def measures(board: Publication, _: str) -> str:
    """What the board promises, and whether it holds."""
    rates = board.failure_rates
    above = [f"{entry} ({rate:.1%})" for entry, rate in rates.items() if rate > MOST_FAILURES]
    reached = sum(line.verdict in ("reproduced", "better") for line in board.judged)
    doubts = board.own_doubts.values()
    rows = [
        ["no entry fails in more than 1 % of its cells", "yes" if not above else f"no: {', '.join(above)}"],
        [f"at least {WANTED_REPRODUCED} of {NUM_PUBLISHED} published scores reproduced or better", f"{reached} of {len(board.judged)}"],
        ["plausibility checks on our own table", "all pass" if not doubts else f"{count(len(doubts), 'doubt')}, below"],
    ]
    told = [f"- {doubt.metric.upper()} of `{doubt.method}` on {doubt.dataset}, {doubt.explanation}: {why}." for doubt, why in doubts]
    return "\n\n".join(filter(None, [markdown.table(rows, ["measure", "now"]), "\n".join(told)]))


def pictures(board: Publication, folder: str) -> str:
    if "crps" not in board.report.standings:
        return "Nothing is ranked yet."
    return "\n".join(f"![{title}]({folder}{name}.svg)" for name, title in PICTURES.items())


PICTURES = {
    "critical-difference-crps": "Ranks of the data set means in CRPS, with the critical difference",
    "rank-over-time-crps": "Mean rank in CRPS against training seconds",
}


def drawn(board: Publication) -> dict[str, bytes]:
    """The pictures that can be drawn, by file name."""
    found = {}
    for stem, _, draw in figures.all_figures(board.report):
        if stem in PICTURES:
            found[f"{stem}.svg"] = figures.render(draw(), "svg")
    return found


FRAGMENTS: dict[str, Callable[[Publication, str], str]] = {
    "size": size, "winner": winner, "board": board_table, "ranks": ranks, "scores": scores, "published": published,
    "measures": measures, "pictures": pictures, "peers": lambda board, _: peers_table(board.report),
    "against-first": lambda board, _: against_first(board.report), "defaults": lambda *_: defaults(),
    "which-method": lambda *_: which_method(),
    "against-printed": lambda board, _: against_printed(board.report), "convergence": lambda board, _: convergence(board.store),
    "until": lambda board, _: until(board.report), "briefly": lambda board, _: briefly(board.report),
    "shapes": lambda board, _: shapes_of(board.store), "splits-to-settle": lambda board, _: splits_to_settle(board.report),
    "distances": lambda board, _: distances(board.truth_finals), "agreement": lambda board, _: agreement(board.truth_finals),
}  # fmt: skip


def filled(text: str, page: Path, board: Publication) -> str:
    """A page with every fragment between its markers made anew; those of results that are still to come stay empty."""
    awaited = board.awaited(text)

    def fragment(match: re.Match[str]) -> str:
        made: str
        if match[2] not in FRAGMENTS:
            raise unknown(f"fragment in {page.name}", match[2], FRAGMENTS)
        folder = os.path.relpath(board.store.parent.resolve(), page.parent.resolve()).replace(os.sep, "/")
        if match[3] in awaited and not match[4].strip():
            return match[0]
        chosen = board if match[3] is None else board.sibling(match[3])
        made = FRAGMENTS[match[2]](chosen, "" if folder == "." else f"{folder}/")
        return f"{match[1]}\n{made}\n\n{match[5]}"

    return MARKER.sub(fragment, text)
