"""`fsibench data fetch | verify | path` and the listing."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from fsibench.cli import main
from fsibench.datasets.tables import DATA


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder that has one of our sets."""
    (tmp_path / "mirror").mkdir()
    shutil.copy(DATA / "yacht.csv.gz", tmp_path / "mirror" / "yacht.csv.gz")
    return tmp_path / "mirror"


@pytest.fixture(autouse=True)
def _environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSIBENCH_MIRROR", "")  # --mirror sets it for child processes; this undoes it afterwards


def test_fetch_says_what_came_from_where(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "yacht", "boston", "bimodal", "--mirror", str(mirror)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "yacht: 308 rows, 6 inputs, from cache (mirror, yacht.csv.gz)",
        "boston: 506 rows, 13 inputs, from bundled",
        "bimodal: 2000 rows, 1 inputs, from formula",
    ]
    assert "yacht: not in the cache" in err
    assert "yacht: mirror file" in err


def test_fetch_goes_on_after_a_set_that_cannot_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "airline", "boston"]) == 1
    out, err = capsys.readouterr()
    assert "boston: 506 rows" in out
    message = next(line for line in err.splitlines() if line.startswith("fsibench:"))
    assert "data set 'airline' is not on this machine and has no public source: put airline.csv.gz" in message


def test_unknown_names_are_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "bostn"]) == 2
    assert "did you mean 'boston'?" in capsys.readouterr().err


def test_verify_checks_every_copy(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "yacht", "--mirror", str(mirror)]) == 0
    capsys.readouterr()
    assert main(["data", "verify", "yacht", "--mirror", str(mirror)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["ok", "ok", "ok"]  # cache, mirror, package


def test_verify_fails_for_a_wrong_mirror_file(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = gzip.decompress((mirror / "yacht.csv.gz").read_bytes()).replace(b"0.568", b"0.569", 1)
    (mirror / "yacht.csv.gz").write_bytes(gzip.compress(content))
    assert main(["data", "verify", "yacht", "--mirror", str(mirror)]) == 1
    assert "other values in prismatic_coefficient" in capsys.readouterr().out


def test_verify_of_everything_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(DATA.glob("*.csv.gz")))
    assert all(line.endswith(": ok") for line in lines)


def test_verify_says_what_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", "kin8nm"]) == 0
    assert capsys.readouterr().out == "kin8nm: not on this machine\n"


def test_path_prints_the_cache_folder_or_a_sets_place(
    mirror: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(cache_folder)
    assert main(["data", "path", "boston"]) == 0
    assert Path(capsys.readouterr().out.strip()) == DATA / "boston.csv.gz"
    assert main(["data", "path", "yacht", "--mirror", str(mirror)]) == 0
    assert capsys.readouterr().out.strip() == str(mirror / "yacht.csv.gz")
    assert main(["data", "path", "kin8nm"]) == 1
    assert "fsibench data fetch kin8nm" in capsys.readouterr().err


def test_the_users_own_files_can_be_fetched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text("a,y\n1,2\n3,4\n", encoding="utf-8")
    reference = f"file:{tmp_path / 'own.csv'}?target=y"
    assert main(["data", "fetch", reference]) == 0
    assert "2 rows, 1 inputs, from your own file" in capsys.readouterr().out
    assert main(["data", "verify", reference]) == 0


def test_the_listing_shows_size_source_and_availability(
    mirror: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FSIBENCH_MIRROR", str(mirror))
    assert main(["list", "datasets", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["yacht"]["source"], rows["yacht"]["available"]) == ("mirror", True)
    assert (rows["boston"]["rows"], rows["boston"]["inputs"], rows["boston"]["source"]) == (506, 13, "bundled")
    assert (rows["naval"]["source"], rows["naval"]["available"]) == ("OpenML 44969, then UCI archive", False)
    assert (rows["airline"]["source"], rows["airline"]["available"]) == ("your own file", False)
