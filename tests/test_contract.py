"""Every built-in method keeps every check of the contract; methods that do not are caught, by the right check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fsibench import Budget, Data, Method, Posterior, UsageError, checks, registry
from fsibench.checks import basics, problems
from fsibench.cli import main
from fsibench.testing import CheckFailed, check_method, check_names

SUPPORT = Path(__file__).parent / "support"
breaches: Any = registry._module_from_file(SUPPORT / "breaches.py")


@pytest.mark.parametrize("name", sorted(registry.methods().items))
def test_every_method_keeps_the_contract(name: str) -> None:
    method = registry.entry(name).method
    outcomes = [checks.run(check, method) for check in check_names()]
    assert not [f"{one.name}: {one.reason}" for one in outcomes if one.status == "failed"]


@pytest.mark.parametrize("method", [breaches.Honest, breaches.HonestGaussian], ids=["mixture", "one_gaussian"])
def test_an_honest_method_is_not_accused(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "TRAINING_SECONDS", 0.1)
    check_method(method())


@pytest.mark.parametrize("breach", breaches.CAUGHT_BY, ids=lambda breach: breach.__name__)
def test_each_breach_is_caught_and_the_message_names_the_cause(breach: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "TRAINING_SECONDS", 0.1)
    monkeypatch.setattr(basics, "FIRST_YIELD_SECONDS", 0.5)
    check, words = breaches.CAUGHT_BY[breach]
    outcome = checks.run(check, breach())
    assert outcome.status == "failed"
    assert words in outcome.reason
    assert "\n" not in outcome.reason
    assert outcome.hint


@dataclass(frozen=True)
class OneInput(breaches.Honest):  # type: ignore[misc, name-defined]
    """A slope along the last input, which explains most of yacht: fitted to noise, half of all signs are right."""

    name: ClassVar[str] = "one-input"

    def posterior(self, train: Data, generator: torch.Generator) -> Any:
        narrow = breaches.solve(train.x[:, -1:], train.y, generator)
        unused = train.x.shape[1] - 1
        mean = torch.cat([torch.zeros(unused), narrow.mean])
        return breaches.Linear(mean, torch.block_diag(torch.zeros(unused, unused), narrow.root), narrow.noise)


def test_a_fit_to_noise_that_agrees_with_the_truth_by_chance_is_not_accused() -> None:
    assert checks.run("test_rows_are_not_known", OneInput()).status == "ok"


@dataclass(frozen=True)
class Slow(breaches.Honest):  # type: ignore[misc, name-defined]
    """Honest, and useless after a short fit, as on a slow machine."""

    name: ClassVar[str] = "slow"
    until: float = 0.5

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        enough = budget.seconds is not None and budget.seconds >= self.until
        return super().fit(train if enough else Data(train.x, train.y.flip(0)), budget, generator)  # type: ignore[no-any-return]


def test_a_fit_that_is_good_only_after_longer_training_is_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "TRAINING_SECONDS", 0.1)
    assert checks.run("comes_near_the_exact_posterior", Slow(until=0.3)).status == "ok"
    assert checks.run("comes_near_the_exact_posterior", Slow(until=1.0)).status == "failed"


def test_what_a_process_pays_once_is_no_breach_of_the_budget() -> None:
    paid: list[bool] = []

    @dataclass(frozen=True)
    class ImportsOnFirstUse(breaches.Honest):  # type: ignore[misc]
        name: ClassVar[str] = "imports_on_first_use"

        def posterior(self, train: Data, generator: torch.Generator) -> Any:
            until = time.process_time() + (0.0 if paid else 2.5)
            while time.process_time() < until:
                pass
            paid.append(True)
            return super().posterior(train, generator)

    assert checks.run("budget_is_respected", ImportsOnFirstUse()).status == "ok"


def test_at_least_twenty_five_breaches_are_planted() -> None:
    assert len(breaches.CAUGHT_BY) >= 25
    assert {check for check, _ in breaches.CAUGHT_BY.values()} <= set(check_names())


def test_settings_that_imports_on_first_use_change_are_no_breach() -> None:
    imported: list[bool] = []

    @dataclass(frozen=True)
    class FiltersOnFirstUse(breaches.Honest):  # type: ignore[misc]
        name: ClassVar[str] = "filters_on_first_use"

        def posterior(self, train: Data, generator: torch.Generator) -> Any:
            if not imported:
                warnings.simplefilter("always", DeprecationWarning)
            imported.append(True)
            return super().posterior(train, generator)

    assert checks.run("settings_of_python_are_left_alone", FiltersOnFirstUse()).status == "ok"


def test_a_check_of_settings_puts_them_back() -> None:
    before = dict(os.environ), list(warnings.filters), np.geterr()
    for breach in (breaches.SetsTheEnvironment, breaches.SilencesWarnings, breaches.SilencesNumpy):
        assert checks.run("settings_of_python_are_left_alone", breach()).status == "failed"
    assert (dict(os.environ), list(warnings.filters), np.geterr()) == before


@dataclass(frozen=True)
class Hangs(Method):
    """Works for ever before its first yield, and asks nobody."""

    name: ClassVar[str] = "hangs-in-python"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        while True:
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001 (a method that swallows errors)
                return
        yield


def test_a_check_ends_at_its_time_limit_and_says_where() -> None:
    started = time.process_time()
    outcome = checks.run("yields_a_posterior", Hangs(), limit=0.3)
    assert outcome.status == "failed"
    assert "not finished after 0.3 s (fit, line" in outcome.reason
    assert time.process_time() - started < 5.0


@dataclass(frozen=True)
class Sleeps(Method):
    """Waits for something that never comes."""

    name: ClassVar[str] = "sleeps"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        time.sleep(600)
        yield breaches.Honest().posterior(train, generator)


def test_a_check_that_sleeps_ends_too() -> None:
    outcome = checks.run("yields_a_posterior", Sleeps(), limit=1.0)
    assert outcome.status == "failed"
    assert "(fit, line" in outcome.reason
    assert outcome.seconds < 300


def test_a_waived_check_is_not_run_and_its_reason_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (outcome,) = check_method("constant", "beats_the_constant")
    assert (outcome.status, outcome.reason) == ("waived", "it is the constant")
    assert main(["check", "constant", "--only", "beats_the_constant"]) == 0
    assert "waived beats_the_constant: it is the constant" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"shapes_are_rigth": "never mind"}, "unknown check waived by honest 'shapes_are_rigth'; did you mean 'shapes_are_right'?"),
        ({"shapes_are_right": " "}, "honest waives 'shapes_are_right' without a reason"),
        (["shapes_are_right"], "must be a dictionary {check: reason}"),
    ],
)
def test_a_waiver_that_says_nothing_is_refused(given: Any, sentence: str) -> None:
    class Careless(breaches.Honest):  # type: ignore[misc]
        waivers: ClassVar[Any] = given

    with pytest.raises(UsageError, match=re.escape(sentence)):
        check_method(Careless(), "shapes_are_right")


def test_a_method_is_checked_by_module_and_class_with_options() -> None:
    check_method("fsibench.methods.bbb:BBB[hidden_units=3]", "shapes_are_right")
    wrong: Any = dict
    with pytest.raises(UsageError, match="expected a Method, its class or its name"):
        check_method(wrong, "shapes_are_right")


def test_all_failures_are_told_at_once_with_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "TRAINING_SECONDS", 0.1)
    with pytest.raises(CheckFailed) as caught:
        check_method(breaches.YieldsNone)
    text = str(caught.value)
    assert "yields_a_posterior: fit yielded None" in text
    assert "Hint: yield an object with `predict(x, generator)`" in text


def test_the_command_shows_reason_and_hint_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{SUPPORT / 'odd_methods.py'}:NegativeScale", "--only", "shapes_are_right"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED shapes_are_right: the prediction for 1 rows has a negative scale; it must be positive\n       hint: predict re" in shown
    assert main(["check", "linear", "--only", "no_such"]) == 2
    assert main(["check", "linear", "--limit", "-1"]) == 2


def test_a_plugin_tests_itself_with_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "from fsibench.testing import check_method, check_names\n"
        "@pytest.mark.parametrize('check', check_names())\n"
        "def test_contract(check):\n"
        "    check_method('fsibench.methods.linear:Linear', check)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    shown = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path).stdout
    assert f"{len(check_names())} passed" in shown
