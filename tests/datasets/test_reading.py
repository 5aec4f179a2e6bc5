"""Bad files: a clear sentence each, and nothing in the cache."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import os
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsibench import registry
from fsibench.data import Floats, Table, TableDataset
from fsibench.data.sources import archives
from fsibench.data.sources import text as text_reader
from fsibench.data.sources.archives import open_member
from fsibench.data.sources.raw import Layout, Raw
from fsibench.data.sources.reading import read_table
from fsibench.data.sources.xlsx import read_xlsx
from fsibench.errors import DataError, UsageError


def load(path: Path, query: str = "target=y") -> Table:
    found = registry.dataset(f"file:{path}?{query}")
    assert isinstance(found, TableDataset)
    return found.table()


def cached_tables(cache: Path) -> list[str]:
    return sorted(str(path) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")


def text(folder: Path, content: str, name: str = "table.csv") -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


# --- good files -------------------------------------------------------------------------------------------------


@pytest.fixture
def values() -> Floats:
    return np.random.default_rng(0).normal(size=(50, 3))


def written(folder: Path, values: Floats, ending: str) -> Path:
    path = folder / f"table{ending}"
    lines = "\n".join(["a,b,y", *(",".join(map(repr, map(float, row))) for row in values)]) + "\n"
    if ending == ".parquet":
        import pandas

        pandas.DataFrame(values, columns=["a", "b", "y"]).to_parquet(path)
    elif ending == ".csv.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines.replace(",", "\t") if ending == ".tsv" else lines, encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_every_format_gives_the_same_table(ending: str, values: Floats, tmp_path: Path) -> None:
    table = load(written(tmp_path, values, ending))
    assert table.columns == ("a", "b")
    assert np.array_equal(table.x, values[:, :2])
    assert np.array_equal(table.y, values[:, 2])


def test_the_target_may_stand_anywhere_and_columns_can_be_dropped(values: Floats, tmp_path: Path) -> None:
    table = load(written(tmp_path, values, ".csv"), "target=a&drop=y")
    assert table.columns == ("b",)
    assert np.array_equal(table.y, values[:, 0])


def test_other_delimiters_can_be_named(tmp_path: Path) -> None:
    table = load(text(tmp_path, "a;y\n1;2\n3;4\n"), "target=y&delimiter=;")
    assert table.x.tolist() == [[1.0], [3.0]]


def test_quotes_blank_lines_byte_order_marks_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    table = load(text(tmp_path, '\ufeff"a b","y"\r\n1,2\r\n\r\n"3",4\r\n\r\n'), "target=y")
    assert table.columns == ("a b",)
    assert table.x.tolist() == [[1.0], [3.0]]


def test_blocks_of_a_long_file_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "BLOCK_BYTES", 50)
    path = text(tmp_path, "a,y\n" + "".join(f"{row},{-row}\n" for row in range(100)))
    with read_table(path) as raw:
        blocks = list(raw.blocks)
    assert len(blocks) > 10
    assert np.array_equal(np.concatenate(blocks)[:, 0], np.arange(100))


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    path = text(tmp_path, "a,y\n1,2\n3,4\n")
    first = registry.dataset(f"file:{path}?target=y").fingerprint()
    text(tmp_path, "a,y\n1,2\n3,5\n")
    os.utime(path, ns=(1, 1))
    assert load(path).y.tolist() == [2.0, 5.0]
    assert registry.dataset(f"file:{path}?target=y").fingerprint() != first


# --- bad files --------------------------------------------------------------------------------------------------

BAD_TEXT = {
    "nan": ("a,y\n1,2\nnan,4\n", "row 2, column 'a': the value is missing; write missing=impute"),
    "inf": ("a,y\n1,2\n3,inf\n", "row 2, column 'y': inf is not a finite number"),
    "empty field": ("a,y\n1,2\n,4\n", "row 2, column 'a': an empty field is not a number"),
    "text": ("a,y\n1,2\nlow,4\n", "row 2, column 'a': 'low' is not a number"),
    "no target": ("a,b\n1,2\n3,4\n", "has no column 'y'; it has 'a', 'b'"),
    "one row": ("a,y\n1,2\n", "has 1 row; a data set needs at least 2"),
    "no rows": ("a,y\n", "has 0 rows"),
    "empty": ("", "is empty"),
    "repeated names": ("a,a,y\n1,2,3\n4,5,6\n", "more than one column named 'a'"),
    "ragged": ("a,y\n1,2\n3,4,5\n", "row 2: 3 fields instead of 2"),
    "only the target": ("y\n1\n2\n", "no input column"),
    "nul bytes": ("a,y\n1,2\n\0\0\0\0\n", "binary data"),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_text_is_refused_and_not_cached(case: str, tmp_path: Path, cache_folder: Path) -> None:
    content, message = BAD_TEXT[case]
    with pytest.raises(DataError) as caught:
        load(text(tmp_path, content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert cached_tables(cache_folder) == []


def garbage(path: Path) -> None:
    """100 MB of random bytes."""
    block = np.random.default_rng(0).bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(100):
            file.write(block)


def garbage_text(path: Path) -> None:
    """100 MB of letters without a line end."""
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))


@pytest.mark.parametrize("make", [garbage, garbage_text])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_a_hundred_megabytes_of_garbage_are_refused_at_once(
    make: Callable[[Path], None], ending: str, tmp_path: Path, cache_folder: Path
) -> None:
    path = tmp_path / f"garbage{ending}"
    make(path)
    with pytest.raises(DataError, match="garbage"):
        load(path)
    path.unlink()
    assert cached_tables(cache_folder) == []


def test_a_gzip_bomb_is_refused(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE_EXPANSION_BYTES", 1 << 20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n" + b"1,2\n" * (1 << 20)))
    with pytest.raises(DataError, match="expands to more than 200 times its size"):
        load(path)
    assert cached_tables(cache_folder) == []


def test_a_cut_gzip_file_is_refused(values: Floats, tmp_path: Path, cache_folder: Path) -> None:
    path = written(tmp_path, values, ".csv.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="damaged"):
        load(path)
    assert cached_tables(cache_folder) == []


def test_a_cut_parquet_file_is_refused(values: Floats, tmp_path: Path, cache_folder: Path) -> None:
    path = written(tmp_path, values, ".parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load(path)
    assert cached_tables(cache_folder) == []


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["a", "b", "c"], "column 'x': .*str.* values are not numbers"),
        ([1.0, None, 2.0], "row 2, column 'x': the value is missing"),
        ([1.0, float("inf"), 2.0], "row 2, column 'x': inf is not a finite number"),
    ],
)
def test_bad_parquet_columns_are_refused(column: list[Any], message: str, tmp_path: Path, cache_folder: Path) -> None:
    import pandas

    path = tmp_path / "bad.parquet"
    pandas.DataFrame({"x": column, "y": [1.0, 2.0, 3.0]}).to_parquet(path)
    with pytest.raises(DataError, match=message):
        load(path)
    assert cached_tables(cache_folder) == []


def test_whole_number_and_truth_columns_of_parquet_become_floats(tmp_path: Path) -> None:
    import pandas

    path = tmp_path / "whole.parquet"
    frame = pandas.DataFrame({"u": np.array([250, 3], dtype=np.uint8), "t": [True, False], "y": [1, 2]})
    frame.to_parquet(path)
    table = load(path)
    assert (table.x[1] - table.x[0]).tolist() == [-247.0, -1.0]  # no wrap round zero


def test_absent_files_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        load(tmp_path / "nowhere.csv")
    with pytest.raises(UsageError, match=r"should end in \.csv"):
        load(tmp_path / "table.docx")


@pytest.mark.parametrize("query", ["", "target=y&target=z", "goal=y", "target=y&delimiter=ab"])
def test_unreadable_references_are_refused(query: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        registry.dataset(f"file:{text(tmp_path, 'a,y')}?{query}")


# --- anything at all ----------------------------------------------------------------------------------------------


def read_everything(path: Path) -> None:
    """What `load` does with a file, short of the cache."""
    with read_table(path) as raw:
        for block in raw.blocks:
            assert np.isfinite(block).all()


ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".parquet", ".xlsx", ".zip", ".arff")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), ending=st.sampled_from(ENDINGS))
def test_any_bytes_are_read_or_refused_in_words(content: bytes, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"any{ending}"
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        read_everything(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ending=st.sampled_from(ENDINGS), place=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255))
def test_a_flipped_byte_is_read_or_refused_in_words(ending: str, place: float, value: int, tmp_path: Path) -> None:
    path = tmp_path / f"flipped{ending}"
    content = bytearray(sound(ending))
    content[int(place * len(content))] ^= value
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        read_everything(path)


@functools.cache
def sound(ending: str) -> bytes:
    """A good file of each kind."""
    lines = b"a,y\n" + b"".join(b"%d.5,%d\n" % (row, -row) for row in range(30))
    if ending == ".parquet":
        import pandas

        buffer = io.BytesIO()
        pandas.DataFrame({"a": np.arange(30.0), "y": np.arange(30)}).to_parquet(buffer)
        return buffer.getvalue()
    if ending == ".xlsx":
        rows: list[list[object]] = [[float(row), -row] for row in range(30)]
        return xlsx([["a", "y"], *rows])
    header = b"@relation r\n@attribute a real\n@attribute y real\n@data\n"
    return {
        ".csv": lines,
        ".csv.gz": gzip.compress(lines),
        ".csv.bz2": bz2.compress(lines),
        ".arff": header + lines.partition(b"\n")[2],
        ".zip": archive({"data.txt": lines}).getvalue(),
    }[ending]


# --- archives and spreadsheets ----------------------------------------------------------------------------------


def archive(members: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil.txt", "a/../../evil", "C:\\evil.txt", "..\\evil.txt"])
def test_an_archive_that_reaches_outside_itself_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="outside the archive"):
        open_member(archive({name: b"1", "data.txt": b"1 2\n"}), "data.txt", "evil.zip")


def test_a_missing_member_is_named_with_what_is_there() -> None:
    with pytest.raises(DataError, match=r"no member 'data\.txt'; it holds other\.txt"):
        open_member(archive({"other.txt": b"1"}), "data.txt", "some.zip")


def test_a_zip_bomb_is_refused_however_it_is_labelled() -> None:
    bomb = archive({"data.txt": b"1 2\n" * (1 << 25)})  # 128 MB in about 128 kB
    with open_member(bomb, "data.txt", "bomb.zip") as stream, pytest.raises(DataError, match="expands to more than"):
        stream.read()


def xlsx(rows: list[list[object]], sheet: str = "Sheet1") -> bytes:
    """A workbook as spreadsheet programs write it: shared texts, formatted empty cells, blank rows."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    links = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    texts = [cell for row in rows for cell in row if isinstance(cell, str)]

    def cell(value: object) -> str:
        if isinstance(value, str):
            return f'<c t="s"><v>{texts.index(value)}</v></c>'
        return "<c/>" if value is None else f"<c><v>{value!r}</v></c>"

    body = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    shared = "".join(f"<si><t>{text}</t></si>" for text in texts)
    link = '<Relationship Id="r1" Target="worksheets/sheet1.xml"/>'
    listed = f'<sheets><sheet name="{sheet}" r:id="r1"/></sheets>'
    parts = {
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{links}">{listed}</workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}">{link}</Relationships>',
        "xl/sharedStrings.xml": f"<sst {main}>{shared}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{body}</sheetData></worksheet>",
    }
    return archive({name: text.encode() for name, text in parts.items()}).getvalue()


def values_of(raw: Raw) -> Floats:
    return np.concatenate(list(raw.blocks))


def test_spreadsheets_are_read_by_sheet_name() -> None:
    raw = read_xlsx(xlsx([["X1", "Y1"], [0.98, 15.55, None], [None, None], [0.9, 20.84]]), "book", Layout())
    assert raw.names == ("X1", "Y1")
    assert values_of(raw).tolist() == [[0.98, 15.55], [0.9, 20.84]]
    with pytest.raises(DataError, match="no sheet 'Sheet5'; it has Sheet1"):
        read_xlsx(xlsx([["a"], [1]]), "book", Layout(sheet="Sheet5"))


def test_a_spreadsheet_of_the_users_own_is_read(tmp_path: Path) -> None:
    (tmp_path / "book.XLSX").write_bytes(xlsx([["a", "y"], [1.5, 2], [3, 4]], "Data"))
    assert load(tmp_path / "book.XLSX").x[:, 0].tolist() == [1.5, 3.0]
    assert load(tmp_path / "book.XLSX", "target=y&sheet=Data").y.tolist() == [2.0, 4.0]


def test_text_among_the_numbers_of_a_spreadsheet_is_refused() -> None:
    with pytest.raises(DataError, match="row 1, column 'b': 'x' is not a number"):
        read_xlsx(xlsx([["a", "b"], [1, "x"]]), "book", Layout())


def test_an_empty_cell_of_a_spreadsheet_does_not_shift_its_row() -> None:
    """Programs leave empty cells out and number the others."""
    content = xlsx([["a", "b", "c"], [1, 2, 3], [4, 5, 6]])
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    sheet = b'<row><c r="A2"><v>1</v></c><c r="C2"><v>3</v></c></row>'
    old = b"<row><c><v>1</v></c><c><v>2</v></c><c><v>3</v></c></row>"
    assert old in parts["xl/worksheets/sheet1.xml"]
    parts["xl/worksheets/sheet1.xml"] = parts["xl/worksheets/sheet1.xml"].replace(old, sheet)
    raw = read_xlsx(archive(parts).getvalue(), "book", Layout(gaps=True))
    assert np.array_equal(values_of(raw), [[1, np.nan, 3], [4, 5, 6]], equal_nan=True)
    with pytest.raises(DataError, match="row 1, column 'b': the value is missing"):
        values_of(read_xlsx(archive(parts).getvalue(), "book", Layout()))


def dated(formats: str, cells: str, settings: str = "") -> bytes:
    """A workbook whose second row has these cells, which may use the styles 1, 2, ... of these formats."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    with zipfile.ZipFile(io.BytesIO(xlsx([["day", "y"]]))) as book:
        parts = {name: book.read(name).decode() for name in book.namelist()}
    own = re.findall(r'numFmtId="(\d+)"', formats)
    used = "".join(f'<xf numFmtId="{number}"/>' for number in ("0", *own))
    described = formats if "formatCode" in formats else ""
    parts["xl/styles.xml"] = f"<styleSheet {main}><numFmts>{described}</numFmts><cellXfs>{used}</cellXfs></styleSheet>"
    sheet = parts["xl/worksheets/sheet1.xml"]
    parts["xl/worksheets/sheet1.xml"] = sheet.replace("</sheetData>", f"<row>{cells}</row></sheetData>")
    parts["xl/workbook.xml"] = parts["xl/workbook.xml"].replace("<sheets>", f"{settings}<sheets>")
    return archive({name: text.encode() for name, text in parts.items()}).getvalue()


@pytest.mark.parametrize(
    ("formats", "value", "days", "settings"),
    [
        ('<numFmt numFmtId="14"/>', "25569", 0.0, ""),  # built in; 1970-01-01
        ('<numFmt numFmtId="22"/>', "45443.5", 19874.5, ""),  # with a time
        ('<numFmt numFmtId="170" formatCode="[$-407]yyyy\\-mm\\-dd"/>', "45443", 19874.0, ""),
        ('<numFmt numFmtId="14"/>', "24107", 0.0, '<workbookPr date1904="1"/>'),
        ('<numFmt numFmtId="14"/>', "59", -25509.0, ""),  # 1900-02-28, before the day that never was
    ],
)
def test_dates_of_a_spreadsheet_are_refused_or_read_as_days(formats: str, value: str, days: float, settings: str) -> None:
    content = dated(formats, f'<c s="1"><v>{value}</v></c><c><v>2</v></c>', settings)
    with pytest.raises(DataError, match=r"row 1, column 'day': '\d{4}-\d\d-\d\d.*' is not a number; date=day reads dates as days"):
        read_xlsx(content, "book", Layout())
    assert values_of(read_xlsx(content, "book", Layout(dates=("day",)))).tolist() == [[days, 2.0]]


@pytest.mark.parametrize(
    "formats",
    [
        '<numFmt numFmtId="20"/>',  # h:mm
        '<numFmt numFmtId="2"/>',  # 0.00
        '<numFmt numFmtId="171" formatCode="0.0 &quot;days&quot;"/>',
        '<numFmt numFmtId="172" formatCode="[Red]0.00"/>',
    ],
)
def test_numbers_and_times_of_a_spreadsheet_stay_numbers(formats: str) -> None:
    content = dated(formats, '<c s="1"><v>0.25</v></c><c><v>2</v></c>')
    assert values_of(read_xlsx(content, "book", Layout())).tolist() == [[0.25, 2.0]]


# --- hostile sizes ----------------------------------------------------------------------------------------------


def test_a_hundred_thousand_columns_are_read_in_linear_time(tmp_path: Path) -> None:
    """Looking each name up among all others took minutes."""
    width = 100_000
    row = ",".join(["1"] * width)
    path = text(tmp_path, f"{','.join(f'column{place}' for place in range(width))}\n{row}\n{row}\n")
    started = time.process_time()
    assert load(path, "target=column7").x.shape == (2, width - 1)
    assert time.process_time() - started < 30


def test_a_parquet_file_that_expands_without_end_is_refused(tmp_path: Path, cache_folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "bomb.parquet"
    column = pyarrow.array(np.zeros(10_000_000))
    parquet.write_table(pyarrow.table({"a": column, "y": column}), path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="10000000 rows of 2 columns expand to more than 200 times its size"):
        load(path)
    assert cached_tables(cache_folder) == []
