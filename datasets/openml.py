"""Any table on OpenML by its id: `openml:44959`, or `openml:44960?target=heating_load&drop=cooling_load`.

The id pins the version. A table that was never seen before cannot be verified; the hash of what arrived becomes part
of every result instead. Offline, `openml-44959.csv.gz` or `.parquet` in the mirror folder serves as well.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from fsibench.data import Description, Table, TableDataset
from fsibench.data.sources import cache, lookup
from fsibench.data.sources.columns import inputs_and_target
from fsibench.data.sources.reading import read_table
from fsibench.data.sources.reference import query_words
from fsibench.errors import DataError, Unreachable, UsageError

PREFIX = "openml:"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenMLTable(TableDataset):
    id: int = 0
    target: str = ""
    drop: tuple[str, ...] = ()

    def describe(self) -> Description:
        record = cache.record_of(self._key)
        return Description(
            name=self.name,
            rows=record["rows"] if record else 0,
            inputs=len(record["columns"]) if record else 0,
            target=record["target"] if record else self.target,
            source="cache (OpenML)" if record else f"OpenML {self.id}",
            available=record is not None,
            note="" if record else "not fetched yet",
        )

    def fingerprint(self) -> str:
        self.table()
        record = cache.record_of(self._key)
        assert record is not None, "the table was just fetched"
        return str(record["sha256"])

    def table(self) -> Table:
        return lookup.converted(self._key, f"OpenML {self.id}", self._fetch)

    def verify(self) -> list[tuple[str, str]]:
        return lookup.verify_cached(self._key)

    def location(self) -> str | None:
        place = cache.table_folder(self._key)
        return str(place) if place.exists() else None

    def _fetch(self, staging: Path) -> None:
        file = lookup.mirror_file(f"openml-{self.id}")
        if file is not None:
            self._from_mirror(file, staging)
            return
        try:
            self._from_openml(staging, arff=False)
        except Unreachable as error:
            names = f"openml-{self.id}.csv.gz or openml-{self.id}.parquet"
            raise DataError(
                f"data set {self.name!r} is not on this machine and could not be fetched ({error}): put {names} "
                "into a folder and name that folder with --mirror or FSIBENCH_MIRROR."
            ) from error
        except DataError as error:
            logger.warning("%s: %s; asking for the ARFF file", self.name, error)
            self._from_openml(staging, arff=True)

    def _from_openml(self, staging: Path, *, arff: bool) -> None:
        from fsibench.data.sources import openml_client

        origin = f"OpenML {self.id}"
        with cache.workplace(self._key) as place:
            raw, target = openml_client.fetch(self.id, self.target, self.drop, place, arff=arff)
            columns, blocks = inputs_and_target(raw, target, (), origin)
            cache.write_table(staging, columns, target, blocks, origin)

    def _from_mirror(self, file: Path, staging: Path) -> None:
        with read_table(file) as raw:
            target = self.target or raw.names[-1]
            columns, blocks = inputs_and_target(raw, target, self.drop, str(file))
            cache.write_table(staging, columns, target, blocks, f"OpenML {self.id}")

    @property
    def _key(self) -> str:
        words = [f"openml-{self.id}", *filter(None, (self.target, *self.drop))]
        return "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)


def resolve(reference: str) -> OpenMLTable:
    """`openml:44959` as a data set; nothing is fetched yet."""
    number, _, query = reference.removeprefix(PREFIX).partition("?")
    words = query_words(query, reference, {"target", "drop"})
    if not number.isdecimal() or int(number) < 1:
        raise UsageError(f"{reference!r} should be an OpenML id, for example openml:44959.")
    if len(words["target"]) > 1:
        raise UsageError(f"{reference!r} names more than one target.")
    return OpenMLTable(reference, int(number), "".join(words["target"]), tuple(words["drop"]))
