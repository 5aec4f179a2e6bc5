"""Every table that has a passport in data/: the real sets of the SIP paper, and a few more."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fsibench.data import Description, Rows, Table, TableDataset
from fsibench.data.sources import cache, lookup
from fsibench.data.sources.passport import Passport, passports
from fsibench.data.splits import require_split

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class PassportTable(TableDataset):
    """A table that is known by its passport."""

    folder: ClassVar[Path] = DATA

    @property
    def passport(self) -> Passport:
        return passports(self.folder)[self.name]

    def describe(self) -> Description:
        passport = self.passport
        source, available = lookup.whereabouts(passport, self.folder)
        return Description(
            name=self.name,
            rows=passport.rows,
            inputs=len(passport.columns),
            target=passport.target,
            source=source,
            available=available,
            licence=passport.licence,
            citation=passport.citation,
            note="; ".join(filter(None, [passport.note, passport.ethics])),
            suite=passport.suite,
            twins=passport.twins,
            twin_share=passport.twin_share,
        )

    def content_hash(self) -> str:
        """The passport's hash; where it has none, the hash of the table that is in use here."""
        if self.passport.sha256 is not None:
            return self.passport.sha256
        self.table()
        record = cache.record_of(self.name)
        assert record is not None, "the table was just read"
        return str(record["sha256"])

    def table(self) -> Table:
        return lookup.load(self.passport, self.folder)

    def verify(self) -> list[tuple[str, str]]:
        return lookup.verify(self.passport, self.folder)

    def location(self) -> str | None:
        return lookup.location(self.passport, self.folder)


@dataclass(frozen=True)
class OfficialTable(PassportTable):
    """A table whose provider fixed a split: the first rows train, the rest test. It is the only one, in any scheme."""

    official_split: bool = False

    def content_hash(self) -> str:
        if not self.official_split:
            return super().content_hash()
        return hashlib.sha256(f"{super().content_hash()} official".encode()).hexdigest()

    def num_splits(self, scheme: str) -> int:
        return 1 if self.official_split else super().num_splits(scheme)

    def split_rows(self, table: Table, scheme: str, index: int) -> tuple[Rows, Rows]:
        if not self.official_split:
            return super().split_rows(table, scheme, index)
        require_split(index, 1)
        num_train = self.passport.official_train_rows
        assert num_train is not None
        rows = np.arange(len(table))
        return rows[:num_train], rows[num_train:]


def _dataset(passport: Passport) -> PassportTable:
    kind = PassportTable if passport.official_train_rows is None else OfficialTable
    return kind(passport.name)


DATASETS = tuple(_dataset(passport) for passport in passports(DATA).values())
