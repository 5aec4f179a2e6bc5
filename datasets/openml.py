"""Any table on OpenML by its id: `openml:44959`, or `openml:44960?target=heating_load&drop=cooling_load`.

The id pins the version. A table that was never seen before cannot be verified; the hash of what arrived becomes part
of every result instead. The provider says which columns are nominal and which values are missing: unless the words of
`fsibench.data.sources.own` say otherwise, nominal columns are one-hot encoded and missing values imputed. Offline,
`openml-44959.csv.gz` or `.parquet` in the mirror folder serves as well; a file has no default target, so name one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsibench.data.sources import cache, lookup
from fsibench.data.sources.own import OwnTable, parse, split_reference
from fsibench.data.sources.reading import read_table
from fsibench.errors import DataError, Unreachable, UsageError

PREFIX = "openml:"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenMLTable(OwnTable):
    id: int = 0
    missing: Literal["refuse", "impute"] = "impute"

    def place(self) -> tuple[Any, ...]:
        return (self.id,)

    def origin(self) -> str:
        file = lookup.mirror_file(f"openml-{self.id}")
        if file is None:
            return f"OpenML {self.id}"
        return f"mirror, {file.name} ({file.stat().st_size} bytes, {file.stat().st_mtime_ns} ns)"

    def convert(self, staging: Path) -> None:
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

        with cache.workplace(self.key) as place:
            raw, target = openml_client.fetch(self.id, self.target, place, arff=arff, layout=self.layout())
            self.write(staging, raw, target, self.origin())

    def _from_mirror(self, file: Path, staging: Path) -> None:
        if not self.target:
            raise DataError(f"{file} does not say which column is the target; write openml:{self.id}?target=NAME.")
        with read_table(file, self.layout(delimiter=None, decimal=None)) as raw:
            self.write(staging, raw, self.target, self.origin())


def resolve(reference: str) -> OpenMLTable:
    """`openml:44959` as a data set; nothing is fetched yet."""
    number, query = split_reference(reference, PREFIX)
    if not number.isdecimal() or not 0 < int(number) < 1 << 31:
        raise UsageError(f"{reference!r} should be an OpenML id, for example openml:44959.")
    return parse(query, reference, OpenMLTable, {}, id=int(number))
