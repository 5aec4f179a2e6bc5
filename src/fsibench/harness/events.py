"""What a cell reports while it runs, and how a report travels as JSON.

    Started      a worker took the cell
    Loaded       the data are there: how many rows and inputs
    Evaluation   one look at a posterior: scores at a step
    Artifact     a named payload: the rows predicted worst, and what was asked for with --keep
    Finished     how it ended; always the last one

`encode` and `decode` are the only place that knows the wire format. Every message carries the id of its cell, so that
no report can be stored under another cell's name. A message comes from a process that ran foreign code, so `decode`
believes nothing: what it returns can be stored and printed as it is.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsibench.errors import FsibenchError, UsageError
from fsibench.metrics import require_key


class MalformedMessage(FsibenchError):
    """A message that is no report of a cell."""


@dataclass(frozen=True)
class Started:
    """A worker took the cell."""


@dataclass(frozen=True)
class Loaded:
    """Size of the problem, known once the data are split."""

    num_train: int
    num_test: int
    num_inputs: int
    target_scale: float


@dataclass(frozen=True)
class Evaluation:
    """One look at a posterior: `scores` on `num_rows` test rows by metric key, PIT counts, numbers of its trace."""

    step: int
    train_seconds: float
    wall_seconds: float
    cpu_seconds: float
    scores: Mapping[str, float]
    pit: tuple[int, ...]
    trace: Mapping[str, float]
    num_rows: int | None = None


@dataclass(frozen=True)
class Artifact:
    """A named JSON payload of a cell."""

    kind: str
    content: Any


@dataclass(frozen=True)
class Finished:
    """How a cell ended; `clocks` holds seconds by activity, peak memory and flags, empty when the cell cannot tell any more."""

    status: str
    message: str | None = None
    traceback: str | None = None
    clocks: Mapping[str, Any] = field(default_factory=dict)


# How a cell can end.
OUTCOMES = ("ok", "diverged", "error", "timeout", "oom", "interrupted", "lost")
# The store keeps whole numbers of 64 bits.
MOST_WHOLE = 2**63
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Report = Started | Loaded | Evaluation | Artifact | Finished
_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Started, Loaded, Evaluation, Artifact, Finished)}


def encode(cell: str, report: Report) -> str:
    """A report of the cell with this id, as one line of JSON."""
    # Default ASCII output: a lone surrogate in an exception text is escaped instead of failing on the way.
    return json.dumps({"cell": cell, "report": type(report).__name__.lower(), **dataclasses.asdict(report)})


def decode(text: str | bytes) -> tuple[str, Report]:
    """The cell id and the report of one message; anything else is a `MalformedMessage`."""
    try:
        content = json.loads(text)
        if _SURROGATE.search(text if isinstance(text, str) else text.decode()):
            content = _printable(content)
        cell, kind = content.pop("cell"), _KINDS[content.pop("report")]
        if kind is Evaluation:
            content["pit"] = tuple(content["pit"])
        report: Report = kind(**content)
        _check(report)
        return str(cell), report
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UsageError) as error:
        raise MalformedMessage(f"not a report of a cell: {type(error).__name__}: {str(error)[:200]}") from None


def _printable(value: Any) -> Any:
    """The same content with lone surrogates, which no file and no terminal takes, written as escapes."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return value


def _check(report: Report) -> None:
    """Refuse what the store could not take: wrong types, unknown statuses, names that are no columns."""
    match report:
        case Loaded():
            _require_whole(report.num_train, report.num_test, report.num_inputs)
            _require_numbers(report.target_scale)
        case Evaluation():
            for key in report.scores:
                require_key(key)
            _require_whole(report.step, *report.pit)
            _require_numbers(report.train_seconds, report.wall_seconds, report.cpu_seconds)
            _require_numbers(*report.scores.values(), *report.trace.values())
        case Artifact():
            _require_text(report.kind)
        case Finished():
            if report.status not in OUTCOMES:
                raise ValueError(f"unknown outcome {report.status!r}")
            _require_text(*(text for text in (report.message, report.traceback) if text is not None))
            _require_numbers(*(value for value in report.clocks.values() if not isinstance(value, str)))


def _require_whole(*values: object) -> None:
    for value in values:
        if type(value) is not int or not 0 <= value < MOST_WHOLE:
            raise TypeError(f"a count must be a whole number; got {str(value)[:40]!r}")


def _require_numbers(*values: object) -> None:
    for value in values:
        if type(value) is not float and (type(value) is not int or not -MOST_WHOLE < value < MOST_WHOLE):
            raise TypeError(f"a measurement must be a number; got {str(value)[:40]!r}")


def _require_text(*values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"a message must be text; got {str(value)[:40]!r}")
