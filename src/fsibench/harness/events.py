"""What a cell reports while it runs, and how a report travels as JSON.

    Started      a worker took the cell
    Loaded       the data are there: how many rows and inputs
    Evaluation   one look at a posterior: scores at a step
    Artifact     a named payload that was asked for with --keep
    Finished     how it ended; always the last one

`encode` and `decode` are the only place that knows the wire format. Every message carries the id of its cell, so that
no report can be stored under another cell's name.
"""

from __future__ import annotations

import dataclasses
import json
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


Report = Started | Loaded | Evaluation | Artifact | Finished
_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Started, Loaded, Evaluation, Artifact, Finished)}


def encode(cell: str, report: Report) -> str:
    """A report of the cell with this id, as one line of JSON."""
    # Default ASCII output: a lone surrogate in an exception text is escaped instead of failing on the way.
    return json.dumps({"cell": cell, "kind": type(report).__name__.lower(), **dataclasses.asdict(report)})


def decode(text: str | bytes) -> tuple[str, Report]:
    """The cell id and the report of one message; anything else is a `MalformedMessage`."""
    try:
        content = json.loads(text)
        cell, kind = content.pop("cell"), _KINDS[content.pop("kind")]
        if kind is Evaluation:
            content["pit"] = tuple(content["pit"])
            for key in content["scores"]:
                require_key(key)
        return str(cell), kind(**content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UsageError) as error:
        raise MalformedMessage(f"not a report of a cell: {type(error).__name__}: {error}") from None
