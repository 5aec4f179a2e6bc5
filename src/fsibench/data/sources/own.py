"""Tables that users name themselves: `PREFIX...?word=value&word=value`, the same words for every such source.

    target=NAME              the column to predict
    drop=NAME                leave a column out (may be repeated)
    number=NAME              read the labels of a nominal column as numbers (may be repeated)
    date=NAME                read dates as days since 1970 (may be repeated)
    categories=onehot        text columns become numbers: onehot, ordinal or refuse
    missing=impute           missing values become the training mean, with a column that marks them: impute or refuse
    time=NAME                train on earlier rows, test on later ones
    group=NAME               rows of one group stay on one side of a split
    split=NAME               a column of fold numbers, or of the words train and test
    splits=FILE              a JSON list of lists of test rows
    dedupe=true              keep one of each set of equal rows
    train_rows=100           train on this many rows of a split
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import numpy as np

from fsibench import options
from fsibench.data import Description, Floats, Table, TableDataset
from fsibench.data.sources import cache, lookup
from fsibench.data.sources.columns import inputs_and_target
from fsibench.data.sources.raw import Layout, Raw
from fsibench.data.splits import num_time_splits
from fsibench.errors import UsageError

# word -> field of the data set; those in REPEATED collect every value
WORDS = {
    **{word: word for word in ("target", "drop", "categories", "missing", "time", "group", "splits", "dedupe")},
    "train_rows": "train_rows",
    "split": "fold",
    "date": "dates",
    "number": "numbers",
}
REPEATED = frozenset({"drop", "date", "number"})


@dataclass(frozen=True)
class OwnTable(TableDataset):
    """A table under a reference; what it takes to read it is kept in the cache under a hash of all the words."""

    target: str = ""
    drop: tuple[str, ...] = ()
    missing: Literal["refuse", "impute"] = "refuse"
    dates: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    time: str = ""
    group: str = ""
    fold: str = ""

    @abc.abstractmethod
    def place(self) -> tuple[Any, ...]:
        """What beside the words above decides about the stored table, for example a path."""

    @abc.abstractmethod
    def origin(self) -> str:
        """Where the table would come from now; another origin than the stored one means that it is read again."""

    @abc.abstractmethod
    def convert(self, staging: Path) -> None:
        """Read the table and write it into a folder of the cache."""

    @property
    def key(self) -> str:
        words = (
            *(type(self).__name__, self.place(), self.target, self.drop, self.dates, self.numbers),
            *(self.missing, self.categories == "refuse", sorted(self.keys().items())),
        )
        return f"{type(self).__name__.lower()}-{hashlib.sha256(repr(words).encode()).hexdigest()[:32]}"

    def keys(self) -> dict[str, str]:
        """The columns that decide about splits."""
        return {key: name for key in ("time", "group", "fold") if (name := getattr(self, key))}

    def layout(self, **more: Any) -> Layout:
        return Layout(
            labels=self.categories != "refuse",
            label_columns=tuple(filter(None, (self.group, self.fold))),
            gaps=self.missing == "impute",
            dates=self.dates,
            times=(self.time,) if self.time else (),
            **more,
        )

    def write(self, staging: Path, raw: Raw, target: str, origin: str) -> None:
        chosen = inputs_and_target(raw, target, self.drop, origin, self.keys())
        blocks: Iterable[tuple[Floats, ...]] = chosen.blocks
        if self.fold in raw.levels:
            blocks = _folds(blocks, 2 + chosen.keys.index("fold"), raw.levels[self.fold])
        cache.write_table(staging, chosen.columns, target, blocks, origin, chosen.levels, chosen.keys)

    def describe(self) -> Description:
        record = self._record()
        return Description(
            name=self.name,
            rows=record["rows"] if record else 0,
            inputs=len(record["columns"]) if record else 0,
            target=record["target"] if record else self.target,
            source=f"cache ({record['origin']})" if record else self.origin(),
            available=record is not None,
            note=_note(record) if record else "not read yet",
        )

    def table(self) -> Table:
        return lookup.converted(self.key, self.origin(), self.convert)

    def content_hash(self) -> str:
        self.table()
        record = self._record()
        assert record is not None, "the table was just read"
        return str(record["sha256"])

    def _record(self) -> dict[str, Any] | None:
        record = cache.record_of(self.key)
        return record if record is not None and record["origin"] == self.origin() else None

    def num_splits(self, scheme: str) -> int:
        if self.fold and not self.own_splits():
            folds = self.table().keys["fold"]
            return len(np.unique(folds[~np.isnan(folds)]))
        return num_time_splits(scheme) if self.time and not self.own_splits() else super().num_splits(scheme)

    def verify(self) -> list[tuple[str, str]]:
        return lookup.verify_cached(self.key)

    def location(self) -> str | None:
        place = cache.table_folder(self.key)
        return str(place) if place.exists() else None


def _note(record: dict[str, Any]) -> str:
    return f"nominal: {', '.join(record['levels'])}" if record["levels"] else ""


def _folds(blocks: Iterable[tuple[Floats, ...]], place: int, labels: tuple[str, ...]) -> Iterator[tuple[Floats, ...]]:
    """Rows labelled `train` always train: their fold is nan. Other labels are folds in the order of the alphabet."""
    values = np.array([np.nan if label.lower() == "train" else float(code) for code, label in enumerate(labels)])
    for block in blocks:
        yield (*block[:place], values[block[place].astype(int)], *block[place + 1 :])


T = TypeVar("T", bound=OwnTable)


def split_reference(reference: str, prefix: str) -> tuple[str, str]:
    """What stands before the words, and the words: a path may hold question marks of its own."""
    body = reference.removeprefix(prefix)
    before, mark, query = body.rpartition("?")
    return (before, query) if mark and "=" in query else (body.removesuffix("?"), "")


def parse(query: str, reference: str, cls: type[T], extra: dict[str, str], **fixed: Any) -> T:
    """The data set of a reference; `extra` are words of this source beside the common ones. Plus signs stay."""
    known = WORDS | extra
    values: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        word, equals, text = part.partition("=")
        if word not in known or not equals:
            raise UsageError(f"cannot read {part!r} in {reference!r}; known are {', '.join(sorted(known))}.")
        if word in REPEATED:
            values.setdefault(known[word], []).append(unquote(text))
        elif known[word] in values:
            raise UsageError(f"{reference!r} has more than one {word}=.")
        else:
            values[known[word]] = unquote(text)
    found: T = options.build(cls, reference, values, name=reference, **fixed)
    return found
