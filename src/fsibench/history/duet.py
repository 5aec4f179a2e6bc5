"""Two commits timed at the same time, one core each, swapping cores after every round.

Whatever disturbs the machine disturbs both sides of a round, so that the ratio of their CPU times is steadier than
either of them. Two rounds, one on each core, make a pair; a core that is slower than the other cancels within it. Short
rounds are worth more than long ones: neighbours change within tens of milliseconds. Where data lie in memory makes a
process faster or slower by a few per cent for as long as it lives, so that every few rounds both sides go on in a
fresh copy of themselves. A copy inherits much of this luck from the process that it is a fork of; only `Pairs.renew`
draws again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from fsibench.history.workers import Place, Worker, cores

SECONDS_PER_ROUND = 0.012  # of CPU time on each side
ROUNDS_PER_COPY, LEAST_ROUNDS = 24, 6
SECONDS_PER_COPY = 1.5  # of CPU time on each side: where a call takes longer than a round, rounds are fewer
WARM_UP_ROUNDS = 2


@dataclass(frozen=True)
class Absent:
    """A side that does not have the series, or fails in it, and why."""

    side: str
    reason: str
    failed: bool


@dataclass(frozen=True)
class Rounds:
    """CPU seconds of a call on each side, round by round, of one copy of both processes."""

    base: tuple[float, ...]
    head: tuple[float, ...]

    def pairs(self) -> list[float]:
        """log(head / base), averaged over the two rounds of each pair."""
        ratios = [math.log(head / base) for base, head in zip(self.base, self.head, strict=True)]
        return [(first + second) / 2 for first, second in zip(ratios[::2], ratios[1::2], strict=False)]


class Pair:
    """The processes of both commits, which stay alive for all series of a comparison."""

    def __init__(self, base: Place, head: Place) -> None:
        self.sides = (Worker(base), Worker(head))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.sides:
            worker.end()

    def both(self, do: str, number: int = 0, **request: Any) -> list[dict[str, Any]]:
        """Ask both at once, each on a core of its own; the cores change with the number of the round.

        Whoever is asked first also starts and ends first, and has less of this process beside it: every two rounds it is
        the other side.
        """
        places = cores()
        for side, worker in enumerate(self.sides):
            worker.pin(places[(side + number) % len(places)])
        if len(places) == 1:  # side by side is not possible: in turn, and in turns who is first
            order = self.sides if number % 2 == 0 else self.sides[::-1]
            answers = {worker.label: worker.ask(do, **request) for worker in order}
        else:
            order = self.sides if number // 2 % 2 == 0 else self.sides[::-1]
            for worker in order:
                worker.send(do, **request)
            answers = {worker.label: worker.receive() for worker in order}
        return [answers[worker.label] for worker in self.sides]

    def open(self, series: str, split: int = 0) -> Absent | None:
        answers = self.both("open", series=series, split=split)
        for side, answer in zip(("base", "head"), answers, strict=True):
            if "open" not in answer:
                return Absent(side, answer.get("absent") or answer["failed"], failed="failed" in answer)
        return None

    def rounds(self, series: str, deadline: float) -> Iterator[Rounds | Absent]:
        """Copies of both sides one after the other, each timed for some rounds, until the reader has enough."""
        while True:
            self.both("fork")
            found = self._timed(series, deadline)
            for worker in self.sides:
                worker.leave()
            yield found
            if isinstance(found, Absent):
                return

    def _timed(self, series: str, deadline: float) -> Rounds | Absent:
        absent = self.open(series)
        if absent is not None:
            return absent
        for number in range(WARM_UP_ROUNDS):
            answers = self.both("time", number, calls=1)
            if absent := _failed(answers):
                return absent
        slower = max(float(answer["cpu"]) for answer in answers)
        calls, last = _calls(slower), _rounds(slower)
        rounds: list[list[dict[str, Any]]] = []
        for number in range(last):
            rounds.append(self.both("time", number, calls=calls))
            if absent := _failed(rounds[-1]):
                return absent
            if time.monotonic() > deadline and number % 2 == 1:
                break
        base, head = zip(*((one["cpu"], other["cpu"]) for one, other in rounds), strict=True)
        return Rounds(base, head)


class Pairs:
    """The pair in use, made when it is first asked for, and again after `renew`."""

    def __init__(self, base: Place, head: Place) -> None:
        self._places = (base, head)
        self._pair: Pair | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.renew()

    def renew(self) -> None:
        """End the processes: whoever asks next gets new ones."""
        if self._pair is not None:
            self._pair.__exit__()
        self._pair = None

    def get(self) -> Pair:
        self._pair = self._pair or Pair(*self._places)
        return self._pair


def _failed(answers: Sequence[dict[str, Any]]) -> Absent | None:
    for side, answer in zip(("base", "head"), answers, strict=True):
        if "cpu" not in answer:
            return Absent(side, answer["failed"], failed=True)
    return None


def _calls(slower: float) -> int:
    """As many as fill a round on the slower side."""
    return max(1, round(SECONDS_PER_ROUND / max(slower, 1e-7)))


def _rounds(slower: float) -> int:
    """An even number, since two rounds make a pair."""
    return min(ROUNDS_PER_COPY, max(LEAST_ROUNDS, 2 * round(SECONDS_PER_COPY / max(slower, 1e-7) / 2)))
