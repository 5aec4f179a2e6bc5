"""Copies what is still readable of a damaged store into a new one.

SQLite finds a row from the root of its tree, so a damaged page hides the rows on it and below it and no others. A scan
stops there. So the ids of cells are collected from every place that holds them, in many short scans from both ends,
and each cell is then looked up by its id. A cell that may have lost evaluations becomes `interrupted`: the same
command runs it again. A damaged digit inside a row cannot be noticed.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsibench.errors import StoreError
from fsibench.harness.store import schema
from fsibench.metrics import RESERVED_KEYS

# Ids of cells are hexadecimal. Short ranges: one damaged page costs the ids of a few of them.
RANGES = ["", *("".join(digits) for digits in itertools.product("0123456789abcdef", repeat=2)), "g"]
JSON_COLUMNS = ("command", "protocol", "environment", "options", "pit", "trace", "payload")
LOST_EVALUATIONS = "salvaged from a damaged store: evaluations are missing"


@dataclass
class Salvaged:
    """What was found: whole cells, cells that have to run again, and cells of which only the id was left."""

    whole: int = 0
    incomplete: int = 0
    lost: int = 0


def salvage(source: Path, target: Path) -> Salvaged:
    """Copy what is readable of `source` into the new store `target`."""
    if target.exists():
        raise StoreError(f"{target} exists already; salvage writes a new store, give another --out.")
    if not source.is_file():
        raise StoreError(f"there is no store at {source}.")
    damaged = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True, timeout=30)
    damaged.text_factory = lambda raw: raw.decode("utf-8")  # text that is not UTF-8 becomes an error of its row
    try:
        ids = _ids(damaged)
        fresh = schema.connect_for_writing(target)
        try:
            found = _copy_all(damaged, fresh, ids)
        finally:
            fresh.close()
    finally:
        damaged.close()
    if not found.whole + found.incomplete:
        target.unlink()
        raise StoreError(f"no cell of {source} can be read; nothing was written.")
    return found


def _copy_all(damaged: sqlite3.Connection, fresh: sqlite3.Connection, ids: list[str]) -> Salvaged:
    runs = {row["id"]: row for row in _rows(damaged, "runs", "1 = 1", ())}
    for row in runs.values():
        _insert(fresh, "runs", row)
    found = Salvaged()
    for cell in ids:
        _copy_cell(damaged, fresh, cell, runs, found)
    fresh.executescript(schema.NUMERIC_BUDGETS)  # a store of an older format lacks them
    fresh.commit()
    return found


def _copy_cell(
    damaged: sqlite3.Connection, fresh: sqlite3.Connection, cell: str, runs: dict[Any, Any], found: Salvaged
) -> None:
    rows = list(_rows(damaged, "cells", "id = ?", (cell,)))
    if not rows:
        found.lost += 1
        return
    row = rows[0]
    if row["run"] not in runs:
        runs[row["run"]] = blank = {"id": row["run"], "started": row["started"], "command": "[]", "protocol": "{}"}
        _insert(fresh, "runs", {**blank, "environment": "{}"})
    _insert(fresh, "cells", row)
    looks = list(_rows(damaged, "evaluations", "cell = ?", (cell,)))
    inserted = sum(_insert(fresh, "evaluations", look) for look in looks)
    whole = inserted == len(looks) and _scan_is_whole(damaged, cell)
    if not whole or (row["status"] == "ok" and not any(look["final"] for look in looks)):
        fresh.execute("UPDATE cells SET status = 'interrupted', message = ? WHERE id = ?", (LOST_EVALUATIONS, cell))
        found.incomplete += 1
    else:
        found.whole += 1
    for artifact in _rows(damaged, "artifacts", "cell = ?", (cell,)):
        _insert(fresh, "artifacts", artifact)


def _ids(damaged: sqlite3.Connection) -> list[str]:
    """Every id of a cell that some table or index still holds."""
    places = (("id", "cells NOT INDEXED"), ("id", "cells INDEXED BY cells_by_coordinates"), ("cell", "evaluations"))
    found: set[str] = set()
    for column, place in places:
        for low, high in itertools.pairwise(RANGES):
            for order in ("ASC", "DESC"):
                query = f"SELECT {column} FROM {place} WHERE {column} >= ? AND {column} < ? ORDER BY {column} {order}"
                found.update(row[0] for row in _until_damage(damaged, query, (low, high)))
    return sorted(cell for cell in found if isinstance(cell, str))


def _rows(damaged: sqlite3.Connection, table: str, where: str, values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """The readable rows, from the front and then from the back of the damage, each once; texts must be JSON."""
    key = {"runs": "id", "cells": "id", "evaluations": "step", "artifacts": "kind"}[table]
    seen = set()
    for order in ("ASC", "DESC"):
        query = f"SELECT * FROM {table} WHERE {where} ORDER BY {key} {order}"
        for row in _until_damage(damaged, query, values, named=True):
            if row[key] not in seen and all(_is_json(row[column]) for column in JSON_COLUMNS if column in row):
                seen.add(row[key])
                yield row


def _scan_is_whole(damaged: sqlite3.Connection, cell: str) -> bool:
    """Whether the evaluations of a cell can be read from one end to the other, every text of them."""
    try:
        rows = damaged.execute("SELECT * FROM evaluations WHERE cell = ? ORDER BY step", (cell,))
        names = [column[0] for column in rows.description]
        return all(_is_json(row[names.index(column)]) for row in rows for column in ("pit", "trace"))
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


def _until_damage(damaged: sqlite3.Connection, query: str, values: tuple[Any, ...], named: bool = False) -> Iterator[Any]:
    """Rows of a query until SQLite meets a page that it cannot read."""
    try:
        cursor = damaged.execute(query, values)
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True)) if named else row
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return


def _is_json(text: Any) -> bool:
    try:
        json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _insert(fresh: sqlite3.Connection, table: str, row: dict[str, Any]) -> bool:
    """Whether the row fits the new store: a damaged row may lack a required value or have the key of another row."""
    if table == "evaluations":
        schema.make_room_for(fresh, row.keys() - RESERVED_KEYS)
    known = {info[1] for info in fresh.execute(f"PRAGMA table_info({table})")}
    columns = [column for column in row if column in known]
    names, places = ", ".join(f'"{column}"' for column in columns), ", ".join("?" * len(columns))
    try:
        fresh.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", [row[column] for column in columns])
    except sqlite3.IntegrityError:
        return False
    return True
