"""From the columns of a file to inputs and target: by name, by position, or as the user says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fsibench.data import Floats
from fsibench.data.sources.passport import Passport
from fsibench.data.sources.reading import Raw
from fsibench.errors import DataError


def selected(raw: Raw, passport: Passport, origin: str) -> Iterator[tuple[Floats, Floats]]:
    """The passport's inputs and target by name, wherever they stand; other columns are refused."""
    names = (*passport.columns, passport.target)
    missing, extra = set(names) - set(raw.names), set(raw.names) - set(names)
    if missing or extra:
        parts = [f"no column {shortened(tuple(sorted(missing)))}"] if missing else []
        parts += [f"unknown column {shortened(tuple(sorted(extra)))}"] if extra else []
        raise DataError(f"{origin} is not the data set {passport.name!r}: {'; '.join(parts)}.")
    order = [raw.names.index(name) for name in names]
    for block in raw.blocks:
        yield block[:, order[:-1]], block[:, order[-1]]


def at_most(
    blocks: Iterator[tuple[Floats, Floats]], passport: Passport, origin: str
) -> Iterator[tuple[Floats, Floats]]:
    """Stop as soon as there are too many rows: a file without end must not fill the disk."""
    rows = 0
    for x, y in blocks:
        rows += len(y)
        if rows > passport.rows:
            raise DataError(f"{origin} is not the data set {passport.name!r}: more than {passport.rows} rows.")
        yield x, y


def target_last(raw: Raw, target: int, drop: tuple[int, ...]) -> Raw:
    """Columns without the dropped ones, the target at the end."""
    blocks = iter(raw.blocks)
    first = next(blocks, None)
    if first is None:
        return Raw((), iter(()))
    target %= first.shape[1]
    order = [column for column in range(first.shape[1]) if column != target and column not in drop] + [target]
    names = tuple(raw.names[column] for column in order) if raw.names else ("",) * len(order)
    return Raw(names, (block[:, order] for block in itertools.chain([first], blocks)))


def renamed(raw: Raw, passport: Passport) -> Raw:
    """The provider's columns under the passport's names, by position; the hash tells if the order is another."""
    names = (*passport.columns, passport.target)
    if raw.names and len(raw.names) != len(names):
        found = ", ".join(filter(None, raw.names[:20]))
        raise DataError(f"{len(raw.names)} columns instead of {len(names)}" + (f" ({found})" if found else ""))
    return Raw(names, raw.blocks)


def inputs_and_target(
    raw: Raw, target: str, drop: tuple[str, ...], origin: str
) -> tuple[tuple[str, ...], Iterator[tuple[Floats, Floats]]]:
    """Input names, and blocks of inputs and target."""
    for name in (target, *drop):
        if name not in raw.names:
            raise DataError(f"{origin} has no column {name!r}; it has {', '.join(raw.names[:30])}.")
    columns = tuple(name for name in raw.names if name != target and name not in drop)
    if not columns:
        raise DataError(f"{origin} has no input column beside the target {target!r}.")
    order, last = [raw.names.index(name) for name in columns], raw.names.index(target)
    return columns, ((block[:, order], block[:, last]) for block in raw.blocks)


def shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names if len(names) <= 9 else (*names[:3], "...", *names[-3:]))
