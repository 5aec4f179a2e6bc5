"""A report of many cells: what is read, what is in memory at a time, and that the pages are the same."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tracemalloc
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import pytest

from fsibench.harness.store import Store, frames
from fsibench.reports import templates
from fsibench.reports.analysis import results, truth

COPIES = 60


@pytest.fixture(scope="module")
def large_store(full_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of the usual store under many seeds."""
    path = tmp_path_factory.mktemp("large") / "large.sqlite"
    shutil.copy(full_store, path)
    with sqlite3.connect(path) as connection:
        for table, key in (("cells", "id"), ("evaluations", "cell")):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for copy in range(1, COPIES):
                changed = {key: f"{key} || '-{copy:03}'", "seed": f"seed + {copy}"}
                values = ", ".join(changed.get(name, name) for name in names)
                connection.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE {key} NOT LIKE '%-%'")
    connection.close()
    return path


def test_reading_a_store_takes_little_more_memory_than_what_is_kept(large_store: Path) -> None:
    results.load(large_store)  # whatever is imported or cached on the way
    tracemalloc.start()
    try:
        found = results.load(large_store)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.cells) > 10_000
    assert peak < 1.8 * kept
    assert found.pit.dtype == np.int32
    assert found.cells["entry"].dtype == "category"


def test_a_store_without_reference_posteriors_is_not_read_for_them(large_store: Path) -> None:
    with Store.read(large_store) as store:
        assert store.evaluations(having=truth.FIRST).empty
        assert set(store.evaluations(having="ll")["cell"]) < set(store.cells()["id"])


def test_copies_of_a_store_have_its_scores(full_store: Path, large_store: Path) -> None:
    small, large = results.load(full_store), results.load(large_store)
    assert large.datasets == small.datasets
    assert large.entries == small.entries
    for metric in small.metrics:
        means = [
            pd.Series(found.final(metric)).groupby([found.cells["entry"], found.cells["dataset"]], observed=True).mean()
            for found in (small, large)
        ]
        pd.testing.assert_series_equal(*means)


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 100])
def test_columns_have_the_types_that_all_their_values_allow(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ROWS_AT_A_TIME", at_a_time)
    rows = [
        (1, 1, None, None, "x", 1.5, None),
        (2, None, None, "u", 3, None, None),
        (3, None, None, None, None, 2, "y"),
        (4, 7, None, "u", "z", 3, 2),
        (5, None, None, "v", 2.5, None, 2.5),
    ]
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (a, b, c, d, e, f, g)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        found = frames.read(connection.execute("SELECT * FROM t"))
        as_categories = frames.read(connection.execute("SELECT * FROM t"), categories=("a", "d", "e"))
    connection.close()
    expected = pd.DataFrame(dict(zip("abcdefg", map(list, zip(*rows, strict=True)), strict=True)))
    pd.testing.assert_frame_equal(found, expected)
    pd.testing.assert_frame_equal(as_categories.drop(columns="d"), expected.drop(columns="d"))
    assert list(as_categories["d"].cat.categories) == ["u", "v"]
    assert as_categories["d"].astype(object).where(as_categories["d"].notna(), None).tolist() == [None, "u", None, "u", "v"]


def test_an_empty_query_has_its_columns() -> None:
    with sqlite3.connect(":memory:") as connection:
        found = frames.read(connection.execute("SELECT 1 AS a, 'x' AS b WHERE 0"), categories=("b",))
    connection.close()
    assert list(found) == ["a", "b"]
    assert found.empty


def test_data_in_pieces_are_the_json_of_the_usual_filter() -> None:
    data = {"b": {"x": "</script>", "a": [1, None, {"y": 2}], "empty": {}}, "a": {1: "one", 0: "zero"}, "ä": "it's & more"}
    pieces = list(templates.json_pieces(data))
    environment = jinja2.Environment(autoescape=True)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    assert "".join(pieces) == environment.from_string("{{ data | tojson }}").render(data=data)
    assert json.loads("".join(pieces))["b"]["a"] == [1, None, {"y": 2}]
    assert max(map(len, pieces)) < len("".join(pieces)) / 2
    assert "".join(templates.json_pieces({})) == "{}"
