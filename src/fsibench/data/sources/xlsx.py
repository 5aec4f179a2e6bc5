"""Spreadsheets: one sheet of an .xlsx file, which is a zip archive of XML; a table needs no more of it than this.

A date in a spreadsheet is a number of days that only its format tells from other numbers. It is read as the ISO date
that the spreadsheet shows, and so refused unless `date=` asks for days. Times of day and durations stay fractions of a day.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from fsibench.data.sources.archives import DAMAGE, damaged, guarded
from fsibench.data.sources.frames import from_texts
from fsibench.data.sources.raw import Layout, Raw, require_unique
from fsibench.errors import DataError

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_PACKAGE = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_LETTERS = re.compile(r"[A-Z]{1,3}")
# Formats of dates that a workbook need not describe; the others of the same range are times without a day.
_DATE_FORMATS = frozenset({*range(14, 18), 22, *range(27, 32), 36, *range(50, 55), 57, 58})
_NOT_SHOWN = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')  # of a format: quoted text, escapes, colours, spaces
# Day zero. Spreadsheets think that 1900 was a leap year: before March 1900 they count from a day later.
_DAY_ZERO, _FIRST_RIGHT_DAY = datetime.datetime(1899, 12, 30), 60.0
_DAYS_TO_1904 = 1462.0


def read_xlsx(content: bytes, origin: str, layout: Layout) -> Raw:
    """One sheet, by its name (the first sheet if empty); blank rows are left out."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            reader = _Cells(_shared_texts(book), _date_styles(book), _starts_in_1904(book))
            rows = [row for row in _sheet_rows(book, _sheet_path(book, layout.sheet), reader) if any(row)]
    except DAMAGE as error:
        raise damaged(origin, error) from error
    where = f"{origin}, sheet {layout.sheet!r}" if layout.sheet else f"{origin}, first sheet"
    if not rows:
        raise DataError(f"{where}: it is empty.")
    names = tuple(rows.pop(0)) if layout.header else tuple(f"c{place + 1}" for place in range(len(rows[0])))
    require_unique(names, where)
    for row in rows:
        if len(row) > len(names):
            raise DataError(f"{where}: it has {len(names)} names for {len(row)} columns.")
        row += [""] * (len(names) - len(row))
    return from_texts(names, rows, layout, where)


def _xml(book: zipfile.ZipFile, path: str) -> ElementTree.Element:
    with book.open(path) as stream:
        packed = book.getinfo(path).compress_size
        return ElementTree.fromstring(guarded(stream, packed, path).read())


def _shared_texts(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    items = _xml(book, "xl/sharedStrings.xml").iter(f"{_MAIN}si")
    return ["".join(part.text or "" for part in item.iter(f"{_MAIN}t")) for item in items]


def _sheet_path(book: zipfile.ZipFile, sheet: str) -> str:
    sheets = {item.get("name"): item.get(_LINK) for item in _xml(book, "xl/workbook.xml").iter(f"{_MAIN}sheet")}
    if sheet and sheet not in sheets:
        raise DataError(f"the spreadsheet has no sheet {sheet!r}; it has {', '.join(map(str, sheets))}.")
    link = sheets[sheet] if sheet else next(iter(sheets.values()), None)
    links = _xml(book, "xl/_rels/workbook.xml.rels").iter(f"{_PACKAGE}Relationship")
    targets = {item.get("Id"): str(item.get("Target")) for item in links}
    target = targets[link]
    return target.lstrip("/") if target.startswith("/") else f"xl/{target}"


def _date_styles(book: zipfile.ZipFile) -> frozenset[str]:
    """Numbers of the cell styles that show a date."""
    if "xl/styles.xml" not in book.namelist():
        return frozenset()
    styles = _xml(book, "xl/styles.xml")
    own = {item.get("numFmtId"): item.get("formatCode", "") for item in styles.iter(f"{_MAIN}numFmt")}

    def is_date(number: str) -> bool:
        shown = _NOT_SHOWN.sub("", own.get(number, "")).lower()
        return "y" in shown or "d" in shown or (number not in own and int(number) in _DATE_FORMATS)

    formats = [item.get("numFmtId", "0") for used in styles.iter(f"{_MAIN}cellXfs") for item in used.iter(f"{_MAIN}xf")]
    return frozenset(str(style) for style, number in enumerate(formats) if is_date(number))


def _starts_in_1904(book: zipfile.ZipFile) -> bool:
    settings = _xml(book, "xl/workbook.xml").iter(f"{_MAIN}workbookPr")
    return any(item.get("date1904") in ("1", "true") for item in settings)


def _sheet_rows(book: zipfile.ZipFile, path: str, reader: _Cells) -> Iterator[list[str]]:
    for row in _xml(book, path).iter(f"{_MAIN}row"):
        cells: list[str] = []
        for cell in row.iter(f"{_MAIN}c"):
            cells += [""] * (_place(cell, len(cells)) - len(cells))  # empty cells are not written
            cells.append(reader.text(cell))
        while cells and not cells[-1]:  # formatted but empty cells at the right edge
            cells.pop()
        yield cells


def _place(cell: ElementTree.Element, following: int) -> int:
    """The column of `C7` is 2."""
    letters = _LETTERS.match(cell.get("r", ""))
    if letters is None:
        return following
    place = 0
    for letter in letters[0]:
        place = 26 * place + ord(letter) - ord("A") + 1
    return place - 1


@dataclass(frozen=True)
class _Cells:
    """What the cells of a workbook say: its shared texts, its styles that show dates, and where it counts days from."""

    texts: list[str]
    date_styles: frozenset[str]
    starts_in_1904: bool

    def text(self, cell: ElementTree.Element) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return "".join(part.text or "" for part in cell.iter(f"{_MAIN}t"))
        value = cell.findtext(f"{_MAIN}v") or ""
        if kind == "s" and value:
            return self.texts[int(value)]
        return self._date(value) if kind == "n" and value and cell.get("s") in self.date_styles else value

    def _date(self, value: str) -> str:
        """Days since the workbook's day zero as an ISO date, to the millisecond."""
        days = float(value) + (_DAYS_TO_1904 if self.starts_in_1904 else 0.0)
        days += 0.0 if days >= _FIRST_RIGHT_DAY else 1.0
        try:
            moment = _DAY_ZERO + datetime.timedelta(milliseconds=round(days * 86_400_000))
        except OverflowError:  # a spreadsheet shows such a number as ####
            return value
        return moment.date().isoformat() if moment.time() == datetime.time() else moment.isoformat()
