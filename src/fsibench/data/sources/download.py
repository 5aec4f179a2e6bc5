"""Downloads over https: complete files only, checked, retried with back-off, with a progress bar on a terminal."""

from __future__ import annotations

import errno
import hashlib
import http.client
import logging
import os
import random
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fsibench.errors import DataError, Unreachable

logger = logging.getLogger(__name__)

ATTEMPTS = 4
STALL_SECONDS = 30.0  # without a single byte
CHUNK_BYTES = 1 << 18
_LOCAL_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}


class _Again(Exception):
    """This attempt failed; another one may succeed."""


def uci_address() -> str:
    return os.environ.get("FSIBENCH_UCI_URL", "https://archive.ics.uci.edu").rstrip("/")


def download(
    url: str, destination: Path, *, sha256: str = "", limit: int, pause: Callable[[float], None] = time.sleep
) -> None:
    """Fetch `url` into `destination`: at most `limit` bytes, with this sha256 if it is given."""
    _require_https(url)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _attempt(url, destination, sha256, limit)
        except _Again as error:
            if attempt == ATTEMPTS:
                raise Unreachable(f"{url}: download failed after all retries; {error}") from error
            seconds = 2.0 ** (attempt - 1) * random.uniform(0.75, 1.25)  # several machines must not retry at the same moments
            logger.info("%s: %s; attempt %d follows in %.1f s", url, error, attempt + 1, seconds)
            pause(seconds)


def _require_https(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost"}):
        raise DataError(f"{url} is refused: data are fetched over https only.")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect that leaves https."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _require_https(newurl)
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise DataError(f"{req.full_url} is refused: it leads to {newurl[:100]}, away from https.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _length(text: str | None, url: str) -> int | None:
    """The announced number of bytes, if there is one."""
    if text is not None and not (text.strip().isdecimal() and len(text) < 20):
        raise DataError(f"{url}: the server announces a length of {text[:40]!r}, which is no number of bytes.")
    return int(text) if text is not None else None


def _attempt(url: str, destination: Path, sha256: str, limit: int) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "fsibench", "Accept-Encoding": "identity"})
    try:
        opener = urllib.request.build_opener(_Redirects)
        with opener.open(request, timeout=STALL_SECONDS) as reply, destination.open("wb") as file:
            digest = _copy(reply, file, url, _length(reply.headers.get("Content-Length"), url), limit)
    except urllib.error.HTTPError as error:
        error.close()  # the error is also the reply, with its connection
        if error.code in _TRANSIENT_STATUS:
            raise _Again(f"the server answered {error.code}") from error
        raise DataError(f"{url}: the server answered {error.code} ({error.reason})") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, socket.gaierror):  # no such host or no network: asking again will not help
            raise Unreachable(f"no connection to {urllib.parse.urlsplit(url).hostname}") from error
        raise _Again(f"no connection ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "errno", None) in _LOCAL_TROUBLE:
            raise
        raise _Again(f"the connection broke ({error or type(error).__name__})") from error
    if sha256 and digest != sha256:
        raise _Again(f"sha256 {digest[:16]}... instead of {sha256[:16]}...")


def _copy(reply: IO[bytes], file: IO[bytes], url: str, length: int | None, limit: int) -> str:
    """Copy and hash; the number of bytes must be the one announced."""
    digest, done, bar = hashlib.sha256(), 0, ProgressBar(url.rsplit("/", 1)[-1], length)
    while chunk := reply.read(CHUNK_BYTES):
        done += len(chunk)
        if done > limit:
            raise DataError(f"{url} is refused: it is larger than {limit} bytes, more than the data set can need")
        file.write(chunk)
        digest.update(chunk)
        bar.update(done)
    bar.close()
    if length is not None and done != length:
        raise _Again(f"the file broke off after {done} of {length} bytes")
    return digest.hexdigest()


class ProgressBar:
    """`YearPrediction.zip  42 %  88.6 MB  11.2 MB/s` on a terminal, nothing elsewhere."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total = label, total
        self._started = self._shown = time.monotonic()
        self._visible = sys.stderr.isatty()

    def update(self, done: int) -> None:
        now = time.monotonic()
        if not self._visible or now - self._shown < 0.2:
            return
        self._shown = now
        share = f"{100 * done / self._total:3.0f} %  " if self._total else ""
        speed = done / 1e6 / max(now - self._started, 1e-9)
        sys.stderr.write(f"\r\x1b[K{self._label}  {share}{done / 1e6:.1f} MB  {speed:.1f} MB/s")
        sys.stderr.flush()

    def close(self) -> None:
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
