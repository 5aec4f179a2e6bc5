"""Tables from OpenML through its own client, by pinned id.

The client works in a private folder that is thrown away, since it neither checks Parquet files nor replaces broken
ones; what it downloads is verified and kept in our own cache.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fsibench.data.sources.download import STALL_SECONDS, download
from fsibench.data.sources.frames import from_frame
from fsibench.data.sources.raw import Layout, Raw, require_columns, require_unique
from fsibench.data.sources.reading import read_table
from fsibench.errors import DataError, Unreachable

logger = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
LABELS_ARE_NUMBERS = Layout()
LARGEST_SPLIT_FILE = 1 << 30


def fetch(
    identity: int,
    target: str,
    workplace: Path,
    *,
    arff: bool,
    layout: Layout = LABELS_ARE_NUMBERS,
) -> tuple[Raw, str]:
    """The table under an id and the name of its target. Without a target the provider's own is taken.

    Columns that the provider marks as row names or to be ignored, and its targets other than the chosen one, are left
    out.
    """
    origin = f"OpenML {identity}"
    client = _client()
    with _settings(client, workplace, arff):
        _require_server(client.config.server)
        try:
            dataset = client.datasets.get_dataset(
                identity, download_data=True, download_qualities=False, download_features_meta_data=False
            )
            frame = dataset.get_data(include_ignore_attribute=True, dataset_format="dataframe")[0]
        except Exception as error:  # the client lets errors of requests, urllib3, minio, pandas and liac-arff through
            raise _explained(error, origin) from error
    names = require_unique(tuple(map(str, frame.columns)), origin)
    targets = [name.strip() for name in (dataset.default_target_attribute or "").split(",") if name.strip()]
    chosen = _chosen_target(target, targets, names, identity)
    unwanted = {*targets, *(dataset.ignore_attribute or ())} - {chosen, *layout.drop}
    return from_frame(frame[[name for name in names if name not in unwanted]], layout, origin), chosen


def fetch_task(identity: int, workplace: Path) -> tuple[int, str, list[list[int]]]:
    """The data set, the target and the test rows of each split of a regression task, repetition by repetition."""
    origin = f"OpenML task {identity}"
    client = _client()
    with _settings(client, workplace, arff=False):
        _require_server(client.config.server)
        try:
            task = client.tasks.get_task(
                identity, download_data=False, download_qualities=False, download_features_meta_data=False
            )
        except Exception as error:
            raise _explained(error, origin) from error
    if "regression" not in task.task_type.lower():
        raise DataError(f"{origin} is a {task.task_type.lower()} task, not a regression task")
    tests = _test_rows(str(task.estimation_procedure["data_splits_url"]), workplace / "splits.arff")
    return int(task.dataset_id), str(task.target_name), tests


def _test_rows(url: str, path: Path) -> list[list[int]]:
    """From lines of type (TRAIN or TEST), row, repetition and fold."""
    download(url, path, limit=LARGEST_SPLIT_FILE)
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"  # the service may compress what was asked for plain
    path = path.rename(f"{path}.gz") if packed else path
    with read_table(path, Layout(labels=True)) as raw:
        require_columns(("type", "rowid", "repeat", "fold"), raw.names, url)
        lines = np.concatenate(list(raw.blocks) or [np.empty((0, len(raw.names)))])
    kind, row, repeat, fold = (lines[:, raw.names.index(name)] for name in ("type", "rowid", "repeat", "fold"))
    labels = [label.upper() for label in raw.levels.get("type", ())]
    if "TEST" not in labels:
        raise DataError(f"{url} names no test rows")
    tests = kind == labels.index("TEST")
    places = np.unique(np.stack([repeat, fold], axis=1)[tests], axis=0)
    return [np.sort(row[tests & (repeat == r) & (fold == f)]).astype(int).tolist() for r, f in places]


def fetch_suite(identity: int, workplace: Path) -> list[int]:
    """The tasks of a benchmark suite."""
    origin = f"OpenML suite {identity}"
    client = _client()
    with _settings(client, workplace, arff=False):
        _require_server(client.config.server)
        try:
            tasks = client.study.get_suite(identity).tasks
        except Exception as error:
            raise _explained(error, origin) from error
    if not tasks:
        raise DataError(f"{origin} names no tasks")
    return [int(task) for task in tasks]


def _client() -> Any:
    try:
        import openml
    except ImportError:
        raise DataError("the openml client is not installed (pip install 'fsibench[openml]')") from None
    return openml


@contextlib.contextmanager
def _settings(client: Any, workplace: Path, arff: bool) -> Iterator[None]:
    """A private cache, a progress bar on a terminal, Parquet or ARFF; everything put back afterwards."""
    config, skip = client.config, os.environ.get("OPENML_SKIP_PARQUET")
    cache, progress = config._root_cache_directory, config.show_progress
    config.set_root_cache_directory(str(workplace))
    config.show_progress = progress or sys.stderr.isatty()
    if arff:
        os.environ["OPENML_SKIP_PARQUET"] = "true"
    try:
        with _limit_on_silence():
            yield
    finally:
        config.set_root_cache_directory(str(cache))
        config.show_progress = progress
        if arff:
            os.environ.pop("OPENML_SKIP_PARQUET")
            os.environ.update({} if skip is None else {"OPENML_SKIP_PARQUET": skip})


@contextlib.contextmanager
def _limit_on_silence() -> Iterator[None]:
    """Add a time limit to the client's HTTP library: without one, a server that never answers blocks it forever."""
    import requests

    session_class: Any = requests.Session
    original = session_class.request

    def request(session: Any, *arguments: Any, **options: Any) -> Any:
        return original(session, *arguments, **{"timeout": STALL_SECONDS, **options})

    session_class.request = request
    try:
        yield
    finally:
        session_class.request = original


def _require_server(server: str) -> None:
    """Test the connection first: offline, the client itself takes a quarter of a minute to fail."""
    parts = urllib.parse.urlsplit(server)
    host = parts.hostname or ""
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return  # a proxy stands between, so that a direct connection says nothing
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
    except OSError as error:
        raise Unreachable(f"no connection to {host}") from error


def _explained(error: Exception, origin: str) -> DataError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(". ")
    kind = Unreachable if isinstance(error, OSError) and not isinstance(error, FileNotFoundError) else DataError
    return kind(f"{origin}: {reason or type(error).__name__}")


def _chosen_target(target: str, targets: list[str], names: tuple[str, ...], identity: int) -> str:
    if not target and len(targets) != 1:
        choice = ", ".join(targets or names)
        raise DataError(f"OpenML {identity} names no single target; write openml:{identity}?target=NAME with {choice}")
    chosen = target or targets[0]
    if chosen not in names:
        raise DataError(f"OpenML {identity} has no column {chosen!r}; it has {', '.join(names)}")
    return chosen
