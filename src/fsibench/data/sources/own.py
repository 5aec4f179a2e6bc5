"""Tables that users name themselves: `PREFIX...?word=value&word=value`, the same words for every such source.

    target=NAME              the column to predict
    drop=NAME                leave a column out (may be repeated)
    number=NAME              the labels of a nominal target are quantities (may be repeated)
    label=NAME               the numbers in a column are labels: encode them as categories says (may be repeated)
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
from fsibench.data.sources.raw import Layout, Raw, require_columns
from fsibench.data.splits import num_time_splits
from fsibench.errors import UsageError

# word -> field of the data set; those in REPEATED collect every value
WORDS = {
    **{word: word for word in ("target", "drop", "categories", "missing", "time", "group", "splits", "dedupe")},
    "train_rows": "train_rows",
    "split": "fold",
    "date": "dates",
    "number": "numbers",
    "label": "labels",
}
REPEATED = frozenset({"drop", "date", "number", "label"})


@dataclass(frozen=True)
class OwnTable(TableDataset):
    """A table named by a reference. The table as read is cached under a hash of all words of the reference."""

    target: str = ""
    drop: tuple[str, ...] = ()
    missing: Literal["refuse", "impute"] = "refuse"
    dates: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    time: str = ""
    group: str = ""
    fold: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        ways = {"time=": self.time, "group=": self.group, "split=": self.fold, "splits=": self.splits}
        if sum(map(bool, ways.values())) > 1:
            raise ValueError(f"choose one of {', '.join(word for word, value in ways.items() if value)}")
        roles = [*filter(None, [self.target]), *dict.fromkeys(self.drop), *self.keys().values()]
        for name in roles:
            if roles.count(name) > 1:
                raise ValueError(f"column {name!r} is named by more than one of target=, drop=, time=, group= and split=")
        for name in self.labels:
            if name in (self.target, *self.numbers, *self.dates):
                raise ValueError(f"column {name!r} is named by label= and by target=, number= or date=")

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
            *(type(self).__name__, self.place(), self.target, self.drop, self.dates, self.numbers, self.labels),
            *(self.missing, self.categories == "refuse", sorted(self.keys().items())),
        )
        return f"{type(self).__name__.lower()}-{hashlib.sha256(repr(words).encode()).hexdigest()[:32]}"

    def keys(self) -> dict[str, str]:
        """The columns that decide about splits."""
        return {key: name for key in ("time", "group", "fold") if (name := getattr(self, key))}

    def layout(self, **more: Any) -> Layout:
        return Layout(
            drop=self.drop,
            labels=self.categories != "refuse",
            nominal=self.labels,
            label_columns=tuple(filter(None, (self.group, self.fold))),
            gaps=self.missing == "impute",
            dates=self.dates,
            times=(self.time,) if self.time else (),
            **more,
        )

    def shown(self) -> str:
        """The source in messages."""
        return self.origin()

    def write(self, staging: Path, raw: Raw, target: str, origin: str, *, vouched: bool = False) -> None:
        """`vouched`: the provider says that the target is a quantity, even if it is stored as a category."""
        require_columns((*self.dates, *self.labels), raw.names, self.shown())
        numbers = (*self.numbers, target) if vouched else self.numbers
        chosen = inputs_and_target(raw, target, self.shown(), self.keys(), numbers)
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
    """Rows labelled `train` or not at all always train: their fold is nan. Other labels are folds, by the alphabet."""
    folds = [np.nan if label.lower() == "train" else float(code) for code, label in enumerate(labels)]
    values = np.array([*folds, np.nan])
    for block in blocks:
        codes = np.nan_to_num(block[place], nan=-1.0).astype(int)
        yield (*block[:place], values[codes], *block[place + 1 :])


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
