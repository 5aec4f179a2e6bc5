"""The way to a table: local cache, mirror folder, package, OpenML, UCI archive; the first that has it is verified.

The cache is repaired if it is damaged. A file in the mirror folder was put there on purpose, so a wrong one is an
error. A remote source that sends another table is skipped with a warning, and the next one is tried.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data import Table
from fsibench.data.sources import cache
from fsibench.data.sources.columns import at_most, renamed, selected, shortened, target_last
from fsibench.data.sources.passport import Passport, Source
from fsibench.data.sources.raw import Layout, Raw, require_columns
from fsibench.data.sources.reading import read_table
from fsibench.errors import DataError, Unreachable

logger = logging.getLogger(__name__)

# The answer of `verify` for a readable copy of a table whose passport has no hash: it can neither be confirmed nor refuted.
UNVERIFIED = "unverified (no hash of the original table is known)"
MIRROR_ENDINGS = (".csv.gz", ".parquet", ".csv")


class _Variant(Exception):
    """Raised for a known near copy of a table, which is skipped without an error."""


def load(passport: Passport, bundled: Path | None = None) -> Table:
    """The verified table of a passport, fetched if it has to be."""
    name = passport.name
    table = cache.read_table(name, passport.sha256)
    if table is not None:
        logger.info("%s: found in the cache", name)
        return table
    logger.info("%s: not in the cache", name)
    local = bundled_file(passport, bundled)
    if local is not None and mirror_file(name) is None and not cache.table_folder(name).exists():
        return _in_package(passport, local)  # in place; the cache is for what has to be fetched, or was damaged there
    with cache.lock(name):
        table = cache.read_table(name, passport.sha256)  # another process may have fetched it while we waited
        return table if table is not None else _fetched(passport, local)


def mirror_file(name: str) -> Path | None:
    """The file of that name in the mirror folder, if there is a mirror folder and it has one."""
    folder = os.environ.get("FSIBENCH_MIRROR")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise DataError(f"the mirror folder {folder} (--mirror or FSIBENCH_MIRROR) does not exist.")
    files = (Path(folder) / f"{name}{ending}" for ending in MIRROR_ENDINGS)
    return next((file for file in files if file.is_file()), None)


def bundled_file(passport: Passport, folder: Path | None) -> Path | None:
    file = folder / f"{passport.name}.csv.gz" if folder is not None else None
    return file if file is not None and file.is_file() else None


def whereabouts(passport: Passport, bundled: Path | None = None) -> tuple[str, bool]:
    """Where the table would come from, and whether it is on this machine now."""
    record = _cached_record(passport)
    if record is not None:
        return f"cache ({record['origin']})", True
    if mirror_file(passport.name) is not None:
        return "mirror", True
    if bundled_file(passport, bundled) is not None:
        return "bundled", True
    return ", then ".join(source.describe() for source in passport.sources) or "your own file", False


def location(passport: Passport, bundled: Path | None = None) -> str | None:
    """The folder or file that `load` would read now."""
    if _cached_record(passport) is not None:
        return str(cache.table_folder(passport.name))
    file = mirror_file(passport.name) or bundled_file(passport, bundled)
    return None if file is None else str(file)


def _cached_record(passport: Passport) -> dict[str, Any] | None:
    record = cache.record_of(passport.name)
    return record if record is not None and passport.sha256 in (None, record["sha256"]) else None


def verify(passport: Passport, bundled: Path | None = None) -> list[tuple[str, str]]:
    """Every copy on this machine, every value checked: (where it is, what is wrong or nothing)."""
    found = verify_cached(passport.name, passport.sha256, passport)
    for file in (mirror_file(passport.name), bundled_file(passport, bundled)):
        if file is not None:
            found.append(_verdict(passport, file))
    return found


def verify_cached(name: str, sha256: str | None = None, passport: Passport | None = None) -> list[tuple[str, str]]:
    """The cached copy, if there is one; a damaged one is removed, so that the next use fetches it again."""
    place = cache.table_folder(name)
    if not place.exists():
        return []
    with cache.lock(name):
        table = cache.read_table(name, sha256, thorough=True)
        found = passport.differences(table) if table is not None and passport is not None else []
        if table is not None and not found:
            return [(str(place), "" if sha256 else UNVERIFIED)]
        cache.discard(place)
    return [(str(place), "damaged; removed from the cache, the next use fetches it again")]


def _verdict(passport: Passport, file: Path) -> tuple[str, str]:
    try:
        table = _in_memory(passport, file)
        variant = passport.variants.get(table.fingerprint())
        if variant is not None:
            return f"{file} (passed over: {variant})", ""
        passport.check(table, str(file))
    except DataError as error:
        return str(file), str(error)
    return str(file), "" if passport.sha256 else UNVERIFIED


def converted(key: str, origin: str, make: Callable[[Path], object]) -> Table:
    """The cached table under `key` if it was made from `origin`; else `make` fills a folder with it now."""
    table = _made_from(key, origin)
    if table is not None:
        return table
    with cache.lock(key):
        table = _made_from(key, origin)
        if table is None:
            with cache.replacing(cache.table_folder(key)) as staging:
                make(staging)
            table = cache.read_table(key)
    assert table is not None, "just written under our own lock"
    return table


def _made_from(key: str, origin: str) -> Table | None:
    record = cache.record_of(key)
    return cache.read_table(key) if record is not None and record.get("origin") == origin else None


# --- each place -------------------------------------------------------------------------------------------------


def _in_package(passport: Passport, file: Path) -> Table:
    logger.info("%s: bundled with fsibench", passport.name)
    table = _in_memory(passport, file)
    passport.check(table, str(file))
    return table


def _in_memory(passport: Passport, file: Path) -> Table:
    with read_table(file, passport.layout) as raw:
        blocks = list(at_most(selected(raw, passport, str(file)), passport, str(file)))
    x = np.concatenate([x for x, _ in blocks] or [np.empty((0, len(passport.columns)))])
    y = np.concatenate([y for _, y in blocks] or [np.empty(0)])
    return Table(x, y, passport.columns, passport.target, raw.levels)


def _fetched(passport: Passport, local: Path | None) -> Table:
    file = mirror_file(passport.name)
    if file is not None:
        try:
            logger.info("%s: mirror file %s", passport.name, file)
            return _from_file(passport, file, f"mirror, {file.name}")
        except _Variant as variant:
            logger.info("%s: %s is passed over: it is a known variant, %s", passport.name, file, variant)
    if local is not None:  # into the cache, or the mirror's variant would be read again each time
        return _from_file(passport, local, "bundled")
    return _from_afar(passport)


def _from_afar(passport: Passport) -> Table:
    failures: list[DataError] = []
    out_of_reach = set()
    for source in passport.sources:
        for label, attempt in _attempts(passport, source):
            if source.kind in out_of_reach:
                continue
            logger.info("%s: asking %s", passport.name, label)
            try:
                return attempt()
            except Unreachable as error:
                logger.info("%s: %s", passport.name, error)
                out_of_reach.add(source.kind)
                failures.append(error)
            except DataError as error:
                logger.warning("%s: %s", passport.name, error)
                failures.append(error)
    raise _absent(passport, failures)


def _from_file(passport: Passport, file: Path, origin: str) -> Table:
    with cache.replacing(cache.table_folder(passport.name)) as staging, read_table(file, passport.layout) as raw:
        table = _kept(passport, raw, staging, origin, str(file))
        variant = passport.variants.get(table.fingerprint())
        if variant is not None:
            raise _Variant(variant)
        _accept(passport, table, str(file))
    return _moved(passport)


def _attempts(passport: Passport, source: Source) -> Iterator[tuple[str, Callable[[], Table]]]:
    if source.kind == "uci":
        yield source.describe(), functools.partial(_from_uci, passport, source)
    else:
        for arff in (False, True):  # a broken Parquet file does not mean that the ARFF file is broken too
            label = f"{source.describe()}{' (ARFF)' if arff else ''}"
            yield label, functools.partial(_from_openml, passport, source, arff)


def _from_openml(passport: Passport, source: Source, arff: bool) -> Table:
    from fsibench.data.sources import openml_client

    with cache.replacing(cache.table_folder(passport.name)) as staging:
        with cache.workplace(passport.name) as place:
            raw, target = openml_client.fetch(source.id, source.target, place, arff=arff, layout=_loose(passport))
            require_columns(source.drop, raw.names, source.describe())
            unwanted = tuple(raw.names.index(name) for name in source.drop)
            raw = target_last(raw, raw.names.index(target), unwanted)
            table = _kept(passport, renamed(raw, passport), staging, source.describe(), source.describe())
        _accept(passport, table, source.describe())
    return _moved(passport)


def _from_uci(passport: Passport, source: Source) -> Table:
    from fsibench.data.sources.download import (  # network modules are slow to import and rarely needed
        download,
        uci_address,
    )

    url = uci_address() + source.path
    with cache.replacing(cache.table_folder(passport.name)) as staging:
        with cache.workplace(passport.name) as place:
            file = place / Path(source.path).name
            download(url, file, sha256=source.sha256, limit=_plausible_bytes(passport))
            layout = dataclasses.replace(
                _loose(passport),
                **{key: getattr(source, key) for key in ("delimiter", "header", "members", "sheet")},
            )
            with read_table(file, layout) as raw:
                ordered = target_last(raw, source.target_column, source.drop_columns)
                table = _kept(passport, renamed(ordered, passport), staging, source.describe(), url)
        _accept(passport, table, url)
    return _moved(passport)


def _kept(passport: Passport, raw: Raw, staging: Path, origin: str, described: str) -> Table:
    blocks = at_most(selected(raw, passport, described), passport, described)
    return cache.write_table(staging, passport.columns, passport.target, blocks, origin, raw.levels)


def _loose(passport: Passport) -> Layout:
    """For a provider's file, whose columns have names of its own."""
    return Layout(labels=bool(passport.levels), gaps=passport.missing)


def _accept(passport: Passport, table: Table, origin: str) -> None:
    passport.check(table, origin)
    if passport.sha256 is None:
        logger.warning("%s: %s is taken, but its values are %s", passport.name, origin, UNVERIFIED)


def _moved(passport: Passport) -> Table:
    table = cache.read_table(passport.name)
    assert table is not None, "just written under our own lock"
    return table


def _plausible_bytes(passport: Passport) -> int:
    """An upper limit for a file of this table: 32 characters per number, plus room for other content of an archive."""
    return 32 * passport.rows * (len(passport.columns) + 1) + (1 << 26)


def _absent(passport: Passport, failures: list[DataError]) -> Unreachable:
    """One sentence: what was tried, and which file to put where."""
    reasons = "; ".join(str(error).rstrip(". ") for error in failures)
    tried = f"could not be fetched ({reasons})" if failures else "has no public source"
    names = " or ".join(f"{passport.name}{ending}" for ending in MIRROR_ENDINGS[:2])
    shape = f"{passport.rows} rows, columns {shortened(passport.columns)} and last {passport.target}"
    recipe = f" ({passport.recipe})" if passport.recipe else ""
    return Unreachable(
        f"data set {passport.name!r} is not on this machine and {tried}: put {names} ({shape}) into a folder "
        f"and name that folder with --mirror or FSIBENCH_MIRROR{recipe}."
    )
