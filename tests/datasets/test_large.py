"""Large tables: the same numbers as in memory, from memory maps, within bounds of memory and time."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fsibench import registry
from fsibench.contract import Data
from fsibench.data import Table, TableDataset, arrays, prepare, standardise
from fsibench.data.sources import lookup
from fsibench.data.sources import memory_maps as prepared_rows
from fsibench.data.sources.passport import beginning, passports
from fsibench.datasets.tables import DATA
from fsibench.errors import UsageError


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standardise, "LARGE_TABLE_VALUES", 0)
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 100)  # several blocks, the last one short


def same(one: Any, other: Any) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in prepared_rows.FILES]
    return all(np.array_equal(left, right) and left.dtype == right.dtype for left, right in pairs)


@pytest.mark.parametrize("scheme", ["paper", "standard"])
def test_mapped_rows_equal_rows_in_memory(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ROWS", 100)
    small = prepare(registry.dataset("wine"), scheme, 3)
    monkeypatch.setattr(standardise, "LARGE_TABLE_VALUES", 0)
    mapped = prepare(registry.dataset("wine"), scheme, 3)
    assert isinstance(mapped.train_x, np.memmap)
    assert not isinstance(small.train_x, np.memmap)
    assert same(small, mapped)
    assert np.array_equal(small.standardiser.x_mean, mapped.standardiser.x_mean)
    assert small.standardiser.y_scale == mapped.standardiser.y_scale


@pytest.mark.usefixtures("everything_is_large")
def test_rows_are_standardised_once_and_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(registry.dataset("yacht"), "paper", 0)
    expected = first.train_x.copy()
    tensor = torch.from_numpy(first.train_x)  # no warning about read-only memory
    tensor.zero_()
    monkeypatch.setattr(prepared_rows, "_write", lambda *arguments: pytest.fail("standardised again"))
    assert np.array_equal(prepare(registry.dataset("yacht"), "paper", 0).train_x, expected)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("file", [*prepared_rows.FILES, "prepared.json"])
def test_damaged_rows_are_made_again(file: str, cache_folder: Path) -> None:
    before = prepare(registry.dataset("yacht"), "paper", 0)
    expected = SimpleNamespace(**{name: np.array(getattr(before, name)) for name in prepared_rows.FILES})
    (place,) = (cache_folder / "prepared").iterdir()
    (place / file).write_bytes(b"damaged")
    assert same(prepare(registry.dataset("yacht"), "paper", 0), expected)


@pytest.mark.usefixtures("everything_is_large")
def test_splits_and_schemes_do_not_share_rows(cache_folder: Path) -> None:
    one = prepare(registry.dataset("yacht"), "paper", 0)
    other = prepare(registry.dataset("yacht"), "paper", 1)
    third = prepare(registry.dataset("yacht"), "standard", 0)
    assert not np.array_equal(one.test_y, other.test_y)
    assert len(third.train_y) > len(one.train_y)
    assert len(list((cache_folder / "prepared").iterdir())) == 3


def test_minibatches_of_mapped_rows_are_rows_of_the_table(everything_is_large: None) -> None:
    mapped = prepare(registry.dataset("yacht"), "paper", 0)
    train = Data(torch.from_numpy(mapped.train_x), torch.from_numpy(mapped.train_y))
    batch = next(train.batches(50, torch.Generator().manual_seed(0)))
    rows = {tuple(row) for row in np.column_stack([mapped.train_x, mapped.train_y]).tolist()}
    assert {tuple(row) for row in torch.column_stack([batch.x, batch.y]).tolist()} <= rows


# --- tables of the exact shapes of year and airline ---------------------------------------------------------------


def year_archive() -> bytes:
    """515,345 lines of a year and 90 numbers, as the archive has them; the values are made up."""
    values = np.random.default_rng(0).integers(-99, 99, (2000, 90)) / 10
    block = "".join(f"{1922 + row % 90},{','.join(map(str, values[row]))}\n" for row in range(2000))
    lines = block.splitlines(keepends=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("YearPredictionMSD.txt", "w") as member:
        for _ in range(257):
            member.write(block.encode())
        member.write("".join(lines[:1345]).encode())
    return buffer.getvalue()


@pytest.mark.slow
def test_year_arrives_from_the_archive_in_its_exact_shape(loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openml", None)  # so that the archive is asked
    loopback.serve("/ml/machine-learning-databases/00203/YearPredictionMSD.txt.zip", year_archive())
    dataset = registry.dataset("year")
    assert isinstance(dataset, TableDataset)
    year = passports(DATA)["year"]
    first = np.random.default_rng(0).integers(-99, 99, (2000, 90))[:5] / 10
    begins = beginning(Table(first, np.arange(1922.0, 1927.0), year.columns, year.target))
    monkeypatch.setitem(passports(DATA), "year", dataclasses.replace(year, begins=begins))
    table = dataset.table()
    assert [verdict for _, verdict in dataset.verify()] == [lookup.UNVERIFIED]
    assert table.x.shape == (515_345, 90)
    with pytest.raises(UsageError, match="split 1 does not exist"):
        registry.dataset("year[official_split=true]").split("large", 1)
    assert table.y[:3].tolist() == [1922, 1923, 1924]
    train, test = dataset.split_rows(table, "large", 0)
    assert (len(train), len(test)) == (505_345, 10_000)
    official = registry.dataset("year[official_split=true]")
    assert isinstance(official, TableDataset)
    train, test = official.split_rows(table, "large", 0)
    assert np.array_equal(train, np.arange(463_715))
    assert np.array_equal(test, np.arange(463_715, 515_345))
    assert official.fingerprint() != dataset.fingerprint()


CHILD = """
import json, sys, time
import torch
torch.set_num_threads(1)
from fsibench import registry
from fsibench.contract import Data, Meter
from fsibench.data import prepare
from fsibench.harness.runner import ROWS_PER_PREDICT

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1e6

method = registry.entry("bbb").method
before, started = peak(), time.process_time()
ready = prepare(registry.dataset("airline"), "large", 0)
train = Data(torch.from_numpy(ready.train_x), torch.from_numpy(ready.train_y))
start_up = time.process_time() - started
*_, posterior = Meter(steps=50).pulls(method, train, torch.Generator().manual_seed(0))
for rows in torch.from_numpy(ready.test_x).split(ROWS_PER_PREDICT):
    posterior.predict(rows, torch.Generator().manual_seed(1))
print(json.dumps({"start_up": start_up, "gigabytes": peak() - before, "rows": len(train)}))
"""


def run_child() -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, float] = json.loads(done.stdout)
    return result


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_airline_trains_in_little_memory_after_a_short_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,127,068 made-up rows of eight inputs, from the mirror folder; first conversion, then a fresh process."""
    import pyarrow
    from pyarrow import parquet

    passport = passports(DATA)["airline"]
    generator = np.random.default_rng(0)
    names = (*passport.columns, passport.target)
    columns = {name: generator.integers(0, 1440, passport.rows, dtype=np.int16) for name in names}
    parquet.write_table(pyarrow.table(columns), tmp_path / "airline.parquet", compression="none")
    monkeypatch.setenv("FSIBENCH_MIRROR", str(tmp_path))
    first, second = run_child(), run_child()
    assert first["rows"] == 2_117_068
    assert first["gigabytes"] < 1.2
    assert second["gigabytes"] < 1.2
    assert second["start_up"] < 10


def test_the_large_scheme_refuses_small_tables() -> None:
    with pytest.raises(UsageError, match="tests on 10000 rows, and the set has only 506"):
        prepare(registry.dataset("boston"), "large", 0)
