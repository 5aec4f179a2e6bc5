"""Kept results: files, series over commits, the table, the page, and asv's pages beside it."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsibench.cli import main
from fsibench.errors import UsageError
from fsibench.history import record, running, trends
from fsibench.history.checkouts import Commit, Repository
from fsibench.history.record import CommitRecord, Measured
from fsibench.reports import history as page

ROOT = Path(__file__).parents[2]
STEP, LL = "steps.Step.time_step(<b>bbb</b>)", "quality.Quality.track_ll(bbb, boston)"
COMMITS = 24


def made_up(number: int) -> CommitRecord:
    """From commit 12 on a step takes half as long again (of 2.03), and the log score is better by 0.1."""
    wobble = 0.01 * ((7 * number) % 5)
    late = number >= COMMITS // 2
    series = {
        STEP: Measured("T", tuple(2.0 + wobble + 0.01 * repeat + late for repeat in range(3))),
        LL: Measured("nats", tuple(-1.0 + 0.3 * split + 0.1 * wobble + 0.1 * late for split in range(3))),
    }
    accepted = {STEP: "it is exact <now>"} if number == COMMITS // 2 else {}
    return CommitRecord(f"{number:040x}", f"2026-11-{number + 1:02d}T10:00:00+00:00", f"subject {number}", "x86", series, accepted)


RECORDS = [made_up(number) for number in range(COMMITS)]


def found() -> list[trends.Trend]:
    return trends.trends(RECORDS, {kept.sha: kept.accepted for kept in RECORDS})


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = record.save(RECORDS[3], tmp_path)
    kept = record.read(path)
    assert kept.sha == RECORDS[3].sha
    assert kept.series[STEP].values == pytest.approx(RECORDS[3].series[STEP].values, rel=1e-3)
    assert [file.name for file in tmp_path.iterdir()] == [f"{RECORDS[3].sha[:12]}.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"sha": 1}', '{"series": {"a": 1}}'])
def test_a_file_that_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError, match=r"a\.json is no kept result"):
        record.read_all(tmp_path)


def test_changes_name_series_commits_size_and_direction() -> None:
    by_name = {trend.name: trend.points for trend in found()}
    (slower,), (better,) = by_name[STEP], by_name[LL]
    edge = COMMITS // 2
    assert (slower.first, slower.last) == (RECORDS[edge - 1].sha, RECORDS[edge].sha)
    assert (slower.word, slower.size) == ("worse", "+49 %")
    assert slower.accepted == "it is exact <now>"
    assert better.word == "better"
    assert better.size == "+0.100 nats"


def test_a_time_that_changed_with_the_machine_is_no_change() -> None:
    """T does not cancel what small operations cost; scores do not know the machine."""
    moved = [replace(kept, machine="another") if number >= COMMITS // 2 else kept for number, kept in enumerate(RECORDS)]
    by_name = {trend.name: trend.points for trend in trends.trends(moved)}
    assert not by_name[STEP]
    assert len(by_name[LL]) == 1


def test_every_nth_commit_ends_with_the_newest() -> None:
    commits = [Commit(str(number), "", "") for number in range(12)]
    assert [commit.sha for commit in running.chosen(commits, 5)] == ["1", "6", "11"]


def test_the_kept_results_of_this_repository_can_be_read() -> None:
    kept = record.read_all(ROOT / record.FOLDER)
    assert len(kept) >= 30
    assert all(trends._scale(name, measured.unit) for one in kept.values() for name, measured in one.series.items())


def test_commits_are_measured_once_and_the_table_is_printed(
    toy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit from before the suites could run has a file without series: nothing is made up."""
    monkeypatch.setattr("fsibench.history.measuring.KEPT", (r"toy\..*(peakmem|track).*",))
    toy.commit("worse", LOSS=0.5)
    toy.commit("broken", LOSS="text")
    monkeypatch.chdir(toy.root)
    assert main(["history", "--run", "HEAD"]) == 0
    kept = record.read_all(toy.root / record.FOLDER)
    assert [len(one.series) for one in record.in_order(kept, [commit.sha for commit in Repository(toy.root).commits("HEAD")])] == [2, 2, 1]
    before = capsys.readouterr()
    assert "3 commits, 3 without a result" in before.err
    assert main(["history", "--run", "HEAD"]) == 0
    assert "3 commits, 0 without a result" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--every", "0"), "at least 1"), ((), "holds no result"), (("--run", "a..b"), "no range of commits")],
)
def test_bad_input_is_told_what_to_do(
    toy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(toy.root)
    assert main(["history", *arguments]) == 2
    assert words in capsys.readouterr().err


# In a browser ----------------------------------------------------------------------------------------------------------

def test_the_page_draws_every_series_and_a_press_tells_the_commit(browser: Any, tmp_path: Path) -> None:
    path = page.write(RECORDS, found(), tmp_path)
    tab = browser.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: problems.append(request.url) if not request.url.startswith(("file:", "data:")) else None)
    tab.goto(path.as_uri())
    tab.wait_for_selector("body[data-ready=yes]")
    tab.select_option("#entry", "bbb")
    assert tab.locator("#charts svg.chart").count() == 1
    assert tab.locator("#charts circle.commit").count() == COMMITS
    assert tab.locator("#charts line.change").count() == 1
    tab.locator("#charts circle.commit").nth(COMMITS // 2).click()
    told = tab.locator("#detail").inner_text()
    assert f"subject {COMMITS // 2}" in told
    assert f"fsibench gate {RECORDS[COMMITS // 2 - 1].sha[:10]} {RECORDS[COMMITS // 2].sha[:10]} --series" in told
    assert "it is exact <now>" in tab.locator("table").inner_text()
    tab.close()
    assert not problems


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: the test speaks for itself."""


def test_the_pages_of_asv_show_the_kept_results(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("asv", reason="asv is not installed")
    out = tmp_path / "asv"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "asv_site.py"), str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if "npm is missing or offline" in done.stderr:
        pytest.skip("no npm: asv's pages need scripts from the network")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(out)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        tab.wait_for_function("document.body.innerText.includes('time_step')", timeout=120_000)
        tab.close()
    finally:
        server.shutdown()
        server.server_close()
    assert "steps.Step.time_step" in json.loads((out / "index.json").read_text())["benchmarks"]
