"""The live report: served to this machine only, written again while a run goes on; the link of a finished run."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsibench.cli import main, serve
from fsibench.cli import report as report_command
from fsibench.errors import UsageError
from fsibench.harness.store import Store

MakeStore = Callable[..., Path]


def get(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@contextmanager
def served(folder: Path) -> Iterator[int]:
    with serve.start(folder, 0) as server:
        yield int(server.server_address[1])
        server.shutdown()


def test_only_the_folder_is_served_and_only_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "site" / "tables").mkdir(parents=True)
    (tmp_path / "site" / "index.html").write_text("the report")
    (tmp_path / "secret.txt").write_text("not for anybody")
    with served(tmp_path / "site") as port:
        assert get(port, "/") == (200, "the report")
        assert get(port, "/", host="attacker.example")[0] == 403
        for path in ("/tables/", "/../secret.txt", "/%2e%2e/secret.txt", "/absent.html"):
            status, text = get(port, path)
            assert status == 404
            assert "not for anybody" not in text


def test_the_server_listens_on_the_loopback_address(tmp_path: Path) -> None:
    with serve.start(tmp_path, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(UsageError, match="cannot be used"):
            serve.start(tmp_path, int(server.server_address[1]))
        server.shutdown()


def test_pages_are_written_again_until_the_run_ends(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_store(entries=("bbb",), datasets={"boston": 9.0}, splits=1)
    with Store.create(path) as store:
        run = store.begin_run(["fsibench"], {}, {})
    built: list[int | None] = []

    def meanwhile(_: float) -> None:
        if len(built) == 2:
            raise KeyboardInterrupt
        with Store.create(path) as store:
            store.end_run(run, "finished")

    def build(refresh: int | None) -> Path:
        built.append(refresh)
        return path

    monkeypatch.setattr(serve.time, "sleep", meanwhile)
    announced: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        serve.keep_fresh(path, build, lambda: announced.append("there"))
    assert built == [report_command.WATCH_SECONDS, None]  # it reloads itself while the run goes on, and then no more
    assert announced == ["there"]


def test_serving_needs_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", str(tmp_path / "absent.sqlite"), "--port", "0"]) == 2
    assert "there is no store at" in capsys.readouterr().err


def test_a_finished_run_prints_one_sentence_and_its_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "a.sqlite"
    words = ["run", "smoke", "--methods", "constant,linear", "--datasets", "yacht", "--store", str(store), "--workers", "1"]
    assert main([*words, "--report"]) == 0
    sentence, link = capsys.readouterr().out.strip().splitlines()[-2:]
    assert "leads in CRPS" in sentence
    index = tmp_path / "a-report" / "index.html"
    assert link == f"report: {index.resolve().as_uri()}"
    assert index.is_file()


def test_a_short_run_prints_the_command_instead(tmp_path: Path) -> None:
    store = tmp_path / "a.sqlite"
    assert report_command.line_after_run(store, 5.0, None) == f"pages: fsibench report --store {store}"
    assert report_command.line_after_run(store, 500.0, False) == f"pages: fsibench report --store {store}"
