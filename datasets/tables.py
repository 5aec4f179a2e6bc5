"""Every table that has a passport in data/: the real sets of the SIP paper, and a few more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsibench.data import Description, Table, TableDataset
from fsibench.sources import chain
from fsibench.sources.passport import Passport, passports

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class PassportTable(TableDataset):
    """A table that is known by its passport."""

    @property
    def passport(self) -> Passport:
        return passports(DATA)[self.name]

    def describe(self) -> Description:
        passport = self.passport
        return Description(
            name=self.name,
            rows=passport.rows,
            inputs=len(passport.columns),
            target=passport.target,
            source="bundled",
            available=(DATA / f"{self.name}.csv.gz").exists(),
            licence=passport.licence,
            citation=passport.citation,
            note="; ".join(filter(None, [passport.note, passport.ethics])),
        )

    def fingerprint(self) -> str:
        known = self.passport.sha256
        return known if known is not None else self.table().fingerprint()

    def table(self) -> Table:
        return chain.load(self.passport, DATA)


DATASETS = tuple(PassportTable(name) for name in passports(DATA))
