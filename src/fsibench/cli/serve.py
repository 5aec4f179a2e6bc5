"""`fsibench serve`: the report of a store on this machine's own address, written again while a run goes on."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fsibench.cli.report import WATCH_SECONDS, add_conditions, chosen_conditions, is_running
from fsibench.errors import UsageError
from fsibench.harness.store import DEFAULT_STORE

# Nobody else reaches this address. A page of another site cannot use it either: the name it asks for must be one of these.
LOOPBACK = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="show the report in a browser and refresh it while a run goes on",
        description="Serve the report site of a store on the loopback address, for this machine only. "
        "Pages are written again whenever a run adds results. Ctrl-C ends it.",
    )
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH", help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write to (default: next to the store)")
    parser.add_argument("--port", type=int, default=8765, help="0 takes any free one (default: %(default)s)")
    add_conditions(parser)
    parser.set_defaults(handler=serve)


class Handler(SimpleHTTPRequestHandler):
    """Files of the report folder, nothing else: no listings, no caching, no foreign host names."""

    def send_head(self) -> Any:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in NAMES:
            self.send_error(HTTPStatus.FORBIDDEN, "only this machine's own address is served")
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> Any:
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not news."""


def serve(arguments: argparse.Namespace) -> int:
    from fsibench.reports import site

    store, where = arguments.store, chosen_conditions(arguments)
    out = arguments.out or store.parent / f"{store.stem}-report"
    with start(out, arguments.port) as server:
        try:
            keep_fresh(store, lambda refresh: site.build(store, out, where, (), refresh=refresh), partial(_announce, server, store))
        except OSError as error:
            raise UsageError(f"the report cannot be written to {out}: {error.strerror or error}.") from None
        except KeyboardInterrupt:
            print()
        finally:
            server.shutdown()
    return 0


def start(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of the folder in a thread of its own, on the loopback address."""
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), partial(Handler, directory=str(folder)))
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} of {LOOPBACK} cannot be used ({error}); choose another with --port.") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _announce(server: ThreadingHTTPServer, store: Path) -> None:
    print(f"report of {store}: http://{LOOPBACK}:{server.server_address[1]}/ (Ctrl-C ends this)", flush=True)


def keep_fresh(store: Path, build: Callable[[int | None], Path], first_built: Callable[[], None]) -> None:
    """Build whenever the store has changed, for ever; pages reload themselves as long as a run goes on."""
    seen: tuple[int, bool] | None = None
    while True:
        if not store.exists():
            raise UsageError(f"there is no store at {store}; `fsibench run` makes one.")
        now = (store.stat().st_mtime_ns, is_running(store))
        if now != seen:
            build(WATCH_SECONDS if now[1] else None)
            if seen is None:
                first_built()
            seen = now
        time.sleep(WATCH_SECONDS)
