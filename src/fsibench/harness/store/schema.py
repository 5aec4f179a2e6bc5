"""The tables of a store, and how one is made, opened and brought up to date.

    runs         one row per invocation: command, environment, machine calibration
    cells        one row per (entry, dataset, split, seed, budget): status, clocks, memory
    evaluations  one row per look at a posterior: scores against step and training seconds; one column per metric,
                 further ones added when first seen, NULL where it was not computed or does not exist
    artifacts    small named payloads of a cell (JSON text): `hardest` always, others when asked for
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from fsibench.errors import StoreError
from fsibench.metrics import RESERVED_KEYS, require_key

SCHEMA_VERSION = 4

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
  id INTEGER PRIMARY KEY, started TEXT NOT NULL, finished TEXT, outcome TEXT,
  command TEXT NOT NULL, protocol TEXT NOT NULL, environment TEXT NOT NULL
);
CREATE TABLE cells (
  id TEXT PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id),
  entry TEXT NOT NULL, method TEXT NOT NULL, options TEXT NOT NULL, note TEXT NOT NULL,
  reproduces TEXT NOT NULL DEFAULT '', variant TEXT NOT NULL DEFAULT '',
  dataset TEXT NOT NULL, scheme TEXT NOT NULL, split INTEGER NOT NULL, seed INTEGER NOT NULL,
  budget TEXT NOT NULL, budget_seconds REAL, budget_steps INTEGER, clock TEXT NOT NULL, device TEXT NOT NULL,
  per_decade INTEGER, keep TEXT,
  data_fingerprint TEXT NOT NULL, code_version TEXT NOT NULL,
  status TEXT NOT NULL, message TEXT, traceback TEXT, attempts INTEGER NOT NULL,
  num_train INTEGER, num_test INTEGER, num_inputs INTEGER, target_scale REAL,
  train_seconds REAL, wall_seconds REAL, cpu_seconds REAL, total_seconds REAL,
  setup_seconds REAL, setup_cpu_seconds REAL,
  predict_seconds REAL, predict_cpu_seconds REAL, predict_rows INTEGER,
  evaluate_seconds REAL, evaluate_cpu_seconds REAL, paused_cpu_seconds REAL,
  peak_memory_mb REAL, contended INTEGER, flags TEXT NOT NULL DEFAULT '',
  calibration_seconds REAL, worker TEXT,
  started TEXT NOT NULL, finished TEXT
) WITHOUT ROWID;
CREATE TABLE evaluations (
  cell TEXT NOT NULL REFERENCES cells(id) ON DELETE CASCADE, step INTEGER NOT NULL,
  train_seconds REAL NOT NULL, wall_seconds REAL NOT NULL, cpu_seconds REAL NOT NULL,
  num_rows INTEGER,
  pit TEXT NOT NULL, trace TEXT NOT NULL, final INTEGER NOT NULL DEFAULT 0,
  rmse REAL, ll REAL, crps REAL, sharpness REAL,
  PRIMARY KEY (cell, step)
) WITHOUT ROWID;
CREATE TABLE artifacts (
  cell TEXT NOT NULL REFERENCES cells(id) ON DELETE CASCADE, kind TEXT NOT NULL, payload TEXT NOT NULL,
  PRIMARY KEY (cell, kind)
) WITHOUT ROWID;
CREATE INDEX cells_by_coordinates ON cells (entry, dataset, scheme, split, seed, budget, clock, device);
"""

# Budgets as numbers, from the text that formats 1 and 2 kept.
NUMERIC_BUDGETS = """
UPDATE cells SET budget_steps = CAST(budget AS INTEGER) WHERE budget LIKE '% steps' AND budget_steps IS NULL;
UPDATE cells SET budget_seconds = CAST(budget AS REAL) WHERE budget NOT LIKE '% steps' AND budget_seconds IS NULL;
"""

# From each format to the next. A store that is written is brought up to date in place; one that is only read, in a copy.
MIGRATIONS = {
    1: """
    ALTER TABLE cells ADD COLUMN setup_cpu_seconds REAL;
    ALTER TABLE cells ADD COLUMN predict_cpu_seconds REAL;
    ALTER TABLE cells ADD COLUMN evaluate_cpu_seconds REAL;
    """,
    2: f"""
    ALTER TABLE cells ADD COLUMN reproduces TEXT NOT NULL DEFAULT '';
    ALTER TABLE cells ADD COLUMN variant TEXT NOT NULL DEFAULT '';
    ALTER TABLE cells ADD COLUMN budget_seconds REAL;
    ALTER TABLE cells ADD COLUMN budget_steps INTEGER;
    ALTER TABLE cells ADD COLUMN per_decade INTEGER;
    ALTER TABLE cells ADD COLUMN keep TEXT;
    ALTER TABLE cells ADD COLUMN predict_rows INTEGER;
    ALTER TABLE cells ADD COLUMN paused_cpu_seconds REAL;
    ALTER TABLE cells ADD COLUMN flags TEXT NOT NULL DEFAULT '';
    ALTER TABLE cells ADD COLUMN calibration_seconds REAL;
    ALTER TABLE cells ADD COLUMN worker TEXT;
    {NUMERIC_BUDGETS}
    """,
    # The metrics become columns that may be empty; a table must be made anew for that.
    3: """
    ALTER TABLE evaluations RENAME TO evaluations_before;
    CREATE TABLE evaluations (
      cell TEXT NOT NULL REFERENCES cells(id) ON DELETE CASCADE, step INTEGER NOT NULL,
      train_seconds REAL NOT NULL, wall_seconds REAL NOT NULL, cpu_seconds REAL NOT NULL,
      num_rows INTEGER, pit TEXT NOT NULL, trace TEXT NOT NULL, final INTEGER NOT NULL DEFAULT 0,
      rmse REAL, ll REAL, crps REAL, sharpness REAL,
      PRIMARY KEY (cell, step)
    ) WITHOUT ROWID;
    INSERT INTO evaluations SELECT cell, step, train_seconds, wall_seconds, cpu_seconds, NULL, pit, trace, final,
      rmse, ll, crps, sharpness FROM evaluations_before;
    DROP TABLE evaluations_before;
    """,
}


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """A connection to an existing or a new store, in the newest format."""
    connection = None
    try:
        if not path.exists() or path.stat().st_size == 0:
            _make(path.resolve())
        connection = sqlite3.connect(path.resolve().as_uri(), uri=True, timeout=30)
        version = version_of(path, connection)  # first, so that a file of another program is left as it is
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        check_for_damage(path, connection)
        _migrate(connection, version)
        return connection
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.DatabaseError | OSError):
            raise StoreError(f"the store {path} cannot be used: {error}.") from None
        raise


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; a store in an older format is read from an up-to-date copy in memory."""
    _undo_a_killed_transaction(path)
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=30)
    try:
        version = version_of(path, connection)
        check_for_damage(path, connection)
        return connection if version == SCHEMA_VERSION else _migrated_copy(connection, version)
    except BaseException:
        connection.close()
        raise


def _undo_a_killed_transaction(path: Path) -> None:
    """Roll back what a killed writer left half written: a reader may not, so a writing connection looks first."""
    real = path.resolve()
    journal = real.with_name(f"{real.name}-journal")
    if not journal.exists():
        return
    connection = sqlite3.connect(f"{real.as_uri()}?mode=rw", uri=True, timeout=30)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise StoreError(
                f"the writer of {path} was killed in the middle of a transaction, and undoing it needs permission to "
                f"write: copy {real.name} and {journal.name} together to a place that you can write."
            ) from None
        # Anything else is a fault of the store itself, which opening it explains.
    finally:
        connection.close()


def _make(path: Path) -> None:
    """An empty store. It is written under another name and then renamed, so nobody opens one without tables."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh)
    try:
        make_tables(connection)
    finally:
        connection.close()
    fresh.replace(path)


def make_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(f"{SCHEMA} INSERT INTO meta VALUES ('schema_version', '{SCHEMA_VERSION}');")
    connection.commit()


def version_of(path: Path, connection: sqlite3.Connection) -> int:
    """The format of a store that this version can read; anything else is refused."""
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    except sqlite3.DatabaseError as error:
        if _code(error) not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):  # no database, no such table
            raise explained(path, error) from None
        row = None
    if row is None:
        raise StoreError(f"{path} is not a fsibench store; give another --store.")
    if row[0] not in {str(version) for version in (*MIGRATIONS, SCHEMA_VERSION)}:
        raise StoreError(
            f"the store {path} has format {row[0]}, this fsibench reads formats {min(MIGRATIONS)} to {SCHEMA_VERSION}; "
            "export it with the version that wrote it, or give another --store."
        )
    return int(row[0])


def make_room_for(connection: sqlite3.Connection, metrics: Iterable[str]) -> set[str]:
    """A column for each metric that the store has not met before; returns the keys that it then has."""
    present = {row[1] for row in connection.execute("PRAGMA main.table_info(evaluations)")} - RESERVED_KEYS
    for key in sorted(set(metrics) - present):
        require_key(key)
        connection.execute(f"ALTER TABLE main.evaluations ADD COLUMN {key} REAL")
        present.add(key)
    return present


def check_for_damage(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a store with pages or texts that cannot be read; a changed digit inside a row cannot be noticed."""
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        texts = {"runs": ("command", "protocol", "environment"), "cells": ("options",), "evaluations": ("pit", "trace")}
        for table, columns in texts.items():
            broken = " OR ".join(f"NOT json_valid({column})" for column in columns)
            if found == "ok" and connection.execute(f"SELECT 1 FROM {table} WHERE {broken} LIMIT 1").fetchone():
                found = f"a text in {table} is not JSON"
    except sqlite3.DatabaseError as error:
        raise explained(path, error) from None
    if found != "ok":
        raise damaged(path, found)


def explained(path: Path, error: sqlite3.Error) -> StoreError:
    """SQLite's finding as one error message."""
    if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"the store {path} is busy ({error}); try again.")
    if _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL):
        return StoreError(f"the store {path} cannot be used ({error}).")
    return damaged(path, str(error))


def damaged(path: Path, how: str) -> StoreError:
    how = " ".join(how.split())  # SQLite answers in several lines
    return StoreError(
        f"the store {path} is damaged ({how}); `fsibench store salvage --store {path} --out NEW` copies what is readable."
    )


def _code(error: sqlite3.Error) -> int:
    """The primary result code of SQLite, without its refinements."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    """One transaction per step: a crash leaves the store in one format or the other."""
    while version < SCHEMA_VERSION:
        steps = MIGRATIONS[version]
        version += 1
        connection.executescript(
            f"BEGIN IMMEDIATE; {steps} UPDATE meta SET value = '{version}' WHERE key = 'schema_version'; COMMIT;"
        )


def _migrated_copy(connection: sqlite3.Connection, version: int) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:")
    connection.backup(copy)
    connection.close()
    _migrate(copy, version)
    return copy
