"""Tables of verdicts and of change points for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from fsibench.history.gate import NOT_MEASURED, Outcome
from fsibench.history.trends import Trend

WORST_FIRST = ("regression", "accepted regression", "worse within noise", "improved", "unchanged", "gone", "new", NOT_MEASURED)


def gate_table(outcomes: Sequence[Outcome], every: bool = False) -> str:
    """Every outcome that says something; the unchanged ones, and those without a measurement, are counted."""
    shown = sorted(outcomes, key=lambda outcome: WORST_FIRST.index(outcome.verdict))
    quiet = (NOT_MEASURED, "new", "gone")
    rows = [_row(outcome) for outcome in shown if every or outcome.verdict not in quiet]
    notes = [f"{one.series}: {one.note}" for one in shown if one.note and (one.verdict.endswith("regression") or one.verdict == "gone")]
    counts = Counter(outcome.verdict for outcome in outcomes)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict])
    headers = ("series", "base", "head", "change", "99 % interval", "pairs", "verdict")
    table = tabulate(rows, headers=headers, disable_numparse=True) if rows else ""
    return "\n".join(part for part in (table, *notes, summary) if part)


def _row(outcome: Outcome) -> tuple[str, ...]:
    unit = outcome.note if outcome.note in ("ms", "MB") else ""
    values = [f"{value:.4g} {unit}".strip() if not math.isnan(value) else "" for value in (outcome.base, outcome.head)]
    return (outcome.series, *values, *_change(outcome), str(outcome.pairs or ""), outcome.verdict)


def _change(outcome: Outcome) -> tuple[str, str]:
    """Worse is positive, whatever the direction of the metric."""
    change = outcome.change
    if change is None:
        return "", ""
    digits = 1 if outcome.unit == "%" else 3
    if math.isinf(change.high):
        return f"{change.middle:+.{digits}f} {outcome.unit}", "too few"
    return f"{change.middle:+.{digits}f} {outcome.unit}", f"{change.low:+.{digits}f} to {change.high:+.{digits}f}"


def history_table(trends: Sequence[Trend]) -> str:
    """Every change point: between which commits, by how much, who says so."""
    rows = [
        (trend.name, point.commits, f"{point.before:.4g}", f"{point.after:.4g}", point.size, point.word, ", ".join(point.votes), point.accepted)
        for trend in trends
        for point in trend.points
    ]
    headers = ("series", "commits", "before", "after", "change", "", "detectors", "accepted")
    return tabulate(rows, headers=headers, disable_numparse=True) if rows else "no series changed"
