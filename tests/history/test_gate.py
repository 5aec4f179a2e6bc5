"""The gate on a small repository whose commits are slower, larger, worse or broken by a known amount."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsibench.cli import main
from fsibench.history import gate
from fsibench.history.checkouts import Repository, accepted_series, covers

TIME, PEAK, LL = "toy.Work.time_work(a)", "toy.Work.peakmem_work(a)", "toy.Quality.track_ll(a)"
Run = Callable[..., tuple[int, dict[str, dict[str, Any]], str]]


@pytest.fixture
def run(toy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """`fsibench gate` inside the small repository: exit code, outcomes by series, what it printed."""
    monkeypatch.chdir(toy.root)

    def call(*arguments: str) -> tuple[int, dict[str, dict[str, Any]], str]:
        file = tmp_path / "outcomes.json"
        file.unlink(missing_ok=True)
        code = main(["gate", *arguments, "--json", str(file)])
        shown = capsys.readouterr()
        outcomes = json.loads(file.read_text())["outcomes"] if file.exists() else []
        return code, {outcome["series"]: outcome for outcome in outcomes}, shown.out + shown.err

    return call


def test_what_got_worse_is_a_regression_and_ends_with_1(toy: Any, run: Run) -> None:
    toy.commit("worse", COST=1.6, MEGABYTES=80, LOSS=0.1)
    code, outcomes, text = run("HEAD~1", "--series", TIME, "--series", PEAK, "--series", LL)
    assert code == 1
    assert {name: outcome["verdict"] for name, outcome in outcomes.items()} == dict.fromkeys((TIME, PEAK, LL), "regression")
    assert outcomes[TIME]["change"]["middle"] == pytest.approx(60, abs=15)
    assert outcomes[LL]["change"]["middle"] == pytest.approx(0.105)
    assert "3 regression" in text


def test_what_got_better_is_improved_and_ends_with_0(toy: Any, run: Run) -> None:
    toy.commit("better", COST=0.6, MEGABYTES=10, LOSS=-0.1)
    code, outcomes, _ = run("HEAD~1", "--series", TIME, "--series", PEAK, "--series", LL)
    assert code == 0
    assert {outcome["verdict"] for outcome in outcomes.values()} == {"improved"}


def test_scores_that_agree_to_the_last_bit_need_few_splits(toy: Any, run: Run) -> None:
    toy.commit("nothing", NOTHING=1)
    code, outcomes, _ = run("HEAD~1", "--series", LL)
    assert code == 0
    assert outcomes[LL]["verdict"] == "unchanged"
    assert outcomes[LL]["pairs"] == gate.FIRST_SPLITS


def test_a_commit_message_accepts_a_regression_and_the_table_shows_why(toy: Any, run: Run) -> None:
    toy.commit(f"worse\n\nAccept-regression: {LL} the old score counted a row twice", LOSS=0.1)
    code, outcomes, text = run("HEAD~1", "--series", LL)
    assert code == 0
    assert outcomes[LL]["verdict"] == "accepted regression"
    assert "the old score counted a row twice" in text


def test_a_series_that_the_base_lacks_is_new(toy: Any, run: Run) -> None:
    toy.commit("one more", ENTRIES=("a", "b"))
    code, outcomes, _ = run("HEAD~1", "--series", "toy.Work.peakmem_work", "--all")
    assert code == 0
    assert outcomes["toy.Work.peakmem_work(b)"]["verdict"] == "new"
    assert "no entry b" in outcomes["toy.Work.peakmem_work(b)"]["note"]


def test_a_series_that_fails_now_is_a_regression(toy: Any, run: Run) -> None:
    toy.commit("broken", LOSS="text")
    code, outcomes, text = run("HEAD~1", "--series", LL)
    assert code == 1
    assert "TypeError" in outcomes[LL]["note"]
    assert "it fails now" in text


def test_a_process_that_dies_costs_its_own_series_only(toy: Any, run: Run) -> None:
    toy.commit("killed", LOSS=0.0)
    package = toy.root / "src/fsibench/__init__.py"
    package.write_text(package.read_text() + "import os\ndef __getattr__(name):\n    os._exit(7)\n")
    text = (toy.root / "benchmarks/toy.py").read_text()
    (toy.root / "benchmarks/toy.py").write_text(text + "class Dies:\n    def track_rmse(self):\n        return fsibench.MISSING\n")
    toy.git("commit", "--quiet", "--all", "--message", "dies")
    code, outcomes, _ = run("HEAD~2", "--series", "toy.Dies.track_rmse", "--series", LL)
    assert code == 0
    assert outcomes[LL]["verdict"] == "unchanged"
    assert outcomes["toy.Dies.track_rmse"]["verdict"] in ("new", "not measured")


def test_a_time_limit_leaves_the_rest_unmeasured(toy: Any, run: Run) -> None:
    toy.commit("nothing", NOTHING=1)
    code, outcomes, text = run("HEAD~1", "--series", LL, "--series", TIME, "--limit", "0.000001")
    assert code == 2
    assert outcomes == {} or {outcome["verdict"] for outcome in outcomes.values()} == {"not measured"}
    assert "time limit" in text


def test_no_difference_in_code_needs_no_measurement(toy: Any, run: Run) -> None:
    toy.commit("empty")
    code, _, text = run("HEAD~1")
    assert code == 0
    assert "no code differs" in text


def test_changes_that_are_not_committed_are_judged_only_when_asked(toy: Any, run: Run) -> None:
    toy.write(LOSS=0.1)
    code, _, text = run("HEAD", "--series", LL)
    assert code == 2
    assert "--dirty" in text
    code, outcomes, _ = run("HEAD", "--series", LL, "--dirty")
    assert code == 1
    assert outcomes[LL]["verdict"] == "regression"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "no commit 'nowhere'"),
        (("HEAD", "--series", "toy.Nothing", "--all"), "no series is called 'toy.Nothing'"),
        (("HEAD", "--limit", "-1"), "positive number of seconds"),
        (("HEAD", "HEAD", "--dirty"), "leave out HEAD"),
        (("HEAD", "--series", "toy.Work.peakmem_work(b)", "--all"), "nothing could be compared"),
    ],
)
def test_bad_input_is_told_what_to_do(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, _, text = run(*arguments)
    assert code == 2
    assert words in text


def test_a_shallow_clone_says_how_to_get_the_rest(toy: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.commit("second", LOSS=0.1)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{toy.root}", str(clone)], check=True)
    monkeypatch.chdir(clone)
    code, _, text = run("HEAD~1")
    assert code == 2
    assert "--unshallow" in text


def test_outside_of_a_repository_it_says_so(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, text = run("HEAD")
    assert code == 2
    assert "no git repository" in text


def test_nothing_is_left_in_the_repository(toy: Any, run: Run) -> None:
    toy.commit("second", LOSS=0.0)
    run("HEAD~1", "--series", LL)
    assert toy.git("worktree", "list").count("\n") == 0
    assert toy.git("status", "--porcelain") == ""


def test_methods_that_changed_are_measured_first() -> None:
    names = ("steps.Step.time_step(sip)", "steps.Step.time_step(bbb)", "start.Command.time_command(list)")
    scale = gate.verdicts.TIME
    found = [gate.Series(name, "time", scale, 1) for name in names]
    order = [series.name for series in gate.by_relevance(found, ["methods/bbb.py", "src/fsibench/api.py"])]
    assert order == ["steps.Step.time_step(bbb)", "steps.Step.time_step(sip)", "start.Command.time_command(list)"]


def test_acceptances_are_read_from_lines_of_messages() -> None:
    found = accepted_series(
        "subject\n\nAccept-regression: steps.Step.time_step(sip[preset=paper,prior=bnn]) exact now\n"
        "Accept-regression: steps.*\ntext Accept-regression: not.this one"
    )
    assert found == {"steps.Step.time_step(sip[preset=paper,prior=bnn])": "exact now", "steps.*": "no reason given"}


@pytest.mark.parametrize(
    ("pattern", "series", "expected"),
    [
        ("steps.Step.time_step", "steps.Step.time_step(bbb)", True),
        ("steps.Step.time_step(bbb)", "steps.Step.time_step(bbb)", True),
        ("steps.Step.time_step(bbb)", "steps.Step.time_step(bbb[preset=paper])", False),
        ("steps.*", "steps.Step.time_step(bbb)", True),
        ("steps", "steps.Step.time_step(bbb)", False),
    ],
)
def test_names_of_series_may_be_short(pattern: str, series: str, expected: bool) -> None:
    assert covers(pattern, series) is expected


def test_a_commit_is_laid_out_as_the_package(toy: Any, tmp_path: Path) -> None:
    repository = Repository(toy.root)
    site = repository.lay_out(repository.commit("HEAD"), tmp_path / "out")
    assert {path.name for path in (site / "fsibench").iterdir()} == {"__init__.py", "methods", "datasets", "reports"}
