"""Units are nobody's business: a table in other units gives the same scores in those units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fsibench
from fsibench import metrics
from fsibench.data import Floats
from fsibench.harness import runner
from fsibench.harness.events import Evaluation, Report
from fsibench.harness.plan import load_protocol, make_plan

RNG = np.random.default_rng(4)
X = RNG.standard_normal((240, 3))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * RNG.standard_normal(240)
OTHER_X, OTHER_Y = 1000.0 * X + 5.0, 3.0 * Y - 7.0


def in_first_units(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores of 3y − 7 as scores of y: lengths are divided by 3, log densities gain log 3."""
    units = {metric.key: metric.unit for metric in metrics.known().values()}
    change = {"target": lambda score: score / 3.0, "nats": lambda score: score + math.log(3.0), "": lambda score: score}
    return {key: change[units[key]](score) for key, score in scores.items()}


@pytest.mark.parametrize(("method", "steps"), [("linear", 1), ("gp", 20), ("laplace", 50), ("bbb", 200), ("sip", 30)])
def test_a_fit_in_other_units_has_the_same_scores(method: str, steps: int) -> None:
    first = fsibench.fit(method, X[:160], Y[:160], steps=steps, progress=False).score(X[160:], Y[160:])
    other = fsibench.fit(method, OTHER_X[:160], OTHER_Y[:160], steps=steps, progress=False).score(OTHER_X[160:], OTHER_Y[160:])
    assert in_first_units(other) == pytest.approx(first, rel=0.02, abs=0.02)
    assert first["rmse"] < 0.9 * float(Y.std())


def run(table: Path, x: Floats, y: Floats) -> Mapping[str, float]:
    """The last scores of a cell of the harness."""
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}).to_csv(table, index=False)
    content = {"methods": ["gp"], "datasets": [f"file:{table}?target=y"], "steps": 20}
    reports: list[Report] = []
    runner.run_cell(make_plan(load_protocol("smoke", content))[0], reports.append)
    return [report for report in reports if isinstance(report, Evaluation)][-1].scores


def test_a_cell_in_other_units_has_the_same_scores(tmp_path: Path) -> None:
    first, other = run(tmp_path / "first.csv", X, Y), run(tmp_path / "other.csv", OTHER_X, OTHER_Y)
    assert first["rmse"] != pytest.approx(other["rmse"], rel=0.5)
    assert in_first_units(other) == pytest.approx(first, rel=0.02, abs=0.02)
