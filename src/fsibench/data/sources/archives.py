"""Archives and compressed files as streams: never unpacked to disk, with a limit on their expanded size."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any
from xml.etree import ElementTree

from fsibench.data.sources.raw import first_line
from fsibench.errors import DataError

BLOCK_BYTES = 1 << 22  # read at a time
# Tables of numbers shrink by factors of 2 to 50, decompression bombs by 1,000. Small files may have any factor.
LARGEST_EXPANSION = 200
FREE_EXPANSION_BYTES = 1 << 26
# What the standard library raises on damaged archives, all of it seen: wrong versions and methods, passwords, seeks
# before the beginning, names that are not text, members that are not there.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ElementTree.ParseError, lzma.LZMAError),
    *(EOFError, OSError, ValueError, LookupError, NotImplementedError, RuntimeError),
)


def open_file(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def open_packed(stream: IO[bytes], ending: str, packed_bytes: int, origin: str) -> IO[bytes]:
    """A stream through gzip or bzip2, by the ending of the name."""
    opened = gzip.GzipFile(fileobj=stream) if ending == ".gz" else bz2.BZ2File(stream)
    return guarded(opened, packed_bytes, origin)


def only_member(archive: IO[bytes], origin: str) -> str:
    """The single table in a zip archive."""
    names = [name for name in _names(archive, origin) if not name.endswith("/") and not name.startswith("__MACOSX")]
    if len(names) != 1:
        raise DataError(f"{origin} holds {len(names)} files; choose one with member=NAME: {', '.join(names[:10])}.")
    return names[0]


def _names(archive: IO[bytes], origin: str) -> list[str]:
    try:
        names = zipfile.ZipFile(archive).namelist()
    except DAMAGE as error:
        raise damaged(origin, error) from error
    for name in names:
        if _escapes(name):
            raise DataError(f"{origin} is refused: its member {name!r} would be written outside the archive's folder.")
    return names


def open_member(archive: IO[bytes], member: str, origin: str) -> IO[bytes]:
    """One member of a zip archive as a stream."""
    names = _names(archive, origin)
    if member not in names:
        raise DataError(f"{origin} has no member {member!r}; it holds {', '.join(names[:10])}.")
    try:
        opened = zipfile.ZipFile(archive)
        stream = opened.open(member)
    except DAMAGE as error:
        raise damaged(origin, error) from error
    found = guarded(stream, opened.getinfo(member).compress_size, origin)
    return io.BytesIO(found.read()) if member.lower().endswith((".zip", ".xlsx")) else found  # these are read by seeking


def damaged(origin: str, error: Exception) -> DataError:
    return DataError(f"{origin} is damaged or not what its name says: {first_line(error)}.")


def _escapes(name: str) -> bool:
    parts = PurePosixPath(name).parts + PureWindowsPath(name).parts
    return ".." in parts or PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).anchor)


def allowed_bytes(packed_bytes: int) -> int:
    """What a file of this size may expand to."""
    return max(FREE_EXPANSION_BYTES, LARGEST_EXPANSION * packed_bytes)


class _Expanding(io.RawIOBase):
    """Counts decompressed bytes and stops at an expansion ratio that no table of numbers has."""

    def __init__(self, stream: Any, packed_bytes: int, origin: str) -> None:
        self._stream, self._origin = stream, origin
        self._allowed = allowed_bytes(packed_bytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self._stream.read(len(buffer))
        except DAMAGE as error:
            raise damaged(self._origin, error) from error
        self._allowed -= len(chunk)
        if self._allowed < 0:
            raise DataError(f"{self._origin} is refused: it expands to more than {LARGEST_EXPANSION} times its size.")
        buffer[: len(chunk)] = chunk
        return len(chunk)


def guarded(stream: Any, packed_bytes: int, origin: str) -> IO[bytes]:
    return io.BufferedReader(_Expanding(stream, packed_bytes, origin), BLOCK_BYTES)
