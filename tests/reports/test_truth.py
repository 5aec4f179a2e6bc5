"""Distances from the posterior in reports: who stands apart, rank correlations, the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fsibench.reports.analysis import truth
from fsibench.reports.companions import agreement, distances, truth_finals
from fsibench.reports.pages.truth import content, figure


def finals(num_entries: int = 8, noise: float = 0.0) -> pd.DataFrame:
    """Entries whose LL and CRPS follow their distance, on three problems."""
    generator = np.random.default_rng(0)
    lines = []
    for problem in ("reference-a", "reference-b", "reference-c"):
        for index in range(num_entries):
            distance = 0.1 * (index + 1)
            blur = noise * generator.normal()
            lines.append({
                "dataset": problem, "entry": f"m{index}[prior=reference]" if index % 2 else f"m{index}", "cell": f"{problem}{index}",
                "train_seconds": 2.0, "ll": -distance + blur, "crps": distance + blur,
                **{f"truth_{name}{place}": distance for name in truth.DISTANCES for place in ("", "_outside")},
            })  # fmt: skip
    return pd.DataFrame(lines)


def test_entries_with_a_prior_of_their_own_stand_apart() -> None:
    table = truth.table(finals())
    assert table["same_prior"].sum() == 12
    first = table[table["dataset"] == "reference-a"]
    assert list(first["same_prior"]) == [True] * 4 + [False] * 4
    assert first["truth_w2"][:4].is_monotonic_increasing
    assert not truth.has_reference_prior("reference-like[hidden_units=20]", "reference-a")


@pytest.mark.parametrize(("prior", "problem", "same"), [("reference", "reference-a", True), ("reference_gp", "reference-gp-a", True),
                                                        ("reference", "reference-gp-a", False), ("reference_gp", "reference-a", False)])
def test_the_prior_must_be_that_of_the_problem(prior: str, problem: str, same: bool) -> None:
    assert truth.has_reference_prior(f"fvi[prior={prior},fit_prior=false]", problem) == same


def test_the_correlation_is_one_when_near_means_good() -> None:
    found = truth.correlations(truth.table(finals()))
    assert len(found) == 10
    for line in found:
        assert line.value == pytest.approx(1.0)
        assert line.low == pytest.approx(1.0)
        assert line.high == pytest.approx(1.0)
        assert (line.problems, line.entries) == (3, 8)


def test_the_correlation_is_spearmans_and_its_interval_holds_it() -> None:
    table = truth.table(finals(noise=0.3))
    line = truth.correlations(table)[0]
    expected = np.mean([stats.spearmanr(part["truth_w2"], -part["ll"])[0] for _, part in table.groupby("dataset")])
    assert line.value == pytest.approx(expected)
    assert -1.0 <= line.low < line.value < line.high <= 1.0


def test_equal_scores_have_no_correlation_and_raise_no_warning() -> None:
    same = finals()
    same["ll"] = 1.0
    line = truth.correlations(truth.table(same))[0]
    assert np.isnan(line.value)


def test_the_page_has_a_table_a_figure_and_the_agreement() -> None:
    values = finals()
    page = content(truth.table(values), values)
    assert [problem["name"] for problem in page["problems"]] == ["reference-a", "reference-b", "reference-c"]
    assert len(page["problems"][0]["same"]) == len(page["problems"][0]["own"]) == 4
    assert len(page["problems"][0]["figure"]["lines"]) == 8
    assert len(page["groups"][1]["lines"]) == 10
    assert figure(values.iloc[:0]) == {}


def test_published_distances_have_a_row_for_each_entry_the_same_prior_first() -> None:
    lines = distances(finals()).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == [*(f"`m{i}[prior=reference]`" for i in (1, 3, 5, 7)), *(f"`m{i}`" for i in (0, 2, 4, 6))]
    assert [cell.strip() for cell in lines[0].split("|")[2:-1]] == ["of the reference", *["0.20 / 0.20"] * 4]


def test_published_agreement_has_the_correlations_of_both_groups() -> None:
    lines = agreement(finals()).splitlines()[2:]
    assert len(lines) == 20
    assert "| prior of the reference | Wasserstein-2" in lines[0]
    assert lines[0].split("|")[4:6] == lines[10].split("|")[4:6], "one without blur orders every group alike"


def test_a_store_without_references_says_so(make_store: Callable[..., Path]) -> None:
    ends = truth_finals(make_store("none", entries=("bbb",), splits=1))
    assert distances(ends) == agreement(ends) == "No problem with a reference posterior was run."


def test_an_effect_that_entries_have_on_every_problem_does_not_average_out() -> None:
    # One entry's score is off by the same amount on every problem: more problems of the same entries do not narrow the interval.
    generator = np.random.default_rng(3)
    effect = generator.normal(size=12)

    def width(num_problems: int) -> float:
        rows = [
            {"dataset": f"reference-{problem:02}", "entry": f"m{index:02}", "truth_w2": 0.1 * index, "crps": 0.1 * index + 0.5 * effect[index], "ll": 0.0}
            for problem in range(num_problems)
            for index in range(12)
        ]
        found = {(line.distance, line.score): line for line in truth.correlations(pd.DataFrame(rows).assign(**dict.fromkeys(
            [f"truth_{name}" for name in truth.DISTANCES if name != "w2"], 0.0)))}  # fmt: skip
        return float(found["w2", "crps"].high - found["w2", "crps"].low)

    assert width(30) == pytest.approx(width(1), rel=0.1)
