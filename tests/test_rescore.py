"""Kept predictives: small, close to the original, and enough to score an old store by a new metric."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import torch

from fsibench.cli import main
from fsibench.harness import predictives
from fsibench.harness.store import Store
from fsibench.metrics import Prediction, known
from fsibench.predictive import Predictive


def mixture(num_components: int) -> tuple[Predictive, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    loc = 20.0 + 5.0 * torch.randn(num_components, 80, generator=generator, dtype=torch.float64)
    y = 20.0 + 5.0 * torch.randn(80, generator=generator, dtype=torch.float64)
    return Predictive(loc, torch.full_like(loc, 2.0)), y


@pytest.mark.parametrize("num_components", [1, 20, 300])
def test_scores_of_a_kept_predictive_are_those_of_the_original_to_one_per_cent(num_components: int) -> None:
    predictive, y = mixture(num_components)
    kept, answers = predictives.restored(predictives.payload(predictive, y, 5.0, 20.0))
    assert torch.equal(answers, y)
    keys = ["rmse", "crps", "sharpness", "interval50"] + (["ll"] if num_components <= 40 else [])
    for key in keys:
        original, again = (known()[key].compute(Prediction(p, y)) for p in (predictive, kept))
        assert again == pytest.approx(original, rel=0.01), key


def test_a_store_is_scored_by_a_metric_that_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s.sqlite")
    words = ["run", "smoke", "--methods", "constant,linear", "--datasets", "yacht", "--store", store, "--workers", "1"]
    assert main([*words, "--keep", "predictives"]) == 0
    with sqlite3.connect(store) as connection:
        before = dict(connection.execute("SELECT cell, pinball FROM evaluations WHERE final"))
        connection.execute("UPDATE evaluations SET pinball = NULL")
    assert main(["rescore", "--store", store, "--metrics", "pinball,crps"]) == 0
    with Store.read(Path(store)) as opened:
        after = {cell: opened.final_scores(cell) for cell in before}
    assert {cell: scores["pinball"] for cell, scores in after.items()} == pytest.approx(before, rel=0.01)
    assert "2 values filled in for 2 cells" in capsys.readouterr().err, "crps was there and is not touched"


def test_a_store_without_predictives_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s.sqlite")
    Store.create(Path(store)).close()
    assert main(["rescore", "--store", store]) == 2
    assert "--keep predictives" in capsys.readouterr().err
