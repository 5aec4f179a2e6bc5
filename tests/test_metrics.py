"""Every metric against a closed form or an independent library, and metrics of plugins from file to store."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import properscoring
import pytest
import scoringrules
import torch
from scipy import integrate, stats
from torch import Tensor

from fsibench import metrics, scoring
from fsibench.errors import Diverged, UsageError
from fsibench.metrics import Metric, Prediction
from fsibench.predictive import Predictive


def gaussian(num_points: int = 4000, scale: float = 1.0, seed: int = 0) -> tuple[Predictive, Tensor]:
    """Forecasts N(μ_n, scale²) of targets that are N(μ_n, 1)."""
    generator = torch.Generator().manual_seed(seed)
    mean = 2.0 * torch.randn(num_points, generator=generator, dtype=torch.float64)
    y = mean + torch.randn(num_points, generator=generator, dtype=torch.float64)
    return Predictive(mean[None], torch.full((1, num_points), scale, dtype=torch.float64)), y


def mixture(seed: int = 0) -> tuple[Predictive, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(7, 50, generator=generator, dtype=torch.float64)
    scale = 0.3 + torch.rand(7, 50, generator=generator, dtype=torch.float64)
    return Predictive(loc, scale), torch.randn(50, generator=generator, dtype=torch.float64)


def test_interval_scores_agree_with_scoringrules() -> None:
    predictive, y = mixture()
    prediction = Prediction(predictive, y)
    for coverage in (0.5, 0.9):
        alpha = 1.0 - coverage
        low, high = (predictive.quantile(level).numpy() for level in (alpha / 2, 1.0 - alpha / 2))
        expected = scoringrules.interval_score(y.numpy(), low, high, alpha).mean()
        assert scoring.interval_score(prediction.quantiles, y, coverage) == pytest.approx(expected, rel=1e-9)


def test_pinball_agrees_with_scoringrules() -> None:
    predictive, y = mixture()
    quantiles = Prediction(predictive, y).quantiles
    losses = [scoringrules.quantile_score(y.numpy(), quantiles[t].numpy(), t).mean() for t in scoring.MIDPOINTS]
    assert scoring.pinball(quantiles, y) == pytest.approx(np.mean(losses), rel=1e-9)


def test_twice_the_pinball_loss_approximates_the_crps() -> None:
    predictive, y = gaussian()
    prediction = Prediction(predictive, y)
    first = prediction.first
    crps = properscoring.crps_gaussian(first.y.numpy(), first.predictive.loc[0].numpy(), 1.0).mean()
    assert 2.0 * scoring.pinball(prediction.quantiles, prediction.first.y) == pytest.approx(crps, rel=0.01)


def test_tail_weighted_crps_agrees_with_quadrature_over_levels() -> None:
    predictive = Predictive(torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    y = torch.tensor([0.8], dtype=torch.float64)

    def integrand(level: float) -> float:
        q = stats.norm.ppf(level)
        return float(2.0 * ((y.item() < q) - level) * (q - y.item()) * (2.0 * level - 1.0) ** 2)

    exact = integrate.quad(integrand, 1e-9, 1 - 1e-9, points=[stats.norm.cdf(0.8)], limit=200)[0]
    assert scoring.tail_weighted_crps(Prediction(predictive, y).quantiles, y) == pytest.approx(exact, rel=0.06)


def test_calibration_error_vanishes_for_the_true_distribution_and_not_for_a_narrow_one() -> None:
    assert scoring.calibration_error(Prediction(*gaussian()).pit) < 0.02
    narrow, y = gaussian(scale=0.5)
    expected = np.mean([abs((2 * stats.norm.cdf(0.5 * stats.norm.ppf(0.5 + c / 20)) - 1) - c / 10) for c in range(1, 10)])
    assert scoring.calibration_error(narrow.cdf(y)) == pytest.approx(expected, abs=0.02)


def test_parts_of_the_crps_add_up_to_the_crps() -> None:
    predictive, y = gaussian(800, scale=0.6)
    parts = scoring.crps_parts(predictive, y)
    crps = properscoring.crps_gaussian(y.numpy(), predictive.loc[0].numpy(), 0.6).mean()
    assert parts.miscalibration - parts.discrimination + parts.uncertainty == pytest.approx(crps, rel=1e-9)
    spread = 0.5 * np.abs(y.numpy()[:, None] - y.numpy()[None]).mean()
    assert parts.uncertainty == pytest.approx(spread, rel=1e-9)


def test_only_a_miscalibrated_forecast_has_much_miscalibration() -> None:
    calibrated, narrow = (scoring.crps_parts(*gaussian(1500, scale=scale)) for scale in (1.0, 0.3))
    assert calibrated.miscalibration < 0.25 * narrow.miscalibration
    assert narrow.discrimination == pytest.approx(calibrated.discrimination, rel=0.05)


def test_a_constant_forecast_discriminates_nothing() -> None:
    _, y = gaussian(500)
    constant = Predictive(torch.zeros(1, 500, dtype=torch.float64), torch.full((1, 500), 2.2, dtype=torch.float64))
    assert scoring.crps_parts(constant, y).discrimination == pytest.approx(0.0, abs=1e-12)


def test_the_share_of_the_worst_points_is_near_one_for_a_single_outlier() -> None:
    typical = torch.full((200,), -1.0, dtype=torch.float64)
    outlier = typical.clone()
    outlier[7] = -500.0
    assert scoring.share_of_worst(outlier) == pytest.approx(1.0)
    assert scoring.share_of_worst(typical) == 0.0
    assert math.isnan(scoring.share_of_worst(torch.full((3,), math.nan)))


def test_joint_log_likelihood_is_exact_for_a_shared_offset() -> None:
    """f(x) = c for all x with c ~ N(0, 1), noise 0.5: the joint density of a group is a known Gaussian."""
    generator = torch.Generator().manual_seed(1)
    draws = torch.randn(20_000, 1, generator=generator, dtype=torch.float64).expand(-1, 10)
    y = 0.7 + 0.5 * torch.randn(10, generator=generator, dtype=torch.float64)
    variance = torch.full((10,), float(draws.var(0, correction=0)[0]) + 0.25, dtype=torch.float64)
    covariance = np.ones((10, 10)) + 0.25 * np.eye(10)
    expected = stats.multivariate_normal(np.zeros(10), covariance).logpdf(y.numpy()) / 10
    assert scoring.joint_log_likelihood(scoring.groups(draws, variance, y)) == pytest.approx(expected, abs=0.02)


def test_the_energy_score_agrees_with_scoringrules() -> None:
    generator = torch.Generator().manual_seed(2)
    draws = torch.randn(100, 30, generator=generator, dtype=torch.float64)
    y = torch.randn(30, generator=generator, dtype=torch.float64)
    groups = scoring.groups(draws, draws.var(0, correction=0), y)  # no noise beyond the draws
    assert groups.draws.shape == (3, 100, 10)
    fair = [scoringrules.es_ensemble(answer, sample, estimator="fair")
            for answer, sample in zip(groups.y.numpy(), groups.draws.numpy(), strict=True)]  # fmt: skip
    assert scoring.energy_score(groups) == pytest.approx(np.mean(fair), rel=1e-2)


def test_groups_hold_consecutive_rows_and_drop_the_rest() -> None:
    draws = torch.arange(23.0, dtype=torch.float64).repeat(4, 1)
    groups = scoring.groups(draws, torch.ones(23, dtype=torch.float64), draws[0])
    assert torch.equal(groups.y, torch.arange(20.0, dtype=torch.float64).reshape(2, 10))
    assert torch.equal(groups.draws[1, 3], groups.y[1])


def test_costly_metrics_wait_for_the_last_look() -> None:
    predictive, y = mixture()
    early, late = (metrics.score(Prediction(predictive, y), last) for last in (False, True))
    assert set(late) - set(early) >= {"interval90", "pinball", "crps_uncertainty"}
    assert {"rmse", "ll", "crps"} <= set(early)
    assert "joint_ll" not in late, "there were no draws"


def test_a_metric_that_does_not_exist_is_left_out_and_an_infinite_one_is_divergence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prediction = Prediction(*mixture())
    absent = Metric("odd", "odd", "", False, lambda _: math.nan)
    monkeypatch.setattr(metrics, "known", lambda: {"odd": absent})
    assert metrics.score(prediction) == {}
    infinite = Metric("odd", "odd", "", False, lambda _: math.inf)
    monkeypatch.setattr(metrics, "known", lambda: {"odd": infinite})
    monkeypatch.setattr(metrics, "METRICS", (infinite,))
    with pytest.raises(Diverged, match="odd is inf"):
        metrics.score(prediction)


def misspelt(prediction: Prediction) -> float:
    return float(prediction.truth.mean())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("compute", "reason"),
    [
        (misspelt, "AttributeError: 'Prediction' object has no attribute 'truth' (misspelt, line "),
        (lambda _: None, "it returned an object of type NoneType, not a number"),
        (lambda prediction: prediction.y, "it returned an object of type Tensor, not a number"),
        (lambda _: "high", "it returned an object of type str, not a number"),
        (lambda _: math.inf, "it is inf"),
    ],
)
def test_a_metric_of_a_plugin_that_fails_is_left_out_with_its_reason(
    compute: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {"odd": Metric("odd", "odd", "", False, compute), **metrics.known()}
    monkeypatch.setattr(metrics, "known", lambda: listed)
    faults: dict[str, str] = {}
    scores = metrics.score(Prediction(*mixture()), True, faults)
    assert {"rmse", "ll", "crps"} <= set(scores)
    assert "odd" not in scores
    assert reason in faults["odd"]
    assert f"the metric odd is left out: {reason}" in str(metrics.left_out(faults))


def test_a_number_in_a_tensor_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric("mean_answer", "mean answer", "", False, lambda prediction: prediction.y.mean())  # type: ignore[return-value]
    monkeypatch.setattr(metrics, "known", lambda: {"mean_answer": metric})
    prediction = Prediction(*mixture())
    assert metrics.score(prediction) == {"mean_answer": float(prediction.y.mean())}
    assert metrics.left_out({}) is None


@pytest.mark.parametrize("key", ["Rmse", "two words", "step", "seed", "predict_seconds", "1st", "x; DROP TABLE cells"])
def test_a_key_that_cannot_name_a_column_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="key"):
        Metric(key, "label", "", False, lambda _: 0.0)


def test_the_metric_list_loads_without_torch() -> None:
    program = "import sys; from fsibench import metrics; metrics.known(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_key_that_two_plugins_offer_is_used_for_none_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Metric("twice", "twice", "", False, lambda _: 0.0)
    once = Metric("once", "once", "", False, lambda _: 0.0)
    points = [SimpleNamespace(name=name, load=lambda value=value: value) for name, value in
              (("a", twice), ("b", twice), ("c", once), ("d", Metric("rmse", "mine", "", False, lambda _: 0.0)))]  # fmt: skip
    monkeypatch.setattr(metrics.importlib.metadata, "entry_points", lambda group: points)
    offered, faults = metrics._plugins.__wrapped__()
    assert offered == [once]
    assert set(faults) == {"twice", "rmse"}


PLUGIN = """
from fsibench.metrics import Metric

def median_error(prediction):
    return float((prediction.predictive.mean - prediction.y).abs().median())

def misspelt(prediction):
    return float(prediction.truth.mean())

METRICS = (
    Metric("median_error", "median error", "target", False, median_error, "median absolute error"),
    Metric("misspelt", "misspelt", "", False, misspelt, "fails"),
)
"""


@pytest.mark.slow
def test_a_metric_of_a_plugin_is_one_file_and_reaches_store_export_and_report(tmp_path: Path) -> None:
    package = tmp_path / "site"
    info = package / "my_metric-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "my_metric.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-metric\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsibench.metrics]\nmine = my_metric\nbad = no_such_module\n")
    environment = {"PYTHONPATH": str(package)}

    def command(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "fsibench", *words], cwd=tmp_path, env={**os.environ, **environment},
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip

    words = ("--methods", "constant,linear", "--datasets", "yacht", "--store", "s.sqlite", "--workers", "1")
    printed = command("run", "smoke", *words)
    assert "The metric misspelt is left out: AttributeError" in printed, "said once, in the text below the table"
    assert "(2 cells)" in printed
    assert "failed:" not in printed, "the methods are not to blame"
    ranked = command("report", "--terminal", "--metrics", "median_error", "--store", "s.sqlite")
    assert "median error" in ranked.splitlines()[0]
    command("export", "--store", "s.sqlite", "--out", "rows.csv")
    assert "median_error" in (tmp_path / "rows.csv").read_text().splitlines()[0]
    shown = command("list", "metrics")
    assert "median error" in shown
    assert "no_such_module" in shown, "a broken plugin is listed with its error"
