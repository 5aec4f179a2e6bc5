"""The cache folder: whole tables or none, one writer at a time, damage noticed.

A table is a folder `tables/NAME` with `x.f64` [N, D] and `y.f64` [N] (little-endian float64, row by row) and
`table.json`. It is written beside the cache proper and moved into place by one rename, so that a process killed at
any moment leaves either the old state or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data import Floats, Table
from fsibench.errors import DataError

logger = logging.getLogger(__name__)

FORMAT = 2


def folder() -> Path:
    """FSIBENCH_CACHE, or `fsibench` in the user's cache folder."""
    if chosen := os.environ.get("FSIBENCH_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fsibench"


def table_folder(name: str) -> Path:
    return folder() / "tables" / name


def kept_file(name: str) -> Path:
    """A table that was handed over from Python."""
    return folder() / "kept" / name / "table.parquet"


# --- one writer, whole folders ----------------------------------------------------------------------------------


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold `name` against other processes; released by the system even if this one is killed."""
    path = folder() / "locks" / f"{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError as error:
        raise unwritable(error) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("%s: waiting for another process that is fetching it", name)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new folder to fill, which becomes `target` if the block succeeds and vanishes if it does not.

    The caller holds the lock of `target`'s name, so anything in the staging folder was left by a process that died.
    """
    staging = folder() / "staging" / target.name
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        yield staging
        for path in staging.iterdir():
            _flush_to_disk(path)
        discard(target)
        staging.rename(target)
    except OSError as error:
        raise unwritable(error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def workplace(name: str) -> Iterator[Path]:
    """A folder for downloads that vanishes afterwards; under the lock of `name`, like `replacing`."""
    place = folder() / "downloads" / name
    shutil.rmtree(place, ignore_errors=True)  # left behind by a killed process
    try:
        place.mkdir(parents=True)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def discard(target: Path) -> None:
    """Remove a cached folder in one step: half-deleted tables must not be seen either. Under the lock of its name."""
    grave = folder() / "removed" / target.name
    shutil.rmtree(grave, ignore_errors=True)
    if target.exists():
        grave.parent.mkdir(exist_ok=True)
        target.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


def clean(*, everything: bool = False) -> int:
    """Remove prepared splits, or all that can be fetched or made again; returns the number of bytes.

    Runs that have mapped such a file keep it until they end. Tables added from Python exist nowhere else, so they are kept.
    """
    removed = 0
    for kind in ("prepared", *(("tables", "suites", "downloads", "staging", "removed") if everything else ())):
        for place in sorted((folder() / kind).glob("*")):
            with lock(f"prepared-{place.name}" if kind == "prepared" else place.name):
                removed += sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
                if kind == "removed":
                    shutil.rmtree(place, ignore_errors=True)
                else:
                    discard(place)
    return removed


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def unwritable(error: OSError) -> DataError:
    reason = error.strerror or str(error)
    return DataError(f"the cache folder {folder()} cannot be used ({reason}); choose another with FSIBENCH_CACHE.")


# --- tables -----------------------------------------------------------------------------------------------------


def write_table(
    staging: Path,
    columns: tuple[str, ...],
    target: str,
    blocks: Iterable[tuple[Floats, ...]],
    origin: str,
    levels: Mapping[str, tuple[str, ...]] | None = None,
    keys: tuple[str, ...] = (),
) -> Table:
    """Write blocks (x [n, D], y [n], each key [n]) into a staging folder and give back the table, memory-mapped."""
    rows = 0
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((staging / name).open("wb")) for name in ("x.f64", "y.f64", *_key_files(keys))]
        for block in blocks:
            for values, file in zip(block, files, strict=True):
                file.write(np.ascontiguousarray(values, dtype="<f8").tobytes())
            rows += len(block[1])
    if rows < 2:
        place = origin.partition(" (")[0]  # without size and time of a file
        raise DataError(f"{place} has {rows} row{'s' * (rows != 1)}; a data set needs at least 2.")
    table = _mapped(staging, {"rows": rows, "columns": columns, "target": target, "levels": levels or {}, "keys": keys})
    _write_record(staging, table, table.fingerprint(), origin)
    return table


def _key_files(keys: Iterable[str]) -> list[str]:
    return [f"{key}.f64" for key in keys]


def read_table(name: str, sha256: str | None = None, *, thorough: bool = False) -> Table | None:
    """The cached table; None if there is none, if it is damaged, or if it is not the one with this sha256.

    Values are hashed again only if the files changed since they were written, or if `thorough`.
    """
    place = table_folder(name)
    try:
        record = json.loads((place / "table.json").read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            logger.info("%s: the cached copy in %s was written by another version; it will be replaced", name, place)
            return None
        table = _mapped(place, record)
        intact = _intact(place, table, record, thorough)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s: the cached copy in %s is damaged (%s); it will be replaced", name, place, error)
        return None
    if not intact:
        logger.warning("%s: the cached copy in %s is damaged (other values); it will be replaced", name, place)
        return None
    if sha256 is not None and record["sha256"] != sha256:
        logger.warning("%s: the cached copy in %s is another table; it will be replaced", name, place)
        return None
    return table


def record_of(name: str) -> dict[str, Any] | None:
    """The content of `table.json`, values not checked; None if it cannot be used."""
    try:
        record: dict[str, Any] = json.loads((table_folder(name) / "table.json").read_text(encoding="utf-8"))
        return record if record["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mapped(place: Path, record: Mapping[str, Any]) -> Table:
    """Copy-on-write maps: they can be handed to code that wants writable arrays, and the files stay as they are."""
    rows, columns = record["rows"], tuple(record["columns"])
    levels = {name: tuple(labels) for name, labels in record["levels"].items()}
    keys = {key: _map(place / f"{key}.f64", (rows,)) for key in record["keys"]}
    x, y = _map(place / "x.f64", (rows, len(columns))), _map(place / "y.f64", (rows,))
    return Table(x, y, columns, record["target"], levels, keys)


def _map(path: Path, shape: tuple[int, ...]) -> Floats:
    size, found = 8 * int(np.prod(shape)), path.stat().st_size
    if found != size:
        raise ValueError(f"{path.name} has {found} bytes instead of {size}")
    return np.memmap(path, dtype="<f8", mode="c", shape=shape)


def _intact(place: Path, table: Table, record: dict[str, Any], thorough: bool) -> bool:
    if not thorough and record["stamps"] == _stamps(place, table.keys):
        return True
    if table.fingerprint() != record["sha256"]:
        return False
    with contextlib.suppress(OSError):  # a read-only cache works too; it is only hashed more often
        _write_record(place, table, record["sha256"], record["origin"])
    return True


def _stamps(place: Path, keys: Iterable[str]) -> dict[str, list[int]]:
    status = {file: (place / file).stat() for file in ("x.f64", "y.f64", *_key_files(keys))}
    return {file: [found.st_size, found.st_mtime_ns] for file, found in status.items()}


def _write_record(place: Path, table: Table, sha256: str, origin: str) -> None:
    record = {
        "format": FORMAT,
        "rows": len(table),
        "columns": list(table.columns),
        "target": table.target,
        "levels": table.levels,
        "keys": list(table.keys),
        "sha256": sha256,
        "origin": origin,
        "stamps": _stamps(place, table.keys),
    }
    temporary = place / "table.json.new"
    temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    temporary.replace(place / "table.json")
