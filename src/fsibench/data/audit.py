"""Checks of a table before anything is trained: properties that make its scores misleading.

    index      row numbers among the inputs               copy       equal to another input
    id         whole numbers, all different               constant   one value only
    target     gives the target away                      sentinel   a number such as -999 that stands for none
    classes    a target of few values                     digits     whole numbers beyond 2^53, which lose digits
    twins      test rows that are also training rows      outlier    one value that dwarfs all others
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fsibench.data.arrays import Floats, Rows
from fsibench.data.tables import Table, TableDataset, twin_groups

MOST_ROWS = 100_000  # of a large table that are looked at, evenly spaced
MOST_TWIN_VALUES = 20_000_000  # beyond this many numbers, counting twins takes more than a few seconds
FEW_VALUES = 10
FEW_ROWS = 10  # with fewer rows everything looks like an index
SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0)
_ALONE = {"classes": "few-valued target"}


@dataclass(frozen=True)
class Finding:
    """One thing to know: its kind, the column (empty: the table), and a sentence."""

    kind: str
    column: str
    sentence: str


@dataclass(frozen=True)
class Twins:
    """Rows that repeat an earlier row, and the share of test rows with an equal row in training, mean over splits."""

    repeats: int
    share: float


def audit(dataset: TableDataset, scheme: str = "standard", splits: tuple[int, ...] = (0,)) -> list[Finding]:
    """Everything found; empty for a table that gives no reason to worry."""
    table = dataset.rows()
    return columns(table) + twin_findings(twins_across(dataset, table, scheme, splits))


def twin_findings(twins: Twins | None) -> list[Finding]:
    if twins is None or not twins.share:
        return []
    share = f"{100 * twins.share:.2g} % of the test rows have an equal row in training"
    cure = "dedupe=true keeps one of each, --scheme twins keeps them on one side"
    return [Finding("twins", "", f"{share} ({twins.repeats} rows repeat another); {cure}")]


def in_short(findings: Iterable[Mapping[str, str]]) -> str:
    """A few words for one line: `2 constant, 27 % twins`."""
    counts = Counter(finding["kind"] for finding in findings)
    share = next((finding["sentence"].partition(" %")[0] for finding in findings if finding["kind"] == "twins"), "")
    words = [_ALONE.get(kind, f"{count} {kind}") for kind, count in counts.items() if kind != "twins"]
    return ", ".join(words + ([f"{share} % twins"] if share else []))


def twins_across(dataset: TableDataset, table: Table, scheme: str, splits: tuple[int, ...]) -> Twins:
    groups = twin_groups(table)
    repeats = len(groups) - len(np.unique(groups))
    if not repeats:
        return Twins(0, 0.0)
    shares = [_shared(groups, *dataset.split_rows(table, scheme, index)) for index in splits]
    return Twins(repeats, float(np.mean(shares)))


def _shared(groups: Rows, train: Rows, test: Rows) -> float:
    return float(np.isin(groups[test], groups[train]).mean())


def columns(table: Table) -> list[Finding]:
    """What single columns show."""
    step = max(1, len(table) // MOST_ROWS)
    y = np.asarray(table.y[::step])
    found = _target(y, table.target)
    seen: dict[bytes, str] = {}
    for place, name in enumerate(table.columns):
        column = np.asarray(table.x[::step, place])
        first = seen.setdefault(np.ascontiguousarray(column).tobytes(), name)
        if first != name:
            found.append(Finding("copy", name, f"equal to {first!r}"))
        if name not in table.levels:
            found += _input(column[~np.isnan(column)], y[~np.isnan(column)], name, len(table.columns))
    return found


def _target(y: Floats, name: str) -> list[Finding]:
    values = len(np.unique(y))
    if values > FEW_VALUES:
        return []
    kind = "binary" if values == 2 else f"one of {values} values"
    return [Finding("classes", name, f"the target is {kind}; densities and intervals mean little for it")]


def _input(column: Floats, y: Floats, name: str, num_inputs: int) -> list[Finding]:
    if len(column) == 0:
        return [Finding("constant", name, "no value at all")]
    low, high = float(column.min()), float(column.max())
    if low == high:
        return [Finding("constant", name, f"always {low:g}")]
    found = []
    whole = bool((column == np.round(column)).all())
    if whole and len(column) >= FEW_ROWS:
        found += _row_numbers(column, name)
    if max(abs(low), abs(high)) >= 2**53 and whole:
        found.append(Finding("digits", name, f"whole numbers up to {max(abs(low), abs(high)):.3g}; 2^53 is the most"))
    if num_inputs > 1 and len(column) >= FEW_ROWS and _gives_away(column, y):
        found.append(Finding("target", name, "sorts the rows as the target does: a copy or a function of it?"))
    return found + _strange_values(column, name)


def _row_numbers(column: Floats, name: str) -> list[Finding]:
    steps = np.diff(column)
    if (steps == steps[0]).all() or (steps > 0).all() or (steps < 0).all():
        return [Finding("index", name, f"whole numbers in row order; row numbers? drop={name}")]
    if len(np.unique(column)) == len(column) and len(column) > 5 * FEW_ROWS:
        return [Finding("id", name, f"whole numbers, all different; an id? drop={name}")]
    return []


def _gives_away(column: Floats, y: Floats) -> bool:
    """Sorted by this column, the target moves in steps hardly larger than sorted by itself."""
    smallest = float(np.mean(np.diff(np.sort(y)) ** 2))
    spread = float(np.var(y))
    steps = float(np.mean(np.diff(y[np.argsort(column, kind="stable")]) ** 2))
    return spread > 0 and smallest < 0.01 * spread and steps <= 3 * smallest + 1e-9 * spread


def _strange_values(column: Floats, name: str) -> list[Finding]:
    values, counts = np.unique(column, return_counts=True)
    if len(values) < 3:
        return []
    for place, others in ((0, values[1:]), (-1, values[:-1])):
        value, count = values[place], counts[place]
        gap, reach = np.abs(others - value).min(), np.ptp(others)
        if gap > 1e4 * reach:
            return [Finding("outlier", name, f"the value {value:.3g} dwarfs all others")]
        if value in SENTINELS and count > 1 and gap > reach:
            return [Finding("sentinel", name, f"{value:g} occurs {count} times, far from all others; missing?")]
    return []
