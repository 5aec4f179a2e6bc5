"""The few exceptions users may meet.

`UsageError` is a sentence for the person at the keyboard: what was wrong, what was expected, what to do.
`Diverged` is a result: the fit left the finite numbers, and the harness records that instead of a score.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path

_LIBRARIES = ("site-packages", "/lib/python", str(Path(__file__).parent))


class FsibenchError(Exception):
    """Base of every error raised on purpose by fsibench."""


class UsageError(FsibenchError):
    """The request cannot be carried out as asked; the command line prints it and exits with 2."""


class DataError(UsageError):
    """A data set is absent, broken, or not what its passport says."""


class Unreachable(DataError):
    """A place on the network could not be reached, or the download failed after all retries."""


class StoreError(UsageError):
    """A result store cannot be read or written."""


class Diverged(FsibenchError):
    """A fit or a prediction left the finite numbers. A result, not a fault."""


class Mismatch(FsibenchError):
    """A machine holds other code or data than a cell was planned with, so the cell must not run there."""


def place(error: BaseException) -> str:
    """Where foreign code went wrong, `fit, line 9 of mine.py`: its innermost line, not one of the libraries that it calls."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    if not frames:
        return "at an unknown place"
    own = [frame for frame in frames if not any(part in frame.filename for part in _LIBRARIES)]
    innermost = (own or frames)[-1]
    return f"{innermost.name}, line {innermost.lineno} of {innermost.filename.rpartition('/')[2]}"


def told(error: BaseException) -> str:
    """An error of foreign code on one line: what it says, and where it arose."""
    return f"{type(error).__name__}: {error} ({place(error)})".replace("\n", " ")


def unknown(kind: str, name: str, available: Iterable[str]) -> UsageError:
    """`unknown method 'spi'; did you mean 'sip'? Available: aadm, avb, ...`"""
    names = sorted(available)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return UsageError(f"unknown {kind} {name!r}{hint} Available: {', '.join(names) or 'none'}.")
