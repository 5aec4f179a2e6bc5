"""The metric is right, and its page is part of a report."""

from pathlib import Path

import torch

import fsibench
from fsibench.metrics import Prediction, known


def test_the_metric_is_the_median_of_absolute_errors() -> None:
    predictive = fsibench.Predictive(torch.zeros(1, 3).double(), torch.ones(1, 3).double())
    assert known()["median_error"].compute(Prediction(predictive, torch.tensor([1.0, -2.0, 9.0]).double())) == 2.0


def test_the_page_shows_the_metric(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    fsibench.run("smoke", store=store, methods=["constant", "linear"], datasets=["yacht"], executor="inline")
    index = fsibench.report(store, out=tmp_path / "site", figures="none")
    assert "<td>linear</td>" in (index.parent / "median-error.html").read_text(encoding="utf-8")
