"""The cache: whole tables or none after `kill -9`, one download for two processes, damage noticed and repaired."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsibench import registry
from fsibench.data import Table
from fsibench.data.sources import cache, lookup
from fsibench.data.sources.passport import Passport, marks
from fsibench.errors import DataError

VALUES = np.random.default_rng(0).normal(size=(2000, 3)).round(6)
LINES = "\n".join(" ".join(map(repr, map(float, row))) for row in VALUES).encode() + b"\n"


@pytest.fixture
def passport(tmp_path: Path, loopback: Any) -> Passport:
    """A set that the loopback archive has."""
    loopback.serve("/ml/data.txt", LINES)
    table = Table(VALUES[:, :2], VALUES[:, 2], ("a", "b"), "y")
    (tmp_path / "archived.toml").write_text(
        f'title = "made up"\nrows = 2000\ncolumns = ["a", "b"]\ntarget = "y"\nsha256 = "{table.fingerprint()}"\n'
        f'marks = {list(marks(table))}\n[[source]]\nkind = "uci"\npath = "/ml/data.txt"\nheader = false\n',
        encoding="utf-8",
    )
    return Passport.read(tmp_path / "archived.toml")


def in_child(passport_file: Path, before: str = "") -> subprocess.Popen[str]:
    """Another process that loads the set; `before` is run first in it."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from fsibench.data.sources import cache, download, lookup\n"
        "from fsibench.data.sources.passport import Passport\n"
        f"{before}\n"
        f"print(lookup.load(Passport.read(Path({str(passport_file)!r}))).fingerprint())\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )


def whole(passport: Passport) -> bool:
    table = cache.read_table(passport.name, passport.sha256, thorough=True)
    return table is not None and np.array_equal(table.y, VALUES[:, 2])


def leftovers(folder: Path) -> list[str]:
    return [str(path) for place in ("staging", "downloads") for path in (folder / place).glob("*")]


# --- killed at any moment ---------------------------------------------------------------------------------------

SUICIDE = "lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)"
MOMENTS = {
    "before the download": f"download.download = {SUICIDE}",
    "during the download": f"download.ProgressBar.update = {SUICIDE}",
    "before the table is written": f"cache.write_table = {SUICIDE}",
    "while the table is written": f"cache._mapped = {SUICIDE}",
    "before the record is written": f"cache._write_record = {SUICIDE}",
    "before the files are flushed": f"cache._flush_to_disk = {SUICIDE}",
    "before the move": f"cache.discard = {SUICIDE}",
    "at the move": f"Path.rename = {SUICIDE}",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_process_leaves_no_half_table(
    moment: str, passport: Passport, tmp_path: Path, cache_folder: Path
) -> None:
    child = in_child(tmp_path / "archived.toml", MOMENTS[moment])
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert not cache.table_folder(passport.name).exists()
    assert len(lookup.load(passport)) == 2000, "and the next one is not hindered"
    assert whole(passport)
    assert leftovers(cache_folder) == []


def test_a_process_killed_while_it_replaces_a_damaged_table_leaves_no_half_table(
    passport: Passport, tmp_path: Path
) -> None:
    lookup.load(passport)
    (cache.table_folder(passport.name) / "y.f64").write_bytes(b"damaged")
    child = in_child(tmp_path / "archived.toml", f"cache.shutil.rmtree = {SUICIDE}")
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    lookup.load(passport)
    assert whole(passport)


# --- several processes ------------------------------------------------------------------------------------------


def test_two_processes_fetch_once(passport: Passport, tmp_path: Path, loopback: Any) -> None:
    loopback.serve("/ml/data.txt", LINES, pause=0.05)
    children = [in_child(tmp_path / "archived.toml") for _ in range(2)]
    for child in children:
        out, err = child.communicate(timeout=60)
        assert out.strip() == passport.sha256, err
    assert loopback.log == ["GET /ml/data.txt"]


# --- damage -----------------------------------------------------------------------------------------------------


def flip(place: Path) -> None:
    content = bytearray((place / "x.f64").read_bytes())
    content[1000] ^= 1
    (place / "x.f64").write_bytes(content)


def cut(place: Path) -> None:
    (place / "x.f64").write_bytes((place / "x.f64").read_bytes()[:-8])


def lose(place: Path) -> None:
    (place / "y.f64").unlink()


def scramble(place: Path) -> None:
    (place / "table.json").write_text("{not json", encoding="utf-8")


def outdate(place: Path) -> None:
    record = json.loads((place / "table.json").read_text(encoding="utf-8"))
    (place / "table.json").write_text(json.dumps({**record, "format": 0}), encoding="utf-8")


@pytest.mark.parametrize("damage", [flip, cut, lose, scramble, outdate])
def test_damage_is_noticed_and_repaired(
    damage: Callable[[Path], None], passport: Passport, loopback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lookup.load(passport)
    damage(cache.table_folder(passport.name))
    with caplog.at_level(logging.INFO, "fsibench.data.sources"):
        assert np.array_equal(lookup.load(passport).x, VALUES[:, :2])
    assert whole(passport)
    assert len(loopback.log) == 2
    if damage is not lose:
        assert "will be replaced" in caplog.text


def test_a_damaged_copy_of_a_bundled_set_is_repaired_too() -> None:
    yacht = registry.dataset("yacht")
    place = cache.table_folder("yacht")
    place.mkdir(parents=True)
    cache.write_table(place, ("a", "b"), "y", [(VALUES[:, :2], VALUES[:, 2])], "somewhere")
    yacht.fetch()
    assert yacht.verify()[0] == (str(place), "")


def test_damage_that_keeps_the_time_stamp_is_found_by_verify(passport: Passport) -> None:
    lookup.load(passport)
    file = cache.table_folder(passport.name) / "x.f64"
    before = file.stat()
    flip(file.parent)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert lookup.verify(passport) == [
        (str(file.parent), "damaged; removed from the cache, the next use fetches it again")
    ]
    assert lookup.verify(passport) == []
    lookup.load(passport)
    assert lookup.verify(passport) == [(str(file.parent), "")]


def test_an_untouched_table_is_not_hashed_again(passport: Passport, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup.load(passport)
    monkeypatch.setattr(Table, "fingerprint", lambda table: pytest.fail("hashed again"))
    lookup.load(passport)


def test_a_copied_cache_is_accepted_after_one_look(passport: Passport, loopback: Any) -> None:
    lookup.load(passport)
    os.utime(cache.table_folder(passport.name) / "x.f64", ns=(1, 1))
    lookup.load(passport)
    assert len(loopback.log) == 1


def test_a_table_under_another_passport_is_replaced(passport: Passport, loopback: Any) -> None:
    """A new version of fsibench may correct a passport; the old table must not survive it."""
    staging = cache.table_folder(passport.name)
    staging.mkdir(parents=True)
    cache.write_table(staging, ("a", "b"), "y", [(VALUES[:, :2] + 1, VALUES[:, 2])], "an older version")
    assert np.array_equal(lookup.load(passport).x, VALUES[:, :2])


def test_writing_to_a_loaded_table_does_not_reach_the_cache(passport: Passport) -> None:
    table = lookup.load(passport)
    table.x[:] = 0
    assert whole(passport)


# --- where ------------------------------------------------------------------------------------------------------


def test_the_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache.folder() == tmp_path / "fsibench-cache"
    monkeypatch.delenv("FSIBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "fsibench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.folder() == tmp_path / "home" / ".cache" / "fsibench"


def test_a_folder_that_cannot_be_used_is_one_sentence(
    passport: Passport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("FSIBENCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot be used .* choose another with FSIBENCH_CACHE"):
        lookup.load(passport)
