"""Exports: a documented dictionary, real types, tidy tables, and CSV and Parquet alike."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.cli.export import TABLES
from fsibench.harness import export
from fsibench.harness.store import Store
from fsibench.metrics import known

ROOT = Path(__file__).parents[1]
ODD = Path(__file__).parent / "support" / "odd_methods.py"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "s.sqlite"
    methods = f"constant,bbb[learning_rate=0.01],{ODD}:YieldsNothing"
    assert main(["run", "smoke", "--store", str(path), "--methods", methods, "--executor", "inline"]) == 1
    assert main(["run", "smoke", "--store", str(path), "--methods", "constant", "--budget", "0.05s", "--executor", "inline"]) == 0
    return path


def read(path: Path, table: str) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    types = {column.name: export.DTYPES[column.kind] for column in export.columns(table)}
    present = pd.read_csv(path, nrows=0).columns
    frame = pd.read_csv(path, dtype={name: types[name] for name in present}, keep_default_na=False, na_values={
        name: [""] for name in present if types[name] != "object"
    })  # fmt: skip
    return frame.astype({name: types[name] for name in present})


@pytest.mark.parametrize("table", TABLES)
def test_csv_and_parquet_hold_the_same_table_with_the_types_of_the_dictionary(
    store: Path, tmp_path: Path, table: str
) -> None:
    frames = []
    for ending in ("csv", "parquet"):
        out = tmp_path / f"rows.{ending}"
        assert main(["export", "--store", str(store), "--table", table, "--out", str(out)]) == 0
        frames.append(read(out, table))
    csv, parquet = frames
    texts = [column.name for column in export.columns(table) if column.kind == "text" and column.name in parquet]
    parquet[texts] = parquet[texts].fillna("")
    pd.testing.assert_frame_equal(csv, parquet, check_dtype=False)
    assert len(csv) > 0
    for column in export.columns(table):
        if column.name in parquet and column.kind != "text":
            assert str(parquet[column.name].dtype) == export.DTYPES[column.kind], column.name


def test_booleans_are_booleans_and_budgets_are_numbers(store: Path) -> None:
    with Store.read(store) as opened:
        looks, cells = export.frame(opened, "evaluations"), export.frame(opened, "cells")
    assert looks["final"].dtype == "boolean"
    assert looks.groupby("cell")["final"].sum().eq(1).all()
    assert set(cells["budget_steps"].dropna()) == {20}
    assert set(cells["budget_seconds"].dropna()) == {0.05}
    assert (cells["budget_steps"].isna() != cells["budget_seconds"].isna()).all()
    assert set(cells["contended"].dropna()) <= {True, False}
    assert not {"pit", "trace", "budget"} & set(looks)


def test_a_cell_without_a_look_is_in_the_cells_and_has_no_evaluation(store: Path) -> None:
    with Store.read(store) as opened:
        looks, cells = export.frame(opened, "evaluations"), export.frame(opened, "cells")
    failed = cells[cells["entry"] == "yields-nothing"]
    assert set(failed["status"]) == {"error"}
    assert not set(failed["cell"]) & set(looks["cell"])


def test_nested_values_are_tidy_tables_that_join_on_cell_and_step(store: Path) -> None:
    with Store.read(store) as opened:
        looks, pit, trace = (export.frame(opened, table) for table in ("evaluations", "pit", "trace"))
        stored = opened.evaluations().set_index(["cell", "step"])
    counts = pit.groupby(["cell", "step"])["count"].sum()
    assert counts.eq(looks.set_index(["cell", "step"])["num_rows"].loc[counts.index]).all()
    assert pit.groupby(["cell", "step"])["upper"].max().eq(1.0).all()
    for row in trace.itertuples():
        assert json.loads(stored.loc[(row.cell, row.step), "trace"])[row.name] == row.value
    assert {"loss", "nelbo"} & set(trace["name"])


def test_options_are_exported_as_resolved(store: Path) -> None:
    with Store.read(store) as opened:
        looks, options = export.frame(opened, "evaluations"), export.frame(opened, "options")
        cells = opened.cells()
    bbb = options[options["method"] == "bbb"].set_index("option")["value"].map(json.loads).to_dict()
    assert bbb["learning_rate"] == 0.01
    assert len(bbb) > 3  # also those that were left at their defaults
    assert json.loads(looks[looks["method"] == "bbb"]["options"].iloc[0]) == bbb
    assert json.loads(cells[cells["method"] == "bbb"]["options"].iloc[0]) == bbb


def test_store_show_tells_options_by_name_and_what_was_changed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.read(store) as opened:
        cell = opened.cells().query("method == 'bbb'")["id"].iloc[0]
    assert main(["store", "show", cell, "--store", str(store)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["options"]["learning_rate"] == 0.01


def test_the_dictionary_explains_every_column_and_stands_in_the_docs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--dictionary"]) == 0
    shown = capsys.readouterr().out
    assert all(f"`{key}`" in shown for key in known())
    assert all(column.meaning for table in TABLES for column in export.columns(table))
    assert shown.strip() in (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    assert tuple(export.TABLES) == TABLES
