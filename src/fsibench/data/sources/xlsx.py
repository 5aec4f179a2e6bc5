"""Spreadsheets: one sheet of an .xlsx file, which is a zip archive of XML; a table needs no more of it than this."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree

from fsibench.data.sources.archives import DAMAGE, damaged, guarded
from fsibench.data.sources.frames import from_texts
from fsibench.data.sources.raw import Layout, Raw, require_unique
from fsibench.errors import DataError

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_PACKAGE = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_LETTERS = re.compile(r"[A-Z]{1,3}")


def read_xlsx(content: bytes, origin: str, layout: Layout) -> Raw:
    """One sheet, by its name (the first sheet if empty); blank rows are left out."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            texts = _shared_texts(book)
            rows = [row for row in _sheet_rows(book, _sheet_path(book, layout.sheet), texts) if any(row)]
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


def _sheet_rows(book: zipfile.ZipFile, path: str, texts: list[str]) -> Iterator[list[str]]:
    for row in _xml(book, path).iter(f"{_MAIN}row"):
        cells: list[str] = []
        for cell in row.iter(f"{_MAIN}c"):
            cells += [""] * (_place(cell, len(cells)) - len(cells))  # empty cells are not written
            cells.append(_cell(cell, texts))
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


def _cell(cell: ElementTree.Element, texts: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return "".join(part.text or "" for part in cell.iter(f"{_MAIN}t"))
    value = cell.findtext(f"{_MAIN}v") or ""
    return texts[int(value)] if cell.get("t") == "s" and value else value
