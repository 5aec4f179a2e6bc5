"""A regression task of OpenML with its own folds: `openml-task:361234`. Split i is fold i, repetition by repetition.

The task says which table, which target and which rows test; the words of `fsibench.data.sources.own` work as usual.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsibench.data.sources import cache
from fsibench.data.sources.own import OwnTable, parse, split_reference
from fsibench.data.tables import split_file
from fsibench.errors import DataError, Unreachable, UsageError

PREFIX = "openml-task:"


@dataclass(frozen=True)
class OpenMLTask(OwnTable):
    id: int = 0
    missing: Literal["refuse", "impute"] = "impute"

    def place(self) -> tuple[Any, ...]:
        return (self.id,)

    def origin(self) -> str:
        return f"OpenML task {self.id}"

    def convert(self, staging: Path) -> None:
        try:
            self._fetch(staging)
        except Unreachable as error:
            raise Unreachable(
                f"{self.name!r} is not on this machine and could not be fetched ({error}); "
                "fetch it where there is a network with `fsibench data fetch`, and copy the cache folder."
            ) from error

    def _fetch(self, staging: Path) -> None:
        from fsibench.data.sources import openml_client

        with cache.workplace(self.key) as place:
            identity, target, tests = openml_client.fetch_task(self.id, place)
            target = self.target or target
            try:
                raw, _ = openml_client.fetch(identity, target, place, arff=False, layout=self.layout())
                self.write(staging, raw, target, self.origin(), vouched=True)
            except Unreachable:
                raise
            except DataError:  # the Parquet file may be broken
                raw, _ = openml_client.fetch(identity, target, place, arff=True, layout=self.layout())
                self.write(staging, raw, target, self.origin(), vouched=True)
            (staging / "splits.json").write_text(json.dumps(tests), encoding="utf-8")

    def own_splits(self) -> Sequence[Sequence[int]]:
        if self.splits or self.keys() or self.dedupe:
            return super().own_splits()
        self.table()
        return split_file(cache.table_folder(self.key) / "splits.json")


def resolve(reference: str) -> OpenMLTask:
    """`openml-task:361234` as a data set; nothing is fetched yet."""
    number, query = split_reference(reference, PREFIX)
    if not number.isdecimal() or not 0 < int(number) < 1 << 31:
        raise UsageError(f"{reference!r} should be an OpenML task id, for example openml-task:361234.")
    return parse(query, reference, OpenMLTask, {}, id=int(number))
