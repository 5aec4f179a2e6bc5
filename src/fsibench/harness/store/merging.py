"""Taking over the cells of one store into another, as one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from fsibench.errors import StoreError
from fsibench.harness.store import schema
from fsibench.metrics import RESERVED_KEYS


def merge(connection: sqlite3.Connection, other: Path, final_statuses: Iterable[str]) -> int:
    """Copy the cells that the open store lacks or has no final result for; returns how many."""
    connection.execute("ATTACH DATABASE ? AS other", (f"{other.resolve().as_uri()}?mode=ro",))
    try:
        version = connection.execute("SELECT value FROM other.meta WHERE key = 'schema_version'").fetchone()
        if version[0] != str(schema.SCHEMA_VERSION):
            raise StoreError(f"{other} has an older format; run `fsibench store gc --store {other}` and merge again.")
        count = _take_over(connection, final_statuses)
        connection.commit()
        return count
    finally:
        connection.rollback()  # nothing is left to undo after a commit
        connection.execute("DETACH DATABASE other")


def _take_over(connection: sqlite3.Connection, final_statuses: Iterable[str]) -> int:
    execute = connection.execute
    finals = ", ".join(f"'{status}'" for status in final_statuses)
    execute("BEGIN IMMEDIATE")
    offset = execute("SELECT coalesce(max(id), 0) FROM main.runs").fetchone()[0]
    execute(
        "CREATE TEMP TABLE taken AS SELECT id, run FROM other.cells o WHERE NOT EXISTS"
        f" (SELECT 1 FROM main.cells m WHERE m.id = o.id AND (m.status IN ({finals}) OR o.status NOT IN ({finals})))"
    )
    execute("DELETE FROM main.cells WHERE id IN (SELECT id FROM taken)")
    _copy(connection, "runs", "id IN (SELECT run FROM taken)", {"id": f"id + {offset}"})
    _copy(connection, "cells", "id IN (SELECT id FROM taken)", {"run": f"run + {offset}"})
    foreign = {row[1] for row in execute("PRAGMA other.table_info(evaluations)")} - RESERVED_KEYS
    schema.make_room_for(connection, foreign)
    _copy(connection, "evaluations", "cell IN (SELECT id FROM taken)", {})
    _copy(connection, "artifacts", "cell IN (SELECT id FROM taken)", {})
    count: int = execute("SELECT count(*) FROM taken").fetchone()[0]
    execute("DROP TABLE taken")
    return count


def _copy(connection: sqlite3.Connection, table: str, chosen: str, moved: dict[str, str]) -> None:
    """By name: a store that was brought up to date has its newer columns last."""
    columns = [row[1] for row in connection.execute(f"PRAGMA other.table_info({table})")]
    names = ", ".join(f'"{column}"' for column in columns)
    values = ", ".join(moved.get(column, f'"{column}"') for column in columns)
    connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {values} FROM other.{table} WHERE {chosen}")
