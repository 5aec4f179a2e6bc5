"""Functions in numbers: a perfect predictive, a Gaussian one, a prior that learned and one that did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsibench.cli import main
from fsibench.reports.analysis.shapes import shape

X = np.linspace(-4.8, 4.8, 121)


def payload(two_modes: bool, gaussian: bool, learned: bool) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    loc = np.stack([10 * np.cos(X - 0.5), 10 * np.sin(X - 0.5)]) if two_modes else np.sin(X)[None]
    scale = np.ones_like(loc) if two_modes else 0.2 + np.abs(np.sin(X))[None]
    mean, deviation = loc.mean(0), np.sqrt((scale**2 + loc**2).mean(0) - loc.mean(0) ** 2)
    width = np.full_like(X, deviation.mean()) if gaussian else deviation
    component = generator.integers(len(loc), size=(400, len(X)))
    true = np.take_along_axis(loc, component, 0) + scale[0] * generator.normal(size=component.shape)
    samples = mean + deviation * generator.normal(size=component.shape) if gaussian else true
    return {
        "x": X.tolist(), "train_x": [-4.0, 4.0], "oracle": {"loc": loc.tolist(), "scale": scale.tolist()},
        "quantiles": {"0.05": (mean - 1.6 * width + 1e-3 * X).tolist(), "0.95": (mean + 1.6 * width).tolist()},
        "prior_draws": [(mean if learned else 0.1 * X + 3).tolist()], "samples": samples.tolist(), "inducing": None,
    }  # fmt: skip


def test_the_truth_has_width_where_noise_is_and_nothing_between_its_modes() -> None:
    found = shape(payload(two_modes=True, gaussian=False, learned=True))
    assert found["prior_r2"] == pytest.approx(1.0)
    assert found["width_r"] > 0.99
    assert found["between_modes"] < 0.02
    assert np.isnan(found["covered"])


def test_a_gaussian_falls_between_the_modes_and_an_untrained_prior_explains_nothing() -> None:
    found = shape(payload(two_modes=True, gaussian=True, learned=False))
    assert 0.3 < found["between_modes"] < 0.5
    assert found["prior_r2"] < 0.1
    flat = shape(payload(two_modes=False, gaussian=True, learned=True))
    assert abs(flat["width_r"]) < 0.2
    assert np.isnan(flat["between_modes"])


def test_inducing_inputs_that_spread_cover_the_range() -> None:
    looks = [{"train_seconds": float(t), "z": (np.linspace(-1, 1, 5) * min(t, 3)).tolist()} for t in range(1, 9)]
    found = shape({"x": X.tolist(), "train_x": [-4.0, 4.0], "oracle": None, "inducing": looks})
    assert found["covered"] == pytest.approx(6 / 8)
    assert found["moved"] == pytest.approx(np.abs(np.linspace(-2, 2, 5)).mean() / 8)
    assert found["moved_late"] == 0.0


def test_the_command_prints_them_and_says_where_there_are_none(full_store: Path, make_store: Any, capsys: Any) -> None:
    assert main(["shapes", "--store", str(full_store)]) == 0
    assert "heteroscedastic" in capsys.readouterr().out
    assert main(["shapes", "--store", str(make_store(entries=("bbb",), datasets={"yacht": 1.0}, splits=1))]) == 0
    assert "kept its functions" in capsys.readouterr().out
