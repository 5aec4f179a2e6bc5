"""Kept results: one small JSON file per commit, in `benchmarks/history/`.

Times are in units of the calibration product T, measured in the same seconds on the same core, so that files of
several days stand in one series. Machines differ in what small operations cost beside a product, so that a step between
files of two machines says nothing. A series that a commit does not have is not in its file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fsibench.errors import UsageError

FOLDER = Path("benchmarks") / "history"


@dataclass(frozen=True)
class Measured:
    """Repeated values of a series at one commit: rounds of a time, splits of a score."""

    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class CommitRecord:
    sha: str
    date: str
    subject: str
    machine: str
    series: Mapping[str, Measured]
    accepted: Mapping[str, str] = field(default_factory=dict)  # regressions that the commit's message accepts


def save(record: CommitRecord, folder: Path) -> Path:
    """Written beside and renamed: a run that is killed leaves no half file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.sha[:12]}.json"
    rounded = {
        name: {"unit": found.unit, "values": [float(f"{value:.4g}") for value in found.values]}
        for name, found in sorted(record.series.items())
    }
    head = json.dumps({**asdict(record), "series": {}}, ensure_ascii=False)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in rounded.items())
    text = head.replace('"series": {}', '"series": {\n' + lines + "\n}") + "\n"
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return path


def read(path: Path) -> CommitRecord:
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        series = {name: Measured(found["unit"], tuple(found["values"])) for name, found in kept.pop("series").items()}
        return CommitRecord(series=series, **kept)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no kept result ({error}); delete it and measure that commit again.") from None


def read_all(folder: Path) -> dict[str, CommitRecord]:
    """Every kept result by its commit."""
    records = (read(path) for path in sorted(folder.glob("*.json")))
    return {record.sha: record for record in records}


def in_order(records: Mapping[str, CommitRecord], shas: Sequence[str]) -> list[CommitRecord]:
    """Those of the given commits that have a result, in the order of the commits."""
    return [records[sha] for sha in shas if sha in records]
