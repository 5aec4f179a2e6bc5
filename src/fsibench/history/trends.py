"""Kept results as series over commits, with the points at which they changed."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fsibench.history.change_points import Step, change_points
from fsibench.history.checkouts import covers
from fsibench.history.record import CommitRecord
from fsibench.history.verdicts import Scale, scale_of

# A record holds one process per commit, not a duet: smaller steps are not told from the machine's moods.
LEAST_PER_CENT, LEAST_NATS, LEAST_PLAIN = 10.0, 0.02, 0.02
LEAST_COMMITS = 5


@dataclass(frozen=True)
class Point:
    """A step: the last commit measured before it, the first one after, and how large it is."""

    place: int  # among the values of the trend
    first: str
    last: str
    before: float
    after: float
    size: str
    word: str  # "worse" or "better"
    votes: tuple[str, ...]
    accepted: str = ""

    @property
    def commits(self) -> str:
        return f"{self.first[:10]}..{self.last[:10]}"


@dataclass(frozen=True)
class Trend:
    name: str
    unit: str
    shas: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    points: tuple[Point, ...]

    @property
    def middles(self) -> list[float]:
        return [middle(repeats, self.unit) for repeats in self.values]


def middle(repeats: Sequence[float], unit: str) -> float:
    """The median of rounds; the mean over splits, which are no repeats of one another."""
    return statistics.median(repeats) if unit in ("T", "MB") else statistics.fmean(repeats)


def trends(records: Sequence[CommitRecord], accepted: Mapping[str, Mapping[str, str]] | None = None) -> list[Trend]:
    """One trend per series that enough commits have; `accepted` holds the acceptances of every commit, kept or not."""
    names = sorted({name for record in records for name in record.series})
    found = (_trend(name, records, accepted or {}) for name in names)
    return [trend for trend in found if len(trend.shas) >= LEAST_COMMITS]


def _trend(name: str, records: Sequence[CommitRecord], accepted: Mapping[str, Mapping[str, str]]) -> Trend:
    kept = [record for record in records if name in record.series]
    unit = kept[-1].series[name].unit
    shas = tuple(record.sha for record in kept)
    values = tuple(record.series[name].values for record in kept)
    scale = _scale(name, unit)
    points = []
    for step in _steps(values, [record.machine if unit == "T" else "" for record in kept]):
        edges = (shas[step.place - 1], shas[step.place])
        size = _size(step.before, step.after, scale)
        if size is None:
            continue
        worse = (step.after > step.before) != scale.larger_is_better
        reasons = [reason for pattern, reason in accepted.get(edges[1], {}).items() if covers(pattern, name)]
        points.append(
            Point(step.place, *edges, step.before, step.after, size, "worse" if worse else "better", step.votes, "; ".join(reasons))
        )
    return Trend(name, unit, shas, values, tuple(points))


def _steps(values: Sequence[Sequence[float]], machines: Sequence[str]) -> Iterator[Step]:
    """Change points within each stretch of one machine: T does not cancel what small operations cost on another."""
    for _, stretch in itertools.groupby(range(len(values)), key=lambda place: machines[place]):
        places = list(stretch)
        for step in change_points([values[place] for place in places]) if len(places) >= LEAST_COMMITS else []:
            yield replace(step, place=places[0] + step.place)


def _scale(name: str, unit: str) -> Scale:
    function = name.partition("(")[0].split(".")[-1]
    kind = "time" if function.startswith("time_") else "peak" if function.startswith("peakmem_") else "track"
    return scale_of(kind, function, unit)


def _size(before: float, after: float, scale: Scale) -> str | None:
    """As text; None where it is too small to be worth a line."""
    if scale.unit == "%":
        change = 100.0 * (after - before) / abs(before) if before else 0.0
        return f"{change:+.0f} %" if abs(change) >= LEAST_PER_CENT else None
    least = LEAST_NATS if scale.unit == "nats" else LEAST_PLAIN
    return f"{after - before:+.3f} {scale.unit}".strip() if abs(after - before) >= least else None
