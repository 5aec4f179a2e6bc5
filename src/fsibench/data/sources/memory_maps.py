"""Large splits on disk: standardised float32 rows, written once, memory-mapped by every fit.

A fit that maps its rows reads only those it draws, starts at once, and shares them with every other fit on the
machine. The folder `prepared/KEY` can be deleted at any time; it is made again when it is needed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data import Floats, Prepared, Rows, Standardiser, Table, blocks_of
from fsibench.data.encode import Encoder
from fsibench.data.sources import cache
from fsibench.data.standardise import warn_of_hidden

logger = logging.getLogger(__name__)

FORMAT = 2
FILES = {"train_x": "<f4", "train_y": "<f4", "test_x": "<f4", "test_y": "<f8"}


def mapped(key: str, table: Table, split_rows: Callable[[], tuple[Rows, Rows]], categories: str = "onehot") -> Prepared:
    """The prepared split under `key`, made first if it is not there whole."""
    place = cache.folder() / "prepared" / key
    found = _read(place)
    if found is not None:
        return found
    with cache.lock(f"prepared-{key}"):
        found = _read(place)
        if found is None:
            logger.info("standardising %d rows into %s", len(table), place)
            with cache.replacing(place) as staging:
                _write(staging, table, *split_rows(), categories)
            found = _read(place)
    assert found is not None, "just written under our own lock"
    return found


def _write(staging: Path, table: Table, train: Rows, test: Rows, categories: str) -> None:
    encode = Encoder.of(table.x, table.columns, table.levels, train, categories)
    encoded = _encoded(staging, table, encode)
    standardiser = Standardiser.of(encoded, table.y, train)
    warn_of_hidden(standardiser, encoded[test], staging.name)
    for name, rows in (("train", train), ("test", test)):
        with (staging / f"{name}_x").open("wb") as file:
            for block in blocks_of(encoded, rows):
                file.write(standardiser.x(block).astype("<f4").tobytes())
    with (staging / "train_y").open("wb") as file:
        for block in blocks_of(table.y, train):
            file.write(standardiser.y(block).astype("<f4").tobytes())
    (staging / "test_y").write_bytes(np.asarray(table.y[test], dtype="<f8").tobytes())
    record = {
        "format": FORMAT,
        "inputs": encoded.shape[1],
        "x_mean": standardiser.x_mean.tolist(),
        "x_scale": standardiser.x_scale.tolist(),
        "y_mean": standardiser.y_mean,
        "y_scale": standardiser.y_scale,
        "x_constant": standardiser.x_constant,
        "stamps": _stamps(staging),
    }
    (staging / "prepared.json").write_text(json.dumps(record), encoding="utf-8")
    (staging / "encoded").unlink(missing_ok=True)


def _encoded(staging: Path, table: Table, encode: Encoder) -> Floats:
    """The columns as numbers; those that change are written beside the table instead of into memory."""
    if not encode.parts:
        return table.x
    with (staging / "encoded").open("wb") as file:
        for block in blocks_of(table.x, np.arange(len(table))):
            file.write(encode(block).astype("<f8").tobytes())
    return np.memmap(staging / "encoded", dtype="<f8", mode="r", shape=(len(table), len(encode.columns)))


def _read(place: Path) -> Prepared | None:
    """None if there is nothing, or if a file is no longer the one that was written."""
    try:
        record = json.loads((place / "prepared.json").read_text(encoding="utf-8"))
        if record["format"] != FORMAT or record["stamps"] != _stamps(place):
            logger.warning("the prepared rows in %s have changed; they are made again", place)
            return None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("the prepared rows in %s are damaged (%s); they are made again", place, error)
        return None
    inputs = record["inputs"]
    standardiser = Standardiser(
        *(np.array(record["x_mean"]), np.array(record["x_scale"]), record["y_mean"], record["y_scale"]),
        tuple(record["x_constant"]),
    )
    train_x, test_x = (_map(place, name).reshape(-1, inputs) for name in ("train_x", "test_x"))
    return Prepared(train_x, _map(place, "train_y"), test_x, _map(place, "test_y"), standardiser)


def _map(place: Path, name: str) -> Any:
    """Copy-on-write, so that torch accepts it as writable and no mistake can reach the file."""
    array: Floats = np.memmap(place / name, dtype=FILES[name], mode="c")
    return array


def _stamps(place: Path) -> dict[str, list[int]]:
    status = {name: (place / name).stat() for name in FILES}
    return {name: [found.st_size, found.st_mtime_ns] for name, found in status.items()}
