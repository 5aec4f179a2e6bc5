"""Seconds of unequal machines are never pooled silently; reading a large store stays cheap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fsibench.harness import environment
from fsibench.reports import terminal
from fsibench.reports.analysis import anytime, results
from fsibench.reports.analysis.overview import SECONDS, Overview

MakeStore = Callable[..., Path]


def test_seconds_of_unequal_machines_are_not_averaged_and_a_sentence_says_so(make_store: MakeStore) -> None:
    store = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2, calibrations={"bbb": 0.4})
    overview = Overview(results.load(store))
    assert overview.board[SECONDS].isna().all(axis=None)
    assert any("speeds differ by a factor of 4.0" in sentence for sentence in overview.caveats)
    assert overview.board["peak_memory_mb"].notna().all()
    text = terminal.render(store)
    assert "speeds differ by a factor of 4.0" in text
    assert next(line for line in text.splitlines() if line.startswith("bbb")).rstrip().endswith("-")


def test_seconds_of_machines_of_one_kind_are(make_store: MakeStore) -> None:
    store = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2, calibrations={"bbb": 0.12})
    overview = Overview(results.load(store))
    assert overview.board[SECONDS].notna().all(axis=None)
    assert not any("speeds differ" in sentence for sentence in overview.caveats)


def test_reports_and_runs_agree_on_what_one_kind_of_machine_is() -> None:
    assert results.SAME_SPEED == environment.SAME_SPEED


def test_a_data_set_alone_has_the_curves_it_has_among_others(full_store: Path) -> None:
    everything = results.load(full_store)
    whole = anytime.Anytime.per_dataset(everything, 12)
    for dataset in ("boston", "naval"):
        part = everything.take(np.flatnonzero(everything.cells["dataset"] == dataset))
        assert list(part.cells["id"]) == list(everything.cells["id"][everything.cells["dataset"] == dataset])
        for entry in ("vip", "constant"):
            rows = whole.groups[dataset, entry]
            np.testing.assert_array_equal(whole.band("crps", dataset, entry), anytime.quartiles(whole.values("crps")[rows]))


@pytest.mark.parametrize("kind", ["values", "known"])
def test_a_wide_table_tells_failures_from_absences(make_store: MakeStore, kind: str) -> None:
    from fsibench.reports.analysis import ranking

    store = make_store(
        entries=("bbb", "vip"), datasets={"boston": 9.0, "wine": 0.8}, splits=1,
        failures={("vip", "boston", 0): "diverged"}, missing={("vip", "wine")},
    )  # fmt: skip
    values, known = ranking.wide(results.load(store).table("crps"))
    expected = {"values": [[True, False], [True, False]], "known": [[True, True], [True, False]]}[kind]
    assert (values.notna() if kind == "values" else known).to_numpy().tolist() == expected
