"""The rows that a cell predicted worst."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fsibench import registry
from fsibench.data import Prepared, prepare
from fsibench.harness import hardest
from fsibench.metrics import Prediction, score
from fsibench.predictive import Predictive


def prediction_of(prepared: Prepared) -> Prediction:
    y = torch.from_numpy(prepared.test_y)
    return Prediction(Predictive(torch.zeros(1, len(y)).double(), torch.ones(1, len(y)).double()), y)


def test_the_worst_rows_are_those_farthest_from_a_standard_normal() -> None:
    prepared = prepare(registry.dataset("yacht"), "paper", 3)
    kept = hardest.payload(prediction_of(prepared), prepared)
    order = np.argsort(-np.abs(prepared.test_y), kind="stable")[: hardest.NUM_ROWS]
    assert kept["y"] == [float(f"{value:.5g}") for value in prepared.test_y[order]]
    assert kept["mean"] == [0.0] * hardest.NUM_ROWS
    assert kept["sd"] == [1.0] * hardest.NUM_ROWS
    assert sorted(kept["crps"], reverse=True) == kept["crps"]
    assert kept["x"] is None  # six inputs


def test_row_numbers_are_those_of_the_table() -> None:
    dataset = registry.dataset("yacht")
    prepared = prepare(dataset, "paper", 0)
    kept = hardest.payload(prediction_of(prepared), prepared)
    np.testing.assert_allclose(dataset.rows().y[kept["row"]], kept["y"], rtol=1e-4)  # type: ignore[attr-defined]


def test_fresh_draws_have_inputs_instead_of_row_numbers() -> None:
    prepared = prepare(registry.dataset("bimodal[num_train=50,num_test=4]"), "paper", 0)
    kept = hardest.payload(prediction_of(prepared), prepared)
    assert kept["row"] is None
    assert sorted(kept["place"]) == [0, 1, 2, 3]  # fewer test rows than are kept
    raw = prepared.test_x[kept["place"]] * prepared.standardiser.x_scale + prepared.standardiser.x_mean
    np.testing.assert_allclose(kept["x"], raw, rtol=1e-4)


def test_the_score_is_the_mean_of_what_the_rows_have() -> None:
    prepared = prepare(registry.dataset("yacht"), "paper", 0)
    prediction = prediction_of(prepared)
    assert score(prediction, last=False)["crps"] == float(prediction.predictive.crps(prediction.y).mean())
    worst = hardest.payload(prediction, prepared)["crps"][0]
    assert worst == float(f"{float(prediction.crps.max()):.5g}")


def test_every_cell_keeps_them(tmp_path: Path) -> None:
    from fsibench.cli import main
    from fsibench.harness.store import Store

    store = tmp_path / "a.sqlite"
    assert main(["run", "smoke", "--methods", "constant", "--store", str(store), "--workers", "1"]) == 0
    with Store.read(store) as opened:
        kept, cells = opened.artifacts("hardest"), opened.cells()
    assert set(kept) == set(cells["id"])
    assert all(1 <= len(item["place"]) <= hardest.NUM_ROWS for item in kept.values())
