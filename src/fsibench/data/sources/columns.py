"""From the columns of a file to inputs and target: by name, by position, or by options of the user."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fsibench.data import Floats
from fsibench.data.sources.passport import Passport
from fsibench.data.sources.raw import Raw, require_columns
from fsibench.errors import DataError

_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?")  # what pandas calls a column without a name

def selected(raw: Raw, passport: Passport, origin: str) -> Iterator[tuple[Floats, Floats]]:
    """The passport's inputs and target by name, wherever they stand; other columns are refused."""
    names = (*passport.columns, passport.target)
    missing, extra = set(names) - set(raw.names), set(raw.names) - set(names)
    if missing or extra:
        parts = [f"no column {shortened(tuple(sorted(missing)))}"] if missing else []
        parts += [f"unknown column {shortened(tuple(sorted(extra)))}"] if extra else []
        raise DataError(f"{origin} is not the data set {passport.name!r}: {'; '.join(parts)}.")
    places = _places(raw)
    order = [places[name] for name in names]
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
    return Raw(names, (block[:, order] for block in itertools.chain([first], blocks)), raw.levels)


def renamed(raw: Raw, passport: Passport) -> Raw:
    """The provider's columns under the passport's names, by position; a wrong order changes the hash."""
    names = (*passport.columns, passport.target)
    if raw.names and len(raw.names) != len(names):
        found = ", ".join(filter(None, raw.names[:20]))
        raise DataError(f"{len(raw.names)} columns instead of {len(names)}" + (f" ({found})" if found else ""))
    levels = {new: raw.levels[old] for old, new in zip(raw.names, names, strict=False) if old in raw.levels}
    return Raw(names, raw.blocks, levels)


@dataclass(frozen=True)
class Chosen:
    """Input names, the labels of nominal ones, the names of split keys, and blocks of inputs, target and keys."""

    columns: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    keys: tuple[str, ...]
    blocks: Iterator[tuple[Floats, ...]]


def inputs_and_target(
    raw: Raw, target: str, origin: str, keys: Mapping[str, str] | None = None, numbers: tuple[str, ...] = ()
) -> Chosen:
    """`keys`: `time`, `group` or `fold`, and the column that is it, which is no input. `numbers` are not nominal."""
    keys = keys or {}
    require_columns((target, *keys.values(), *numbers), raw.names, origin)
    _refuse_classes(raw, target, numbers, origin)
    unwanted = {target, *keys.values()}
    columns = tuple(name for name in raw.names if name not in unwanted)
    if not columns:
        raise DataError(f"{origin} has no input column beside the target {target!r}.")
    _refuse_row_names(raw, columns, origin)
    places = _places(raw)
    order = [places[name] for name in columns]
    blocks = (
        (
            block[:, order],
            _known(block[:, places[target]], "target", target, origin),
            *(_known(block[:, places[name]], key, name, origin) for key, name in keys.items()),
        )
        for block in raw.blocks
    )
    levels = {name: raw.levels[name] for name in columns if name in raw.levels}
    return Chosen(columns, levels, tuple(keys), blocks)


def _refuse_classes(raw: Raw, target: str, numbers: tuple[str, ...], origin: str) -> None:
    for name in (target, *numbers):
        if name in raw.levels:
            labels = ", ".join(raw.levels[name][:5])
            role = "target" if name == target else "column"
            end = "; this is no regression" if name == target else ""
            raise DataError(f"{origin}: the {role} {name!r} has labels ({labels}), not numbers{end}.")
    if target in raw.nominal and target not in numbers:
        raise DataError(
            f"{origin}: the target {target!r} is nominal, so that its values are classes; if they are quantities, "
            f"write number={target}."
        )


def _places(raw: Raw) -> dict[str, int]:
    return {name: place for place, name in enumerate(raw.names)}


def _refuse_row_names(raw: Raw, columns: tuple[str, ...], origin: str) -> None:
    """Row numbers as an input give the target away wherever rows are sorted by it."""
    for name in columns:
        if not name or _UNNAMED.fullmatch(name):
            raise DataError(
                f"{origin} has a column without a name, as pandas writes its row names; save the table with "
                f"index=False, or leave the column out with drop={name}{'' if name else ' (and nothing behind the sign)'}."
            )
        if name in raw.index:
            raise DataError(
                f"{origin}: column {name!r} holds the row names of a data frame; save the table with index=False, "
                f"leave the column out with drop={name}, or make it an ordinary column with reset_index()."
            )


def _known(values: Floats, role: str, name: str, origin: str) -> Floats:
    """`values` unchanged; or an error that names the first missing one. Rows without a fold always train."""
    if role != "fold" and np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values))[0]) + 1
        raise DataError(f"{origin}, row {row}: the {role} {name!r} is missing; remove the rows without a {role}.")
    return values


def shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names if len(names) <= 9 else (*names[:3], "...", *names[-3:]))
