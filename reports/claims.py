"""Sentences that state a result, each with a condition that a machine evaluates against the committed results.

    [[claim]]
    id = "ensemble-over-bbb"
    text = "ensemble has better CRPS than bbb on at least 6 of 8 sets."
    holds = 'better("crps", "ensemble", "bbb", at_least=6, of=8)'
    splits = 5                      # it is judged when what it compares has so many splits; before that it is open

A page cites it by repeating the text before a marker: `... on at least 6 of 8 sets. <!-- claim ensemble-over-bbb -->`. A cited
claim must hold. Conditions are expressions of the functions of `Facts`, numbers, texts, comparisons, `and`, `or`, `not`;
they are read as syntax and never executed as code.
"""

from __future__ import annotations

import ast
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fsibench.errors import UsageError, unknown
from fsibench.reports.analysis import ranking, truth
from fsibench.reports.analysis.pairs import NOTHING_TESTED, split_scores
from fsibench.reports.analysis.standing import Standing
from fsibench.reports.publication import Publication

State = Literal["holds", "fails", "open"]
CITATION = re.compile(r"(?<!`)<!-- claim ([a-z0-9-]+) -->")
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class Unknown(Exception):
    """The board does not hold what a condition asks for."""


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    holds: str
    splits: int = 5
    store: str = "uci"


@dataclass(frozen=True)
class Facts:
    """What a condition may ask of a board. Each function is one name in conditions."""

    board: Publication
    _used: list[int] = field(default_factory=list)  # numbers of splits behind what was asked

    @property
    def _fewest_splits(self) -> int:
        return min(self._used, default=self.board.num_complete_splits)

    def better(self, metric: str, a: str, b: str, at_least: int | None = None, of: int | None = None) -> int | bool:
        """Data sets on which the mean of `a` over their common splits is better than that of `b`; with `at_least` whether there are so many."""
        means = self._means(metric, a, b)
        if of is not None and len(means) != of:
            raise Unknown(f"{a} and {b} were both run on {len(means)} data sets, not on {of}")
        gains = [first > second if self._metric(metric).larger_is_better else first < second for first, second in means]
        return sum(gains) if at_least is None else sum(gains) >= at_least

    def separated(self, metric: str, a: str, b: str) -> int:
        """Data sets on which `a` is better than `b` by the corrected paired test, 5 % after Holm."""
        table = self.board.report.pairs.get(self._metric(metric).key, NOTHING_TESTED)
        table = table[table["a"].isin([a, b]) & table["b"].isin([a, b])]
        table = table[table["p_holm"].notna()]
        if table.empty:
            raise Unknown(f"{a} and {b} were not tested against each other in {metric}")
        self._used.append(int(table["splits"].min()))
        sign = 1.0 if self._metric(metric).larger_is_better else -1.0
        clear = table[table["p_holm"] < 0.05]
        forward = clear[(clear["a"] == a) & (clear["b"] == b)]["difference"]
        backward = clear[(clear["a"] == b) & (clear["b"] == a)]["difference"]
        return int((sign * forward > 0).sum() + (sign * backward < 0).sum())

    def rank(self, metric: str, entry: str) -> float:
        """Mean rank over data set × split."""
        return float(self._standing(metric, entry)["mean_rank"])

    def place(self, metric: str, entry: str) -> int:
        """1 for the entry with the best mean rank."""
        self._standing(metric, entry)
        return list(self.board.report.standings[metric].table.index).index(entry) + 1

    def best_of(self, metric: str, *entries: str) -> str:
        """The one of these entries with the best mean rank among themselves."""
        return str(self._among(metric, entries).table.index[0])

    def together(self, metric: str, a: str, b: str, *others: str) -> bool:
        """Whether Nemenyi's test over data sets, of these entries alone, does not tell `a` from `b`."""
        return b in self._among(metric, (a, b, *others)).near(a)

    def tier(self, metric: str, entry: str) -> int:
        return int(self._standing(metric, entry)["tier"])

    def first(self, metric: str) -> str:
        """The entry with the best mean rank."""
        if metric not in self.board.report.standings:
            raise Unknown(f"nothing is ranked in {metric}")
        self._note_blocks(self.board.report.standings[metric].blocks)
        return str(self.board.report.standings[metric].table.index[0])

    def score(self, metric: str, dataset: str, entry: str) -> float:
        """Mean over splits."""
        means = self.board.report.overview.means(self._metric(metric).key, dataset)
        if entry not in means:
            raise Unknown(f"{entry} has no {metric} on {dataset}")
        self._used.append(int(self.board.report.overview.scores[metric][dataset, entry]["splits"]))
        return float(means[entry])

    def failures(self, entry: str) -> float:
        """Share of its cells that failed."""
        if entry not in self.board.failure_rates.index:
            raise Unknown(f"{entry} was not run")
        return float(self.board.failure_rates[entry])

    def distance(self, entry: str, place: Literal["", "outside"] = "") -> float:
        """Mean over problems of Wasserstein-2 from the exact predictive, inside the data or outside."""
        means = self._truth()
        if entry not in set(means["entry"]):
            raise Unknown(f"{entry} has no distance from a reference posterior")
        return float(means.loc[means["entry"] == entry, f"truth_w2_{place}".rstrip("_")].mean())

    def agreement(self, near: str, good: str, bound: Literal["value", "low", "high"] = "value") -> float:
        """Rank correlation over all entries of a distance ("w2", "kl", ...) with a score, or an end of its interval."""
        for line in truth.correlations(self._truth()):
            if (line.distance, line.score) == (near, good):
                return float(getattr(line, bound))
        raise Unknown(f"there is no rank correlation of {near} with {good}")

    def reproduced(self, column: str | None = None) -> int:
        """Published scores that are reproduced or better, of one column or of all."""
        lines = [line for line in self.board.judged if column is None or line.method == column]
        return sum(line.verdict in ("reproduced", "better") for line in lines)

    def _truth(self) -> pd.DataFrame:
        if self.board.truth_finals.empty:
            raise Unknown("no problem of the board has a reference posterior")
        return truth.table(self.board.truth_finals)

    def _metric(self, key: str) -> Any:
        if key not in self.board.report.results.metrics:
            raise Unknown(f"the board has no metric {key}")
        return self.board.report.results.metrics[key]

    def _standing(self, metric: str, entry: str) -> Any:
        standing = self.board.report.standings.get(self._metric(metric).key)
        if standing is None or entry not in standing.table.index:
            raise Unknown(f"{entry} is not ranked in {metric}")
        self._note_blocks(standing.blocks)
        return standing.table.loc[entry]

    def _among(self, metric: str, entries: Sequence[str]) -> Standing:
        overview, key = self.board.report.overview, self._metric(metric).key
        table = overview.results.table(key)
        if missing := set(entries) - set(table["entry"]):
            raise Unknown(f"{', '.join(sorted(missing))} has no {metric}")
        blocks = ranking.complete_blocks(table, entries=entries)
        if set(blocks.datasets) != set(overview.results.datasets):
            raise Unknown(f"{', '.join(entries)} were not all run on every data set")
        self._note_blocks(blocks)
        return Standing(overview.results.metrics[key], blocks)

    def _note_blocks(self, blocks: ranking.Blocks) -> None:
        self._used.append(int(blocks.splits.min()))

    def _means(self, metric: str, a: str, b: str) -> list[tuple[float, float]]:
        overview, key = self.board.report.overview, self._metric(metric).key
        if {a, b} <= set(overview.results.table(key)["entry"]):
            both = split_scores(overview, key, [a, b]).dropna()
            if len(both):
                self._used.append(int(both.groupby(level="dataset", observed=True).size().min()))
                return [(float(row[a]), float(row[b])) for _, row in both.groupby(level="dataset", observed=True).mean().iterrows()]
        raise Unknown(f"{a} and {b} have no data set in common")


FUNCTIONS = sorted(name for name in vars(Facts) if not name.startswith("_") and callable(getattr(Facts, name)))


def read(path: Path) -> list[Claim]:
    """The claims of a file; all its mistakes are found before anything is evaluated."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the claims {path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise UsageError(f"the claims {path} are not valid TOML: {error}.") from None
    claims = []
    for item in content.get("claim", []):
        fields = Claim.__dataclass_fields__
        for key in item.keys() - fields.keys():
            raise unknown(f"key of a claim in {path}", key, fields)
        for key in {"id", "text", "holds"} - item.keys():
            raise UsageError(f"{path}: a claim lacks the key {key!r}: {item!r}.")
        claims.append(Claim(**item))
        _parsed(claims[-1])
    for name in {claim.id for claim in claims if sum(other.id == claim.id for other in claims) > 1}:
        raise UsageError(f"{path}: two claims are called {name!r}.")
    return claims


def judge(claim: Claim, board: Publication) -> tuple[State, str]:
    """Whether a claim holds on a board, and why it does not or cannot be said."""
    facts = Facts(board)
    try:
        value = _value(_parsed(claim), facts)
    except Unknown as error:
        return "open", str(error)
    if facts._fewest_splits < claim.splits:
        return "open", f"it is of {facts._fewest_splits} splits and needs {claim.splits}"
    if not isinstance(value, bool):
        raise UsageError(f"claim {claim.id}: {claim.holds!r} is {value!r}, not true or false; compare it with something.")
    return ("holds", "") if value else ("fails", claim.holds)


def _parsed(claim: Claim) -> ast.expr:
    try:
        tree = ast.parse(f"({claim.holds})", mode="eval").body  # in brackets it may go over several lines
    except SyntaxError as error:
        raise UsageError(f"claim {claim.id}: cannot read {claim.holds!r}: {error.msg}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS):
            raise unknown(f"function in claim {claim.id}", ast.unparse(node.func), FUNCTIONS)
    return tree


def _value(node: ast.expr, facts: Facts) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if all(word.arg for word in keywords):
            named = {str(word.arg): _value(word.value, facts) for word in keywords}
            try:
                return getattr(facts, name)(*(_value(argument, facts) for argument in arguments), **named)
            except TypeError as error:
                raise UsageError(f"in a claim: {ast.unparse(node)}: {error}.") from None
        case ast.Compare(left=left, ops=[kind], comparators=[right]) if type(kind) in COMPARISONS:
            return COMPARISONS[type(kind)](_value(left, facts), _value(right, facts))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in ARITHMETIC:
            return ARITHMETIC[type(kind)](_value(left, facts), _value(right, facts))
        case ast.BoolOp(op=kind, values=values):
            found = [_value(value, facts) for value in values]
            return all(found) if isinstance(kind, ast.And) else any(found)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, facts)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, facts)
    raise UsageError(f"in a claim: {ast.unparse(node)!r} is not allowed; use {', '.join(FUNCTIONS)}, numbers and comparisons.")


def citation_problems(pages: Mapping[str, str], states: Mapping[str, tuple[Claim, State, str]]) -> Iterable[str]:
    """One sentence for each citation in a page that its claim does not carry."""
    for page, text in pages.items():
        for match in CITATION.finditer(text):
            if match[1] not in states:
                yield f"{page} cites the claim {match[1]!r}, which does not exist"
                continue
            claim, state, why = states[match[1]]
            before = " ".join(text[: match.start()].split())
            if not before.endswith(" ".join(claim.text.split())):
                yield f"{page}: the text before <!-- claim {claim.id} --> is not that of the claim: {claim.text!r}"
            if state != "holds":
                yield f"{page} cites {claim.id!r}, which {'does not hold' if state == 'fails' else 'is open'}: {why}"
