"""A private cache, a loopback server that speaks OpenML and UCI, and files to serve."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pytest

SPACE = 'xmlns:oml="http://openml.org/openml"'


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FSIBENCH_CACHE", str(tmp_path / "fsibench-cache"))
    monkeypatch.delenv("FSIBENCH_MIRROR", raising=False)
    monkeypatch.delenv("OPENML_SKIP_PARQUET", raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield tmp_path / "fsibench-cache"
    shutil.rmtree(tmp_path / "fsibench-cache", ignore_errors=True)  # half a gigabyte after the large tables


@dataclass
class Served:
    """One OpenML data set as the service offers it; the options are the ways in which it can go wrong."""

    frame: Any
    target: str
    parquet: bytes | None = None  # None: written from the frame; empty: no parquet_url at all
    parquet_status: int = 200
    parquet_cut: int = 0  # bytes left out at the end, although they are announced
    arff: str = ""
    arff_status: int = 200
    md5: str = ""
    ignore: tuple[str, ...] = ()
    gzipped: bool = True
    seconds_per_piece: float = 0.0

    def __post_init__(self) -> None:
        self.arff = self.arff or arff_text(self.frame)
        self.md5 = self.md5 or hashlib.md5(self.arff.encode()).hexdigest()
        if self.parquet is None:
            buffer = io.BytesIO()
            self.frame.to_parquet(buffer, index=False)
            self.parquet = buffer.getvalue()


def arff_text(frame: Any) -> str:
    """Attribute lines as the service writes them: nominal columns with their labels."""
    lines = ["@RELATION served"]
    for name, column in frame.items():
        nominal = column.dtype.name == "category"
        kind = "{" + ",".join(map(str, column.cat.categories)) + "}" if nominal else "REAL"
        lines.append(f"@ATTRIBUTE '{name}' {kind}")
    rows = [",".join(map(str, row)) for row in frame.itertuples(index=False)]
    return "\n".join([*lines, "@DATA", *rows]) + "\n"


@dataclass
class ServedTask:
    """One OpenML task: its table, its target, and the test rows of each fold in each repetition."""

    data: int
    target: str
    rows: int
    tests: list[list[list[int]]]
    kind: tuple[int, str] = (2, "Supervised Regression")

    def arff(self) -> str:
        whole = "".join(f"@ATTRIBUTE {name} INTEGER\n" for name in ("rowid", "repeat", "fold"))
        attributes = f"@ATTRIBUTE type {{TRAIN,TEST}}\n{whole}"
        lines = [
            f"{'TEST' if row in test else 'TRAIN'},{row},{repeat},{fold}"
            for repeat, folds in enumerate(self.tests)
            for fold, test in enumerate(folds)
            for row in range(self.rows)
        ]
        return f"@RELATION splits\n{attributes}@DATA\n" + "\n".join(lines) + "\n"

    def xml(self, identity: int, base: str) -> str:
        target = f"<oml:target_feature>{self.target}</oml:target_feature>"
        source = f"<oml:data_set><oml:data_set_id>{self.data}</oml:data_set_id>{target}</oml:data_set>"
        parameters = "".join(
            f'<oml:parameter name="{name}">{value}</oml:parameter>'
            for name, value in (("number_repeats", len(self.tests)), ("number_folds", len(self.tests[0])))
        )
        procedure = (
            "<oml:estimation_procedure><oml:id>7</oml:id><oml:type>crossvalidation</oml:type>"
            f"<oml:data_splits_url>{base}/api_splits/get/{identity}/splits.arff</oml:data_splits_url>{parameters}"
            "</oml:estimation_procedure>"
        )
        return (
            f"<oml:task {SPACE}><oml:task_id>{identity}</oml:task_id><oml:task_name>made up</oml:task_name>"
            f"<oml:task_type_id>{self.kind[0]}</oml:task_type_id><oml:task_type>{self.kind[1]}</oml:task_type>"
            f'<oml:input name="source_data">{source}</oml:input>'
            f'<oml:input name="estimation_procedure">{procedure}</oml:input></oml:task>'
        )


@dataclass
class Loopback:
    """What the server has and what it was asked."""

    address: str = ""
    sets: dict[int, Served] = field(default_factory=dict)
    tasks: dict[int, ServedTask] = field(default_factory=dict)
    suites: dict[int, list[int]] = field(default_factory=dict)
    files: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def serve(self, path: str, content: bytes, **options: Any) -> None:
        """A plain file; options are those of `Handler.send`."""
        self.files[path] = lambda handler: handler.send(options.get("status", 200), content, **_without_status(options))

    def offer(self, identity: int, frame: Any, target: str, **options: Any) -> None:
        """An OpenML data set; options are those of `Served`."""
        self.sets[identity] = Served(frame, target, **options)


def _without_status(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "status"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    offered: Loopback

    def log_message(self, *arguments: Any) -> None:
        """The test's output is not the place for an access log."""

    def send(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int = 0, pause: float = 0.0
    ) -> None:
        self.send_response(status)
        piece = 4096 if pause else 1 << 20
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has given up, as it may
            for start in range(0, len(body) - cut, piece):
                self.wfile.write(body[start : min(start + piece, len(body) - cut)])
                time.sleep(pause)
        if cut:
            self.close_connection = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.offered.log.append(f"{self.command} {path}")
        if path in self.offered.files:
            self.offered.files[path](self)
        elif match := re.fullmatch(r"/api/v1/xml/data/(\d+)", path):
            self._description(int(match[1]))
        elif match := re.fullmatch(r"/datasets/\d+/\d+/dataset_(\d+)\.pq", path):
            self._parquet(self.offered.sets[int(match[1])], path)
        elif match := re.fullmatch(r"/data/v1/download/(\d+)/served\.arff", path):
            served = self.offered.sets[int(match[1])]
            self._text(served.arff_status, served.arff, served.gzipped, served.seconds_per_piece)
        elif (match := re.fullmatch(r"/api/v1/xml/task/(\d+)", path)) and int(match[1]) in self.offered.tasks:
            self._text(200, self.offered.tasks[int(match[1])].xml(int(match[1]), self.offered.address))
        elif match := re.fullmatch(r"/api_splits/get/(\d+)/splits\.arff", path):
            self._text(200, self.offered.tasks[int(match[1])].arff())
        elif (match := re.fullmatch(r"/api/v1/xml/study/(\d+)", path)) and int(match[1]) in self.offered.suites:
            self._study(int(match[1]))
        else:
            self._text(404, f"<oml:error {SPACE}><oml:code>100</oml:code><oml:message>no</oml:message></oml:error>")

    do_HEAD = do_GET

    def _text(self, status: int, text: str, gzipped: bool = True, pause: float = 0.0) -> None:
        body = gzip.compress(text.encode()) if gzipped else text.encode()
        self.send(status, body, {"Content-Encoding": "gzip"} if gzipped else {}, pause=pause)

    def _description(self, identity: int) -> None:
        if identity not in self.offered.sets:  # what the service answers for an unknown id
            text = f"<oml:error {SPACE}><oml:code>111</oml:code><oml:message>Unknown dataset</oml:message></oml:error>"
            self._text(412, text)
            return
        served, base = self.offered.sets[identity], self.offered.address
        place = f"{base}/datasets/{identity // 10000:04d}/{identity % 10000:04d}/dataset_{identity}.pq"
        parquet = f"<oml:parquet_url>{place}</oml:parquet_url>" if served.parquet else ""
        ignored = "".join(f"<oml:ignore_attribute>{escape(name)}</oml:ignore_attribute>" for name in served.ignore)
        text = (
            f"<oml:data_set_description {SPACE}><oml:id>{identity}</oml:id><oml:name>served</oml:name>"
            "<oml:version>1</oml:version><oml:description>made up</oml:description><oml:format>ARFF</oml:format>"
            f"<oml:licence>Public</oml:licence><oml:url>{base}/data/v1/download/{identity}/served.arff</oml:url>"
            f"{parquet}<oml:file_id>{identity}</oml:file_id>"
            f"<oml:default_target_attribute>{escape(served.target)}</oml:default_target_attribute>{ignored}"
            f"<oml:status>active</oml:status><oml:md5_checksum>{served.md5}</oml:md5_checksum>"
            "</oml:data_set_description>"
        )
        self._text(200, text, served.gzipped)

    def _study(self, identity: int) -> None:
        tasks = "".join(f"<oml:task_id>{task}</oml:task_id>" for task in self.offered.suites[identity])
        fields = {"id": identity, "main_entity_type": "task", "name": "made up", "description": "made up"}
        fields |= {"status": "active", "creation_date": "2023-01-01", "creator": 1}
        content = "".join(f"<oml:{key}>{value}</oml:{key}>" for key, value in fields.items())
        self._text(200, f"<oml:study {SPACE}>{content}<oml:tasks>{tasks}</oml:tasks></oml:study>")

    def _parquet(self, served: Served, path: str) -> None:
        if served.parquet_status != 200:
            message = f"<Message>Object does not exist</Message><Resource>{path}</Resource>"
            body = f"<Error><Code>NoSuchKey</Code>{message}</Error>"
            self.send(served.parquet_status, body.encode(), {"Content-Type": "application/xml"})
            return
        assert served.parquet
        tag = hashlib.md5(served.parquet).hexdigest()
        tags = {"ETag": f'"{tag}"', "Last-Modified": "Fri, 20 Nov 2020 19:31:16 GMT"}
        self.send(200, served.parquet, tags, served.parquet_cut, served.seconds_per_piece)


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A server on 127.0.0.1 that stands in for the UCI archive at once, and for OpenML with `openml_client`."""
    offered = Loopback()
    handler = type("BoundHandler", (Handler,), {"offered": offered})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    offered.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("FSIBENCH_UCI_URL", offered.address)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield offered
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def openml_package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The real client; its import makes folders, so it is told beforehand where."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("openml")
        patch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        patch.setenv("OPENML_CACHE_DIR", str(place / "cache"))
        return pytest.importorskip("openml", reason="the openml client is not installed")


@pytest.fixture
def openml_client(openml_package: Any, loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real client, talking to the loopback server, without patience."""
    monkeypatch.setattr(openml_package.config, "server", f"{loopback.address}/api/v1/xml")
    monkeypatch.setattr(openml_package.config, "connection_n_retries", 1)
    return openml_package


@pytest.fixture
def numbers() -> Any:
    """A small complete table: eight inputs, one target."""
    import pandas

    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.normal(size=(60, 8)), columns=[f"theta{i}" for i in range(1, 9)])
    frame["y"] = np.sin(frame.to_numpy()).sum(1)
    return frame
