"""The real openml client against a loopback server: what arrives is verified, what fails is explained."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsibench import registry
from fsibench.data import Floats, Table, TableDataset
from fsibench.data.sources import lookup, openml_client
from fsibench.data.sources.passport import Passport, Source, marks
from fsibench.errors import DataError, UsageError

pytestmark = pytest.mark.usefixtures("openml_client")  # the fixture of conftest: client and server connected


def passport_of(frame: Any, target: str, *sources: Source, name: str = "served") -> Passport:
    columns = tuple(str(column) for column in frame.columns if column != target)
    table = Table(frame[list(columns)].to_numpy(float), frame[target].to_numpy(float), columns, target)
    return Passport(
        name=name,
        title="made up",
        rows=len(table),
        columns=columns,
        target=target,
        target_mean=float(table.y.mean()),
        target_sd=float(table.y.std()),
        sha256=table.fingerprint(),
        marks=marks(table),
        sources=sources,
    )


def load(reference: str) -> Table:
    found = registry.dataset(reference)
    assert isinstance(found, TableDataset)
    return found.table()


def cached(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def values_of(table: Table) -> Floats:
    return np.column_stack([table.x, table.y])


# --- by passport ------------------------------------------------------------------------------------------------


def test_parquet_arrives_and_is_cached(loopback: Any, numbers: Any) -> None:
    loopback.offer(189, numbers, "y")
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    assert np.array_equal(values_of(lookup.load(passport)), numbers.to_numpy())
    asked = len(loopback.log)
    assert any(line.endswith("dataset_189.pq") for line in loopback.log)
    assert lookup.whereabouts(passport) == ("cache (OpenML 189)", True)
    lookup.load(passport)
    assert len(loopback.log) == asked, "the second time needs no request"


@pytest.mark.parametrize(
    "options",
    [{"parquet": b""}, {"parquet_status": 404}, {"parquet": b"PAR1 nonsense"}, {"parquet_cut": 100}],
    ids=["no parquet offered", "parquet lost", "parquet broken", "parquet cut short"],
)
def test_arff_serves_when_parquet_does_not(loopback: Any, numbers: Any, options: dict[str, Any]) -> None:
    loopback.offer(189, numbers, "y", **options)
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    assert np.array_equal(values_of(lookup.load(passport)), numbers.to_numpy())
    assert "GET /data/v1/download/189/served.arff" in loopback.log


def test_the_second_source_is_asked_when_the_first_sends_something_else(
    loopback: Any, numbers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = numbers.copy()
    other.loc[3, "theta2"] += 1e-9
    loopback.offer(189, other, "y")
    loopback.offer(44980, numbers, "y")
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"), Source("openml", id=44980, target="y"))
    with caplog.at_level(logging.INFO, "fsibench.data.sources"):
        assert np.array_equal(values_of(lookup.load(passport)), numbers.to_numpy())
    assert "OpenML 189 is not the data set 'served': other values in theta2." in caplog.text
    order = [word for word in ("not in the cache", "asking OpenML 189", "asking OpenML 44980") if word in caplog.text]
    assert order == ["not in the cache", "asking OpenML 189", "asking OpenML 44980"]


def test_numeric_categories_become_numbers(loopback: Any, numbers: Any) -> None:
    """As in boston: CHAS {0, 1} and RAD {1..8, 24} are nominal."""
    import pandas

    frame = numbers[["theta1", "y"]].copy()
    labels = ["1", "24", "3"]
    frame["RAD"] = pandas.Categorical([labels[row % 3] for row in range(len(frame))], categories=labels)
    plain = frame.assign(RAD=frame["RAD"].astype(str).astype(float))
    for options in ({}, {"parquet": b""}):
        loopback.offer(531, frame, "y", **options)
        passport = passport_of(plain, "y", Source("openml", id=531, target="y"), name=f"boston{len(options)}")
        assert lookup.load(passport).x[:4, 1].tolist() == [1.0, 24.0, 3.0, 1.0]


def test_second_targets_and_ignored_columns_are_left_out(loopback: Any, numbers: Any) -> None:
    """As in energy and naval: the other target must not stay among the inputs."""
    frame = numbers.assign(y2=2 * numbers["y"], row=np.arange(60.0))
    loopback.offer(44960, frame, "y", ignore=("row",))
    passport = passport_of(numbers, "y", Source("openml", id=44960, target="y", drop=("y2",)))
    assert lookup.load(passport).x.shape == (60, 8)


def test_another_number_of_columns_is_refused(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    """As one count has it for naval: 15 inputs instead of 16."""
    loopback.offer(44969, numbers.drop(columns="theta8"), "y")
    passport = passport_of(numbers, "y", Source("openml", id=44969, target="y"))
    with pytest.raises(DataError, match="8 columns instead of 9"):
        lookup.load(passport)
    assert cached(cache_folder) == []


def test_a_missing_target_is_refused(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    loopback.offer(189, numbers, "y")
    passport = passport_of(numbers, "y", Source("openml", id=189, target="strength"))
    with pytest.raises(DataError, match="no column 'strength'; it has theta1, theta2"):
        lookup.load(passport)
    assert cached(cache_folder) == []


def test_an_unknown_id_is_explained(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    passport = passport_of(numbers, "y", Source("openml", id=999999, target="y"))
    with pytest.raises(DataError, match=r"OpenML 999999: .*Unknown dataset.*put served\.csv\.gz or served\.parquet"):
        lookup.load(passport)
    assert cached(cache_folder) == []


def test_a_wrong_checksum_is_refused(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    loopback.offer(189, numbers, "y", parquet=b"", md5="0" * 32)
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    with pytest.raises(DataError, match=r"[Cc]hecksum"):
        lookup.load(passport)
    assert cached(cache_folder) == []


def test_a_cut_arff_file_is_refused(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    loopback.offer(189, numbers, "y", parquet=b"")
    loopback.offer(189, numbers, "y", parquet=b"", arff=loopback.sets[189].arff[:-700])  # with a matching checksum
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    with pytest.raises(DataError):
        lookup.load(passport)
    assert cached(cache_folder) == []


def test_a_slow_server_is_waited_for(loopback: Any, numbers: Any) -> None:
    loopback.offer(189, numbers, "y", seconds_per_piece=0.2)
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    assert len(lookup.load(passport)) == 60


def test_a_silent_server_is_given_up(
    loopback: Any, numbers: Any, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    monkeypatch.setattr(openml_client, "STALL_SECONDS", 0.2)
    loopback.offer(189, numbers, "y", parquet=b"", gzipped=False, seconds_per_piece=1.0)
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    with pytest.raises(DataError, match="timed out"):
        lookup.load(passport)
    assert cached(cache_folder) == []


def test_replies_without_gzip_are_read_too(loopback: Any, numbers: Any) -> None:
    loopback.offer(189, numbers, "y", parquet=b"", gzipped=False)
    passport = passport_of(numbers, "y", Source("openml", id=189, target="y"))
    assert len(lookup.load(passport)) == 60


def test_offline_is_one_sentence_that_says_which_file_to_put_where(
    numbers: Any, openml_package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openml_package.config, "server", "http://127.0.0.1:9/api/v1/xml")  # nobody listens there
    sources = (Source("openml", id=189, target="y"), Source("openml", id=44980, target="y"))
    with pytest.raises(DataError) as caught:
        lookup.load(passport_of(numbers, "y", *sources))
    assert str(caught.value) == (
        "data set 'served' is not on this machine and could not be fetched (no connection to 127.0.0.1): "
        "put served.csv.gz or served.parquet (60 rows, columns theta1, theta2, theta3, theta4, theta5, theta6, theta7, "
        "theta8 and last y) into a folder and name that folder with --mirror or FSIBENCH_MIRROR."
    )


def test_the_client_is_left_as_it_was(loopback: Any, numbers: Any, openml_package: Any) -> None:
    import requests

    config = openml_package.config
    before = (config._root_cache_directory, requests.Session.request, os.environ.get("OPENML_SKIP_PARQUET"))
    loopback.offer(189, numbers, "y", parquet=b"broken")
    lookup.load(passport_of(numbers, "y", Source("openml", id=189, target="y")))
    assert before == (config._root_cache_directory, requests.Session.request, os.environ.get("OPENML_SKIP_PARQUET"))


# --- by id ------------------------------------------------------------------------------------------------------


def test_any_id_can_be_used(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    loopback.offer(44959, numbers, "y")
    dataset = registry.dataset("openml:44959")
    assert dataset.describe().available is False
    assert np.array_equal(values_of(load("openml:44959")), numbers.to_numpy())
    described = dataset.describe()
    assert (described.rows, described.inputs, described.target, described.available) == (60, 8, "y", True)
    assert dataset.fingerprint() == load("openml:44959").fingerprint()
    assert not list((cache_folder / "downloads").iterdir())
    assert not list((cache_folder / "staging").iterdir())


def test_small_whole_numbers_do_not_wrap_round(loopback: Any, numbers: Any) -> None:
    """From ARFF the client gives uint8 columns, where 3 - 250 would be 9."""
    frame = numbers[["theta1", "y"]].assign(count=[250, 3] * 30)
    loopback.offer(7, frame, "y", parquet=b"")
    loopback.sets[7].arff = loopback.sets[7].arff.replace("'count' REAL", "'count' INTEGER")
    loopback.offer(7, frame, "y", parquet=b"", arff=loopback.sets[7].arff)
    table = load("openml:7")
    assert table.x.dtype == np.float64
    assert table.x[1, 1] - table.x[0, 1] == -247


def nominal(numbers: Any, labels: list[str], name: str = "size") -> Any:
    import pandas

    frame = numbers[["theta1", "y"]].copy()
    frame[name] = pandas.Categorical([labels[row % len(labels)] for row in range(len(frame))], categories=labels)
    return frame


@pytest.mark.parametrize("options", [{}, {"parquet": b""}], ids=["parquet", "arff"])
def test_labels_are_numbered_by_the_alphabet_wherever_they_come_from(
    loopback: Any, numbers: Any, options: dict[str, Any]
) -> None:
    loopback.offer(8, nominal(numbers, ["small", "large", "medium"]), "y", **options)
    table = load("openml:8")
    assert table.levels == {"size": ("large", "medium", "small")}
    assert table.x[:3, 1].tolist() == [2.0, 0.0, 1.0]
    split = registry.dataset("openml:8").split("paper", 0)
    assert split.train_x.shape[1] == 1 + 3
    assert set(split.test_x[:, 1:].sum(1)) == {1.0}
    assert registry.dataset("openml:8?categories=ordinal").split("paper", 0).train_x.shape[1] == 2
    assert registry.dataset("openml:8?categories=ordinal").fingerprint() != registry.dataset("openml:8").fingerprint()


def test_labels_can_be_refused(loopback: Any, numbers: Any) -> None:
    loopback.offer(8, nominal(numbers, ["small", "large"]), "y")
    with pytest.raises(DataError, match=r"column 'size': labels .* are not numbers"):
        load("openml:8?categories=refuse")


@pytest.mark.parametrize("options", [{}, {"parquet": b""}], ids=["parquet", "arff"])
def test_a_label_with_an_underscore_is_not_a_number(loopback: Any, numbers: Any, options: dict[str, Any]) -> None:
    loopback.offer(8, nominal(numbers, ["1_0", "2_0"]), "y", **options)
    assert load("openml:8").levels == {"size": ("1_0", "2_0")}


@pytest.mark.parametrize("labels", [["a", "b"], ["1", "2", "3"]])
@pytest.mark.parametrize("options", [{}, {"parquet": b""}], ids=["parquet", "arff"])
def test_classes_are_not_regressed(loopback: Any, numbers: Any, labels: list[str], options: dict[str, Any]) -> None:
    loopback.offer(8, nominal(numbers, labels, "class"), "class", **options)
    with pytest.raises(DataError, match=r"the target 'class' (is nominal|has labels)"):
        load("openml:8")
    if labels[0] == "1":
        assert load("openml:8?number=class").y[:3].tolist() == [1.0, 2.0, 3.0]


def test_missing_values_are_imputed_or_refused(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    holes = numbers.copy()
    holes.loc[4, "theta3"] = np.nan
    loopback.offer(9, holes, "y", arff="@RELATION none\n@DATA\n")
    assert np.isnan(load("openml:9").x[4, 2])
    split = registry.dataset("openml:9").split("paper", 0)
    assert np.isfinite(split.train_x).all()
    assert np.isfinite(split.test_x).all()
    with pytest.raises(DataError, match="OpenML 9"):
        load("openml:9?missing=refuse")


def test_references_that_differ_do_not_share_a_table(loopback: Any, numbers: Any) -> None:
    frame = numbers.rename(columns={"theta1": "a", "theta2": "b", "theta3": "x 1", "theta4": "x.1"})
    loopback.offer(5, frame, "y")
    assert load("openml:5?target=a&drop=b").target == "a"
    assert load("openml:5?drop=a&drop=b").target == "y"
    assert load("openml:5?target=x 1").target == "x 1"
    assert load("openml:5?target=x.1").target == "x.1"


def test_a_misspelt_drop_is_refused(loopback: Any, numbers: Any, cache_folder: Path) -> None:
    """In energy it would leave the second target among the inputs."""
    loopback.offer(44960, numbers.assign(cooling_load=numbers["y"] * 2), "y")
    with pytest.raises(DataError, match="has no column 'coolingload'"):
        load("openml:44960?drop=coolingload")
    assert cached(cache_folder) == []


def test_one_of_several_targets_must_be_chosen(loopback: Any, numbers: Any) -> None:
    frame = numbers.assign(y2=-numbers["y"])
    loopback.offer(11, frame, "y,y2")
    with pytest.raises(DataError, match=r"openml:11\?target=NAME with y, y2"):
        load("openml:11")
    table = load("openml:11?target=y2")
    assert table.target == "y2"
    assert table.columns == tuple(f"theta{i}" for i in range(1, 9)), "the other target is not an input"


def test_the_mirror_folder_serves_ids_too(
    numbers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loopback: Any
) -> None:
    monkeypatch.setenv("FSIBENCH_MIRROR", str(tmp_path))
    numbers.to_csv(tmp_path / "openml-12.csv.gz", index=False)
    with pytest.raises(DataError, match=r"does not say which column is the target; write openml:12\?target=NAME"):
        load("openml:12")
    assert np.allclose(values_of(load("openml:12?target=y")), numbers.to_numpy(), rtol=1e-15)
    assert loopback.log == []
    assert registry.dataset("openml:12?target=y").describe().source.startswith("cache (mirror, openml-12.csv.gz")
    monkeypatch.delenv("FSIBENCH_MIRROR")
    loopback.offer(12, numbers * 2, "y")
    assert np.allclose(values_of(load("openml:12?target=y")), 2 * numbers.to_numpy()), "the mirror's is another table"


@pytest.mark.parametrize("reference", ["openml:", "openml:kin8nm", "openml:0", "openml:1?goal=y", "openml:-3"])
def test_unreadable_ids_are_refused(reference: str) -> None:
    with pytest.raises(UsageError):
        registry.dataset(reference)


def test_offline_ids_say_which_file_to_put_where(openml_package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openml_package.config, "server", "http://127.0.0.1:9/api/v1/xml")
    with pytest.raises(DataError, match=r"put openml-13\.csv\.gz or openml-13\.parquet into a folder"):
        load("openml:13")


def test_without_the_client_the_message_says_what_to_install(
    numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openml", None)
    with pytest.raises(DataError, match=r"pip install 'fsibench\[openml\]'"):
        lookup.load(dataclasses.replace(passport_of(numbers, "y", Source("openml", id=1, target="y")), name="absent"))
