"""The search: it finds what is good, spends what it was given, drops the bad early, and can be replayed."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fsibench.contract import Between
from fsibench.tuning import record
from fsibench.tuning.search import CONFIRMING_SPLIT, SCREENING_SETS, SHORT, Measured, Outcome, Request, Settings, search

optuna = pytest.importorskip("optuna")

SPACE = {"rate": Between(1e-4, 1.0, log=True), "width": (10, 20, 50), "depth": Between(1, 6)}
DEFAULTS = {"rate": 0.5, "width": 10, "depth": 1}
DATASETS = tuple("abcdefgh")


def merit(request: Request) -> float:
    """Best at rate 0.01, width 20, depth 3."""
    options = request.options
    distance = abs(math.log10(options["rate"]) + 2.0) / 2 + abs(options["depth"] - 3) / 10
    return float(1.0 - distance - (options["width"] != 20) / 4)


def run(
    settings: Settings, measure: Callable[[Request], Measured] = lambda request: Measured(merit(request), 1.0)
) -> tuple[Outcome, list[Request]]:
    steps, requests = search(SPACE, DEFAULTS, DATASETS, settings), []
    request = next(steps)
    while True:
        requests.append(request)
        try:
            request = steps.send(measure(request))
        except StopIteration as end:
            return end.value, requests


def test_the_best_point_is_approached_and_confirmed_on_another_split() -> None:
    outcome, _ = run(Settings(total_seconds=500, cell_seconds=1))
    best = outcome.best
    assert best.merit > 0.8
    assert (best.options["width"], len(best.merits)) == (20, 2 * len(DATASETS))
    assert [candidate.is_default for candidate in outcome.candidates].count(True) == 1


def test_the_first_trial_is_the_present_defaults() -> None:
    _, requests = run(Settings(total_seconds=50, cell_seconds=1))
    assert dict(requests[0].options) == DEFAULTS


@pytest.mark.parametrize("seconds", [60.0, 200.0, 400.0])
def test_every_method_gets_the_same_seconds(seconds: float) -> None:
    outcome, requests = run(Settings(total_seconds=seconds, cell_seconds=1))
    assert outcome.cpu_seconds == len(requests)
    assert 0.6 * seconds < outcome.cpu_seconds <= seconds + len(DATASETS)


def test_most_proposals_end_after_short_fits() -> None:
    settings = Settings(total_seconds=300, cell_seconds=1)
    outcome, requests = run(settings)
    assert {request.seconds for request in requests} == {SHORT, 1.0}
    assert {request.dataset for request in requests if request.seconds == SHORT} == set(DATASETS[:SCREENING_SETS])
    whole = [candidate for candidate in outcome.candidates if candidate.merits]
    assert 3 <= len(whole) < len(outcome.candidates) / 2
    assert sum(math.isinf(candidate.screened) for candidate in outcome.candidates) > len(outcome.candidates) / 4


def test_a_short_search_compares_and_confirms_one_other_point_all_the_same() -> None:
    outcome, _ = run(Settings(total_seconds=10, cell_seconds=1))
    confirmed = [candidate for candidate in outcome.candidates if len(candidate.merits) == 2 * len(DATASETS)]
    assert len(confirmed) == 2
    assert sum(candidate.is_default for candidate in confirmed) == 1


def test_what_shines_in_short_fits_only_is_not_taken() -> None:
    def hasty(request: Request) -> Measured:
        return Measured(2.0 if request.seconds == SHORT and request.options["depth"] == 6 else merit(request), 1.0)

    outcome, _ = run(Settings(total_seconds=500, cell_seconds=1), hasty)
    assert outcome.best.merit > merit(Request(DEFAULTS, "a", 0, 1.0))
    assert outcome.best.merit < 1.0


def test_the_defaults_stay_where_the_difference_is_noise() -> None:
    generator = random.Random(0)

    def noise(request: Request) -> Measured:
        return Measured(generator.gauss(0.5, 0.1), 1.0)

    kept = [run(Settings(total_seconds=300, cell_seconds=1, seed=seed), noise)[0].best.is_default for seed in range(12)]
    assert sum(kept) >= 7


def test_the_same_measurements_lead_to_the_same_search() -> None:
    settings = Settings(total_seconds=120, cell_seconds=1, seed=3)
    assert run(settings)[1] == run(settings)[1]
    assert run(settings)[1] != run(Settings(total_seconds=120, cell_seconds=1, seed=4))[1]


def test_a_lucky_first_look_does_not_win() -> None:
    """On the first split one bad region looks best; the confirming split shows what it is."""

    def lucky(request: Request) -> Measured:
        shines = request.split != CONFIRMING_SPLIT and request.options["depth"] == 6
        return Measured(1.5 if shines else merit(request), 1.0)

    outcome, _ = run(Settings(total_seconds=600, cell_seconds=1), lucky)
    confirmed = [candidate for candidate in outcome.candidates if len(candidate.merits) == 2 * len(DATASETS)]
    assert outcome.best in confirmed
    assert outcome.best.merit < 1.5


def test_the_record_is_toml_that_tells_what_was_searched() -> None:
    settings = Settings(total_seconds=200, cell_seconds=1)
    outcome, _ = run(settings)
    text = record.record("mine", SPACE, outcome, settings, DATASETS, "fsibench tune mine --total 200s")
    content = tomllib.loads(text)
    assert content["best"] == dict(outcome.best.options)
    assert content["before"] == DEFAULTS
    assert content["searched"] == {"rate": "0.0001 to 1, log", "width": "10, 20, 50", "depth": "1 to 6"}
    assert len(content["top"]) == 10
    assert content["top"][0]["merit"] == pytest.approx(outcome.best.merit, abs=1e-4)
    assert (content["seed"], content["command"]) == (0, "fsibench tune mine --total 200s")


def test_the_summary_of_all_records_tells_what_changed(tmp_path: Path) -> None:
    settings = Settings(total_seconds=300, cell_seconds=1)
    outcome, _ = run(settings)
    (tmp_path / "mine.toml").write_text(record.record("mine", SPACE, outcome, settings, DATASETS, "fsibench tune mine"))
    [[name, points, before, now, changed]] = record.summary(tmp_path)
    assert (name, points) == ("`mine`", str(len(outcome.candidates)))
    assert float(before) < float(now) == pytest.approx(outcome.best.merit, abs=1e-3)
    assert "width 10 → 20" in changed
