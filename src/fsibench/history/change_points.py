"""Where a series changed over the commits: three detectors vote, and two must agree.

- `steps`: the best fit by constants in absolute value, each further constant at a price (asv's step detection).
- `energy`: E-divisive (Matteson, James 2014): split where the energy distance between both sides is largest, as long as
  a permutation test finds it too large for chance.
- `stretch`: the values of a commit and the one after it against those of the stable stretch before, in a test of means.

A time is a number per commit that scatters; so are scores, through seeds. Only detectors that agree on a commit, give or
take one, count. All of them work on values where larger is worse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Values = np.ndarray[Any, np.dtype[np.float64]]

LEAST_VOTES = 2
LEVEL, LEVEL_PER_COMMIT = 0.01, 0.001  # of a test once per stretch, and of one at every commit
PERMUTATIONS = 199


@dataclass(frozen=True)
class Step:
    """Values from `place` on differ from those before; `votes` are the names of the detectors that say so."""

    place: int
    before: float
    after: float
    votes: tuple[str, ...]


def change_points(values: Sequence[Sequence[float]]) -> list[Step]:
    """Where repeated values, one sequence per commit, step from one level to another."""
    middles = np.array([float(np.median(repeats)) for repeats in values])
    found = {"steps": steps(middles), "energy": energy(middles), "stretch": stretch(values)}
    places = _agreed(found)
    edges = [0, *places, len(middles)]
    levels = [float(np.median(middles[start:end])) for start, end in itertools.pairwise(edges)]
    agreed = []
    for number, place in enumerate(places):
        votes = tuple(name for name, votes in found.items() if any(abs(vote - place) <= 1 for vote in votes))
        agreed.append(Step(place, levels[number], levels[number + 1], votes))
    return [step for step in agreed if step.before != step.after]


def _agreed(found: dict[str, list[int]]) -> list[int]:
    """Places with enough votes within one commit; of neighbours the one with the most votes, then the earliest."""
    candidates = sorted({place for places in found.values() for place in places})
    counts = {place: sum(any(abs(vote - place) <= 1 for vote in votes) for votes in found.values()) for place in candidates}
    exact = {place: sum(place in votes for votes in found.values()) for place in candidates}
    kept: list[int] = []
    for place in sorted(candidates, key=lambda place: (-counts[place], -exact[place], place)):
        if counts[place] >= LEAST_VOTES and all(abs(place - other) > 1 for other in kept):
            kept.append(place)
    return sorted(kept)


def steps(values: Values) -> list[int]:
    """Starts of the pieces of the piecewise constant with the smallest Σ|y − level| + price · pieces."""
    count = len(values)
    if count < 4:
        return []
    # The scale of the noise from neighbours, which a few steps hardly move; the price is BIC's for a place and a level.
    noise = float(np.median(np.abs(np.diff(values)))) / math.sqrt(2) or 1e-3 * float(np.abs(values).mean()) or 1e-12
    price = 2.0 * noise * math.log(count)
    cost = np.array([[_deviation(values[start:end]) if end > start else 0.0 for end in range(count + 1)] for start in range(count)])
    best, origin = [0.0], [0]
    for end in range(1, count + 1):
        totals = [best[start] + cost[start, end] + price for start in range(end)]
        origin.append(int(np.argmin(totals)))
        best.append(totals[origin[-1]])
    places, end = [], count
    while end > 0:
        end = origin[end]
        places.append(end)
    return sorted(place for place in places if place > 0)


def _deviation(values: Values) -> float:
    return float(np.abs(values - np.median(values)).sum())


def energy(values: Values, least: int = 2) -> list[int]:
    """Hierarchical splits by the energy distance, each kept if a permutation test of its stretch is significant."""
    generator = np.random.default_rng(0)
    places: list[int] = []
    stretches = [(0, len(values))]
    while stretches:
        start, end = stretches.pop()
        part = values[start:end]
        if len(part) < 2 * least + 1:
            continue
        size, place = _largest_energy(part, least)
        larger = sum(_largest_energy(generator.permutation(part), least)[0] >= size for _ in range(PERMUTATIONS))
        if (larger + 1) / (PERMUTATIONS + 1) <= LEVEL and size > 0.0:
            places.append(start + place)
            stretches += [(start, start + place), (start + place, end)]
    return sorted(places)


def _largest_energy(values: Values, least: int) -> tuple[float, int]:
    """max over k of (k (n − k) / n) · (2 E|X − Y| − E|X − X'| − E|Y − Y'|), with its place."""
    count = len(values)
    table = np.abs(values[:, None] - values[None, :]).cumsum(0).cumsum(1)
    table = np.pad(table, ((1, 0), (1, 0)))
    places = np.arange(least, count - least + 1)
    left = table[places, places]
    cross = table[places, count] - left
    right = table[count, count] - left - 2 * cross
    first, second = places, count - places
    distance = 2 * cross / (first * second) - left / np.maximum(first * (first - 1), 1) - right / np.maximum(second * (second - 1), 1)
    sizes = first * second / count * distance
    best = int(np.argmax(sizes))
    return float(sizes[best]), int(places[best])


def stretch(values: Sequence[Sequence[float]], least: int = 3) -> list[int]:
    """Commits whose values, with those of the next one, lie apart from the stable stretch before them.

    Splits are paired where both have as many repeats: each split then has its own level.
    """
    places: list[int] = []
    start = 0
    for place in range(1, len(values) - 1):
        if place - start < least:
            continue
        before, after = values[start:place], values[place : place + 2]
        if _apart(before, after):
            places.append(place)
            start = place
    return places


def _apart(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> bool:
    """Whether the later commits differ from the stretch by more than its commits differ among themselves."""
    if len({len(repeats) for repeats in (*before, *after)}) == 1:
        own = np.mean(before, axis=0)  # the level of each split
        first, second = (np.mean(np.asarray(part) - own, axis=1) for part in (before, after))
    else:
        first, second = (np.array([np.median(repeats) for repeats in part]) for part in (before, after))
    spread = float(first.std(ddof=1))
    difference = abs(float(second.mean() - first.mean()))
    if np.abs(second - first.mean()).min() < difference / 2:
        return False  # only one of them differs: the step is later, or it was an odd commit
    if spread == 0.0:
        return difference > 1e-9 * max(abs(float(np.mean(before[0]))), 1e-12)
    scale = spread * math.sqrt(1 / len(first) + 1 / len(second))
    return bool(2 * stats.t.sf(difference / scale, len(first) - 1) <= LEVEL_PER_COMMIT)
