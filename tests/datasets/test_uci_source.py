"""The UCI archive, played by a loopback server: archives, checksums, broken lines, back-off."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import logging
import socket
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsibench.data import Floats, Table
from fsibench.data.sources import download, lookup
from fsibench.data.sources.passport import Passport, Source, marks, passports
from fsibench.data.sources.reading import read_table
from fsibench.datasets.tables import DATA
from fsibench.errors import DataError, Unreachable

VALUES = np.random.default_rng(0).normal(size=(40, 4)).round(6)
LINES = "\n".join("   ".join(map(repr, map(float, row))) for row in VALUES).encode() + b"\n"


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Back-off is counted, not waited for."""
    seconds: list[float] = []
    original = download.download

    def patient(*arguments: Any, **options: Any) -> None:
        original(*arguments, **{**options, "pause": seconds.append})

    monkeypatch.setattr(download, "download", patient)
    return seconds


def passport(source: Source, values: Floats = VALUES) -> Passport:
    columns = tuple(f"x{column}" for column in range(values.shape[1] - 1))
    table = Table(values[:, :-1], values[:, -1], columns, "y")
    return Passport(
        name="archived",
        title="made up",
        rows=len(table),
        columns=columns,
        target="y",
        sha256=table.fingerprint(),
        marks=marks(table),
        sources=(source,),
    )


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return buffer.getvalue()


def cached(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


PLAIN = Source("uci", path="/ml/data.txt", header=False)
ZIPPED = Source("uci", path="/ml/data.zip", members=("folder/data.txt",), header=False)


# --- what arrives -----------------------------------------------------------------------------------------------


def test_a_plain_file_arrives(loopback: Any) -> None:
    loopback.serve("/ml/data.txt", LINES)
    table = lookup.load(passport(PLAIN))
    assert np.array_equal(np.column_stack([table.x, table.y]), VALUES)
    assert lookup.whereabouts(passport(PLAIN)) == ("cache (UCI archive)", True)
    lookup.load(passport(PLAIN))
    assert loopback.log == ["GET /ml/data.txt"]


def test_a_member_of_an_archive_arrives(loopback: Any) -> None:
    loopback.serve("/ml/data.zip", archive({"readme": b"words", "folder/data.txt": LINES}))
    assert len(lookup.load(passport(ZIPPED))) == 40


def test_columns_are_put_in_order_and_second_targets_dropped(loopback: Any) -> None:
    loopback.serve("/ml/data.txt", LINES)
    source = dataclasses.replace(PLAIN, target_column=0, drop_columns=(2,))
    table = lookup.load(passport(source, VALUES[:, [1, 3, 0]]))
    assert np.array_equal(table.x, VALUES[:, [1, 3]])
    assert np.array_equal(table.y, VALUES[:, 0])


@pytest.mark.parametrize("name", ["boston", "wine", "yacht"])
def test_our_passports_read_the_archives_own_layout(name: str, loopback: Any, tmp_path: Path) -> None:
    """The layouts of the archive, made from the bundled tables: white space or semicolons, with or without names."""
    official = passports(DATA)[name]
    source = next(source for source in official.sources if source.kind == "uci")
    with read_table(DATA / f"{name}.csv.gz") as raw:
        rows = np.concatenate(list(raw.blocks))
    mark = source.delimiter or "  "
    lines = [mark.join(f"{value:.17g}" for value in row) for row in rows]
    names = [mark.join(f'"{name}"' for name in raw.names)] if source.header else []
    loopback.serve(source.path, "\n".join([*names, *lines]).encode())
    table = lookup.load(dataclasses.replace(official, sources=(source,)))  # no bundled folder: the archive is asked
    assert table.fingerprint() == official.sha256


# --- what goes wrong --------------------------------------------------------------------------------------------


def failing(first: int, then: Callable[[Any], None], otherwise: Callable[[Any], None]) -> Callable[[Any], None]:
    """A reply that goes wrong the first few times."""
    left = [first]

    def reply(handler: Any) -> None:
        left[0] -= 1
        (otherwise if left[0] >= 0 else then)(handler)

    return reply


def whole(handler: Any) -> None:
    handler.send(200, LINES)


def hung_up(handler: Any) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


FLEETING: dict[str, Callable[[Any], None]] = {
    "busy": lambda handler: handler.send(503, b"busy"),
    "cut short": lambda handler: handler.send(200, LINES, cut=50),
    "connection closed": hung_up,
}


@pytest.mark.parametrize("trouble", FLEETING)
def test_fleeting_trouble_is_retried_with_growing_pauses(loopback: Any, trouble: str, pauses: list[float]) -> None:
    loopback.files["/ml/data.txt"] = failing(2, whole, FLEETING[trouble])
    assert len(lookup.load(passport(PLAIN))) == 40
    assert len(pauses) == 2
    assert pauses[0] < pauses[1]


@pytest.mark.parametrize("trouble", FLEETING)
def test_lasting_trouble_is_given_up_and_nothing_is_cached(
    loopback: Any, trouble: str, cache_folder: Path, pauses: list[float]
) -> None:
    loopback.files["/ml/data.txt"] = FLEETING[trouble]
    with pytest.raises(DataError, match=r"download failed after all retries.*put archived\.csv\.gz"):
        lookup.load(passport(PLAIN))
    assert len(pauses) == 3
    assert cached(cache_folder) == []


def test_a_lost_file_is_not_asked_for_again(loopback: Any, cache_folder: Path, pauses: list[float]) -> None:
    with pytest.raises(DataError, match="the server answered 404"):
        lookup.load(passport(PLAIN))
    assert pauses == []
    assert cached(cache_folder) == []


def test_a_wrong_checksum_is_refused(loopback: Any, cache_folder: Path) -> None:
    loopback.serve("/ml/data.txt", LINES)
    right = dataclasses.replace(PLAIN, sha256=hashlib.sha256(LINES).hexdigest())
    wrong = dataclasses.replace(PLAIN, sha256="0" * 64)
    with pytest.raises(DataError, match=r"sha256 .* instead of 0000000000000000"):
        lookup.load(passport(wrong))
    assert cached(cache_folder) == []
    assert len(lookup.load(passport(right))) == 40


def test_other_values_are_refused(loopback: Any, cache_folder: Path) -> None:
    loopback.serve("/ml/data.txt", LINES.replace(b"-0.13", b"-0.14", 1))
    with pytest.raises(DataError, match="is not the data set 'archived': other values in x1"):
        lookup.load(passport(PLAIN))
    assert cached(cache_folder) == []


def test_more_rows_than_the_passport_has_are_refused(loopback: Any, cache_folder: Path) -> None:
    loopback.serve("/ml/data.txt", LINES + LINES)
    with pytest.raises(DataError, match="more than 40 rows"):
        lookup.load(passport(PLAIN))
    assert cached(cache_folder) == []


def test_an_endless_download_is_stopped(loopback: Any, monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    monkeypatch.setattr(lookup, "_plausible_bytes", lambda passport: 100)
    loopback.serve("/ml/data.txt", LINES)
    with pytest.raises(DataError, match="larger than 100 bytes"):
        lookup.load(passport(PLAIN))
    assert cached(cache_folder) == []


BAD_ARCHIVES = {
    "not a zip": (b"<html>moved</html>", "damaged or not what its name says"),
    "other member": (archive({"other.txt": LINES}), "no member 'folder/data.txt'"),
    "escaping path": (archive({"folder/data.txt": LINES, "../../evil": b""}), "outside the archive"),
    "bomb": (archive({"folder/data.txt": b"0 0 0 0\n" * (1 << 24)}), "more than 40 rows"),
    "bomb in one line": (archive({"folder/data.txt": b"0" * (1 << 27)}), "endless lines"),
    "cut member": (archive({"folder/data.txt": LINES})[:-200], "damaged or not what its name says"),
}


@pytest.mark.parametrize("case", BAD_ARCHIVES)
def test_bad_archives_are_refused_and_nothing_is_cached(case: str, loopback: Any, cache_folder: Path) -> None:
    content, message = BAD_ARCHIVES[case]
    loopback.serve("/ml/data.zip", content)
    with pytest.raises(DataError, match=message):
        lookup.load(passport(ZIPPED))
    assert cached(cache_folder) == []


def test_a_slow_server_is_waited_for_and_a_silent_one_is_not(
    loopback: Any, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    monkeypatch.setattr(download, "STALL_SECONDS", 0.3)
    long = LINES + b"\n" * 20_000
    loopback.serve("/ml/slow.txt", long, pause=0.05)
    loopback.serve("/ml/silent.txt", long, pause=1.0)
    with pytest.raises(DataError, match="timed out"):
        lookup.load(passport(dataclasses.replace(PLAIN, path="/ml/silent.txt")))
    assert cached(cache_folder) == []
    assert len(lookup.load(passport(dataclasses.replace(PLAIN, path="/ml/slow.txt")))) == 40


def test_data_are_fetched_over_https_only(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="https only"):
        download.download("http://archive.example/data.txt", tmp_path / "file", limit=10)


def test_a_redirect_that_leaves_https_is_refused(loopback: Any, tmp_path: Path, pauses: list[float]) -> None:
    def redirect(place: str) -> Any:
        return lambda handler: handler.send(302, b"", {"Location": place})

    loopback.files["/away"] = redirect("http://archive.example/data.txt")
    with pytest.raises(DataError, match="https only"):
        download.download(f"{loopback.address}/away", tmp_path / "file", limit=10)
    handler, request = download._Redirects(), urllib.request.Request("https://archive.example/data.txt")
    with pytest.raises(DataError, match="away from https"):
        handler.redirect_request(request, None, 302, "", {}, f"{loopback.address}/data.txt")
    loopback.files["/near"] = redirect(f"{loopback.address}/data.txt")
    loopback.serve("/data.txt", b"1 2 3")
    download.download(f"{loopback.address}/near", tmp_path / "file", limit=10)
    assert (tmp_path / "file").read_bytes() == b"1 2 3"
    assert pauses == []


@pytest.mark.parametrize("length", ["abc", "-5", "1e3", "9" * 30])
def test_a_length_that_is_no_number_is_refused(loopback: Any, length: str, tmp_path: Path) -> None:
    loopback.serve("/data.txt", b"1 2 3", headers={"Content-Length": length})
    with pytest.raises(DataError, match="which is no number of bytes"):
        download.download(f"{loopback.address}/data.txt", tmp_path / "file", limit=10)


def test_offline_is_said_at_once(tmp_path: Path, pauses: list[float]) -> None:
    with pytest.raises(Unreachable, match=r"no connection to nowhere\.invalid"):
        download.download("https://nowhere.invalid/data.txt", tmp_path / "file", limit=10)
    assert pauses == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_progress_bar_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, expected in ((Terminal(), "data.zip   50 %  1.0 MB"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stderr", stream)
        bar = download.ProgressBar("data.zip", 2_000_000)
        bar._shown -= 1  # the last look was a second ago
        bar.update(1_000_000)
        assert expected in stream.getvalue()
        bar.close()
        assert bool(stream.getvalue()) == bool(expected)


# --- mirror folder ----------------------------------------------------------------------------------------------


def csv(values: Floats, names: str = "x0,x1,x2,y") -> bytes:
    return "\n".join([names, *(",".join(map(repr, map(float, row))) for row in values)]).encode() + b"\n"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("FSIBENCH_MIRROR", str(tmp_path / "mirror"))
    return tmp_path / "mirror"


@pytest.mark.parametrize("ending", [".csv.gz", ".csv", ".parquet"])
def test_the_mirror_comes_before_the_network(ending: str, mirror: Path, loopback: Any) -> None:
    if ending == ".parquet":
        import pandas

        pandas.DataFrame(VALUES, columns=["x0", "x1", "x2", "y"]).to_parquet(mirror / "archived.parquet")
    else:
        content = gzip.compress(csv(VALUES)) if ending == ".csv.gz" else csv(VALUES)
        (mirror / f"archived{ending}").write_bytes(content)
    assert lookup.whereabouts(passport(PLAIN)) == ("mirror", True)
    assert len(lookup.load(passport(PLAIN))) == 40
    assert loopback.log == []


def test_columns_of_a_mirror_file_are_found_by_name(mirror: Path) -> None:
    (mirror / "archived.csv").write_bytes(csv(VALUES[:, [3, 0, 2, 1]], "y,x0,x2,x1"))
    assert len(lookup.load(passport(PLAIN))) == 40


WRONG_FILES = {
    "other values": (csv(VALUES + 1), "other values in x0, x1, x2, y"),
    "a row too few": (csv(VALUES[1:]), "39 rows instead of 40"),
    "a column too many": (csv(np.hstack([VALUES, VALUES[:, :1]]), "x0,x1,x2,y,y2"), "unknown column y2"),
    "a column too few": (csv(VALUES[:, 1:], "x1,x2,y"), "no column x0"),
    "semicolons": (csv(VALUES).replace(b",", b";"), "delimiter seems to be ';'"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_in_the_mirror_is_an_error(case: str, mirror: Path, loopback: Any, cache_folder: Path) -> None:
    content, message = WRONG_FILES[case]
    (mirror / "archived.csv").write_bytes(content)
    loopback.serve("/ml/data.txt", LINES)
    with pytest.raises(DataError, match=message):
        lookup.load(passport(PLAIN))
    assert cached(cache_folder) == []


def test_a_known_variant_in_the_mirror_is_passed_over(
    mirror: Path, loopback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (mirror / "archived.csv").write_bytes(csv(VALUES.round(2)))
    rounded = passport(PLAIN, VALUES.round(2)).sha256
    assert rounded is not None
    loopback.serve("/ml/data.txt", LINES)
    with caplog.at_level(logging.INFO, "fsibench.data.sources"):
        table = lookup.load(dataclasses.replace(passport(PLAIN), variants={rounded: "rounded"}))
    assert np.array_equal(table.y, VALUES[:, -1])
    assert "known variant, rounded" in caplog.text


def test_a_mirror_folder_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FSIBENCH_MIRROR", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"the mirror folder .* does not exist"):
        lookup.load(passport(PLAIN))
