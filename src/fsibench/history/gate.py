"""Two commits compared series by series: what `fsibench gate` does."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsibench.errors import UsageError
from fsibench.history import verdicts
from fsibench.history.checkouts import covers
from fsibench.history.duet import Absent, Pair, Pairs, Rounds
from fsibench.history.verdicts import Change, Scale
from fsibench.history.workers import Place, WorkerLost

# What is compared unless told: about a second of CPU time each, on a quiet machine.
USUAL = (
    "steps.*",
    "start.Command.time_command(list methods)",
    "start.Command.track_peak(list methods)",
    "blocks.*",
    "predict.*",
    "memory.Fit.peakmem_fit(*, 10000)",
    "quality.Quality.track_ll(*, boston)",
    "quality.Quality.track_crps(*, boston)",
    "quality.Quality.track_rmse(*, boston)",
)
# A duet goes on until the change is known so well, in per cent, or such a one is excluded, or its time is over.
WANTED_HALF_WIDTH, EXCLUDED = 2.3, 5.0
LEAST_COPIES = 4
# A change of so much of the tolerance is measured again by new processes, so often in all.
DOUBT, MEASUREMENTS = 0.5, 3
MEMORY_RUNS = 3
FIRST_SPLITS = 3  # where these agree to the last bit, the others will
LEAST_SPLITS = 5
SECONDS_PER_SERIES = 100.0

ABSENT, NOT_MEASURED = ("new", "gone"), "not measured"


@dataclass(frozen=True)
class Series:
    name: str
    kind: str
    scale: Scale
    splits: int


@dataclass(frozen=True)
class Outcome:
    """A verdict, or why there is none (`new`, `gone`, `not measured`)."""

    series: str
    verdict: str
    unit: str = ""
    base: float = math.nan
    head: float = math.nan
    change: Change | None = None
    pairs: int = 0
    seconds: float = 0.0
    note: str = ""
    samples: tuple[tuple[float, ...], ...] = ()  # what the change was computed from

    @property
    def is_regression(self) -> bool:
        return self.verdict == "regression"


def catalogue(place: Place) -> list[Series]:
    """What the suites offer, as the newer side sees them."""
    from fsibench.history.workers import Worker

    with Worker(place) as worker:
        answer = worker.ask("list")
    if "failed" in answer:
        raise UsageError(f"the suites cannot be loaded with {place.label}: {answer['failed']}")
    return [
        Series(row["name"], row["kind"], verdicts.scale_of(row["kind"], row["function"], row["unit"]), row["splits"])
        for row in answer["series"]
    ]


def chosen(found: Sequence[Series], patterns: Sequence[str]) -> list[Series]:
    for pattern in patterns:
        if not any(covers(pattern, series.name) for series in found):
            raise UsageError(f"no series is called {pattern!r}; `fsibench gate --list` shows them, `*` stands for any text.")
    wanted = patterns or USUAL
    return [series for series in found if any(covers(pattern, series.name) for pattern in wanted)]


def by_relevance(found: Sequence[Series], changed: Sequence[str]) -> list[Series]:
    """Series of methods whose files changed first; kinds in turn, so that a time limit cuts all of them."""
    touched = [file.split("/")[-1].removesuffix(".py") for file in changed if file.startswith("methods/")]

    def distance(series: Series) -> int:
        parameters = series.name.partition("(")[2]
        return 0 if any(parameters.startswith(name) for name in touched) else 1

    turns: dict[tuple[int, str], int] = {}
    keyed = []
    for series in found:
        group = (distance(series), series.name.split(".")[0])
        turns[group] = turns.get(group, 0) + 1
        keyed.append(((group[0], turns[group]), series))
    return [series for _, series in sorted(keyed, key=lambda item: item[0])]


def compare(
    base: Place,
    head: Place,
    series: Sequence[Series],
    limit: float | None = None,
    accepted: Mapping[str, str] | None = None,
    say: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """One outcome per series, in the order given; those that the time limit does not allow are not measured."""
    end = math.inf if limit is None else time.monotonic() + limit
    outcomes = []
    with Pairs(base, head) as pairs:
        for one in series:
            outcome = _timed_outcome(pairs, one, end)
            for pattern, reason in (accepted or {}).items():
                if outcome.is_regression and covers(pattern, one.name):
                    outcome = replace(outcome, verdict="accepted regression", note=reason)
            say(outcome)
            outcomes.append(outcome)
    return outcomes


def _timed_outcome(pairs: Pairs, series: Series, end: float) -> Outcome:
    start = time.monotonic()
    if start >= end:
        return Outcome(series.name, NOT_MEASURED, note="the time limit was reached")
    try:
        outcome = outcome_of(pairs, series, min(end, start + SECONDS_PER_SERIES))
    except WorkerLost as error:
        pairs.renew()
        outcome = Outcome(series.name, NOT_MEASURED, note=str(error))
    return replace(outcome, seconds=time.monotonic() - start)


def outcome_of(pairs: Pairs, series: Series, deadline: float) -> Outcome:
    """A score follows from its seed. A time or a peak also has the luck of two processes: others must say the same."""
    if series.kind == "track" and series.splits > 1:
        return _quality(pairs.get(), series, deadline)
    measured = _speed if series.kind == "time" else _memory
    found: list[Outcome] = []
    took = 0.0
    for left in range(MEASUREMENTS, 0, -1):
        start = time.monotonic()
        if found and start + took > deadline:
            break
        found.append(measured(pairs.get(), series, start + (deadline - start) / left))
        took = time.monotonic() - start
        together = _together(series, found)
        if together.change is None or abs(together.change.middle) < DOUBT * series.scale.tolerance:
            break
        if len(found) > 1 and all(one.verdict == together.verdict in ("regression", "improved") for one in found):
            break
        pairs.renew()
    return together if len(found) > 1 else _unconfirmed(together)


def _together(series: Series, found: Sequence[Outcome]) -> Outcome:
    changes = [one.change for one in found if one.change is not None]
    if len(found) == 1 or len(changes) < len(found):
        return found[-1]
    base, head = statistics.fmean(one.base for one in found), statistics.fmean(one.head for one in found)
    judged = _judged(series, verdicts.mean_change(changes), base, head, sum(one.pairs for one in found), found[0].note)
    return replace(judged, samples=tuple(part for one in found for part in one.samples))


def _unconfirmed(found: Outcome) -> Outcome:
    """What a single measurement may say."""
    if found.change is None:
        return found
    verdict = {"regression": "worse within noise", "improved": "unchanged"}.get(found.verdict, found.verdict)
    return replace(found, verdict=verdict)


def _speed(pair: Pair, series: Series, deadline: float) -> Outcome:
    copies: list[Rounds] = []
    for found in pair.rounds(series.name, deadline):
        if isinstance(found, Absent):
            return _absent(series, found)
        copies.append(found)
        change = verdicts.duet_change([copy.pairs() for copy in copies])
        if (len(copies) >= LEAST_COPIES and _precise(change, series.scale)) or time.monotonic() > deadline:
            break
    base, head = (
        1e3 * statistics.median(value for copy in copies for value in getattr(copy, side)) for side in ("base", "head")
    )
    samples = tuple(tuple(copy.pairs()) for copy in copies)
    return replace(_judged(series, change, base, head, sum(map(len, samples)), "ms"), samples=samples)


def _precise(change: Change, scale: Scale) -> bool:
    """Known well, or too small to be measured again while a change that matters is out of the question."""
    small = abs(change.middle) < DOUBT * scale.tolerance and max(-change.low, change.high) < EXCLUDED
    return small or change.high - change.low <= 2 * WANTED_HALF_WIDTH


def _memory(pair: Pair, series: Series, deadline: float) -> Outcome:
    """Each value from a fresh copy of the process."""
    do = "peak" if series.kind == "peak" else "track"
    values: list[tuple[float, float]] = []
    for _ in range(MEMORY_RUNS):
        pair.both("fork")
        absent = pair.open(series.name)
        answers = [] if absent else pair.both(do)
        for worker in pair.sides:
            worker.leave()
        absent = absent or _failure(answers)
        if absent is not None:
            return _absent(series, absent)
        values.append((answers[0]["value"], answers[1]["value"]))
        if time.monotonic() > deadline:
            break
    base, head = zip(*values, strict=True)
    change = verdicts.separated_change(base, head)
    return _judged(series, change, statistics.median(base), statistics.median(head), len(values), "MB")


def _quality(pair: Pair, series: Series, deadline: float) -> Outcome:
    values: list[tuple[float, float]] = []
    for answers in _splits(pair, series):
        if isinstance(answers, Absent):
            return _absent(series, answers)
        values.append(answers)
        if len(values) >= FIRST_SPLITS and (_settled(values, series.scale) or time.monotonic() > deadline):
            break
    known = [(base, head) for base, head in values if not math.isnan(base) and not math.isnan(head)]
    lost = sum(math.isnan(head) and not math.isnan(base) for base, head in values)
    if not known:
        note = "no split reaches it any more" if lost else "neither side has a value"
        return Outcome(series.name, "regression" if lost else NOT_MEASURED, note=note)
    base, head = zip(*known, strict=True)
    change = verdicts.paired_change(base, head, series.scale)
    found = _judged(series, change, statistics.fmean(base), statistics.fmean(head), len(known), "")
    return replace(found, samples=tuple(known))


def _settled(values: Sequence[tuple[float, float]], scale: Scale) -> bool:
    """Equal to the last bit, or known to within the tolerance."""
    if all(base == head for base, head in values):
        return True
    base, head = zip(*values, strict=True)
    change = verdicts.paired_change(base, head, scale)
    return len(values) >= LEAST_SPLITS and change.high - change.low <= 2 * scale.tolerance


def _splits(pair: Pair, series: Series) -> Iterator[tuple[float, float] | Absent]:
    for split in range(series.splits):
        absent = pair.open(series.name, split)
        answers = [] if absent else pair.both("track")
        absent = absent or _failure(answers)
        yield absent or (answers[0]["value"], answers[1]["value"])


def _failure(answers: Sequence[dict[str, Any]]) -> Absent | None:
    for side, answer in zip(("base", "head"), answers, strict=False):
        if "value" not in answer:
            return Absent(side, answer["failed"], failed=True)
    return None


def _absent(series: Series, absent: Absent) -> Outcome:
    if absent.side == "base":
        return Outcome(series.name, "new", note=f"the base does not have it: {absent.reason}")
    if absent.failed:
        return Outcome(series.name, "regression", note=f"it fails now: {absent.reason}")
    return Outcome(series.name, "gone", note=absent.reason)


def _judged(series: Series, change: Change, base: float, head: float, pairs: int, unit: str) -> Outcome:
    verdict = change.verdict(series.scale.tolerance)
    return Outcome(series.name, verdict, series.scale.unit, base, head, change, pairs, note=unit)
