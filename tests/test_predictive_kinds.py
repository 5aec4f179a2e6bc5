"""Weights, Student-t components and sample predictives against scipy, properscoring, scoringrules and quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import properscoring
import pytest
import scipy.integrate
import scipy.stats
import scoringrules
import torch

from fsibench import metrics
from fsibench.predictive import Predictive, SamplePredictive, concatenate

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=stream(seed), dtype=F64)


def mixture(S: int, df: float | torch.Tensor | None = None, weighted: bool = True, N: int = 5) -> Predictive:
    weights = torch.rand(S, N, generator=stream(3), dtype=F64) + 0.05 if weighted else None
    scale = 0.3 + torch.rand(S, N, generator=stream(1), dtype=F64)
    return Predictive(2.0 * normal(S, N), scale, weights, df)


def crps_by_quadrature(predictive: Predictive, y: float, point: int) -> float:
    """∫ (F(t) − 1{y ≤ t})² dt with the distribution function of scipy."""
    one = predictive.rows(slice(point, point + 1))
    loc, scale = one.loc[:, 0].numpy(), one.scale[:, 0].numpy()
    weights = np.full(len(loc), 1 / len(loc)) if one.weights is None else one.weights[:, 0].numpy()
    df = one.df
    family = scipy.stats.norm if not isinstance(df, torch.Tensor) else scipy.stats.t(df[:, 0].numpy())

    def squared_gap(t: float) -> float:
        return float((weights @ family.cdf((t - loc) / scale) - (y <= t)) ** 2)

    far = 20 if one.df is None else 2000
    pieces = [y - far, y - 30, *sorted({y - 5, *loc, y, y + 5}), y + 30, y + far]
    return sum(
        scipy.integrate.quad(squared_gap, a, b, limit=400)[0] for a, b in itertools.pairwise(pieces)
    )


DF = {"gaussian": None, "student": 4.0}


@pytest.mark.parametrize("family", DF)
@pytest.mark.parametrize("weighted", [True, False])
def test_crps_equals_its_definition(family: str, weighted: bool) -> None:
    predictive, y = mixture(4, DF[family], weighted), normal(5, seed=2)
    expected = [crps_by_quadrature(predictive, float(y[i]), i) for i in range(5)]
    assert predictive.crps(y).numpy() == pytest.approx(expected, abs=2e-6)


def test_crps_of_one_student_component_is_that_of_scoringrules() -> None:
    y, predictive = normal(30, seed=2), Predictive(normal(1, 30), 0.5 + normal(1, 30, seed=1).abs(), df=3.5)
    expected = scoringrules.crps_t(y.numpy(), 3.5, predictive.loc[0].numpy(), predictive.scale[0].numpy())
    assert predictive.crps(y).numpy() == pytest.approx(expected, rel=1e-9)


def test_the_integral_of_a_student_mixture_of_equal_parts_is_that_of_one_part() -> None:
    loc, scale = normal(1, 6), torch.tensor([[0.01, 0.1, 1.0, 3.0, 10.0, 100.0]], dtype=F64)
    y = normal(6, seed=4)
    for df in (2.2, 5.0, 50.0):
        one, two = Predictive(loc, scale, df=df), Predictive(loc.expand(2, 6), scale.expand(2, 6), df=df)
        torch.testing.assert_close(two.crps(y), one.crps(y), rtol=1e-7, atol=0.0)


@pytest.mark.parametrize("method", ["pairs", "integral"])
def test_both_ways_to_a_weighted_crps_agree(method: str) -> None:
    predictive, y = mixture(40), normal(5, seed=2)
    torch.testing.assert_close(predictive.crps(y, method), predictive.crps(y), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("family", DF)
def test_equal_weights_given_are_those_not_given(family: str) -> None:
    plain, y = mixture(6, DF[family], weighted=False), normal(5, seed=2)
    same = Predictive(plain.loc, plain.scale, torch.full((6,), 3.0), plain.df)
    for each in ("log_prob", "cdf", "crps"):
        torch.testing.assert_close(getattr(same, each)(y), getattr(plain, each)(y))
    torch.testing.assert_close(same.variance, plain.variance)
    torch.testing.assert_close(same.quantile(0.3), plain.quantile(0.3))


@pytest.mark.parametrize("family", DF)
def test_density_distribution_and_moments_are_those_of_scipy(family: str) -> None:
    predictive, y = mixture(5, DF[family]), normal(5, seed=2)
    frozen = (scipy.stats.norm if family == "gaussian" else scipy.stats.t(DF[family]))
    z, w = ((y - predictive.loc) / predictive.scale).numpy(), predictive.weights.numpy()
    assert predictive.log_prob(y).numpy() == pytest.approx(np.log((w * frozen.pdf(z) / predictive.scale.numpy()).sum(0)))
    assert predictive.cdf(y).numpy() == pytest.approx((w * frozen.cdf(z)).sum(0))
    draws = predictive.sample(200_000, stream(9))
    assert predictive.mean.numpy() == pytest.approx(draws.mean(0).numpy(), abs=0.03)
    assert predictive.variance.numpy() == pytest.approx(draws.var(0).numpy(), rel=0.06)


@pytest.mark.parametrize("family", DF)
def test_quantiles_invert_the_distribution_function(family: str) -> None:
    predictive = mixture(7, DF[family])
    for level in (0.001, 0.3, 0.5, 0.99):
        torch.testing.assert_close(predictive.cdf(predictive.quantile(level)), torch.full((5,), level, dtype=F64))


@pytest.mark.parametrize("kind", ["gaussian", "student", "sample"])
def test_units_rows_and_pieces_keep_the_kind(kind: str) -> None:
    whole = SamplePredictive(normal(9, 5), normal(9).abs()) if kind == "sample" else mixture(9, DF[kind])
    y = normal(5, seed=2)
    torch.testing.assert_close(whole.rescale(3.0, -1.0).crps(3.0 * y - 1.0), 3.0 * whole.crps(y))
    joined = concatenate([whole.rows(slice(0, 2)), whole.rows(slice(2, 5))])
    assert type(joined) is type(whole)
    torch.testing.assert_close(joined.double().crps(y), whole.crps(y))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"weights": torch.tensor([1.0, -1.0])}, "not negative"),
        ({"weights": torch.zeros(2)}, "positive for one"),
        ({"df": 2.0}, "more than 2 degrees of freedom"),
    ],
)
def test_what_is_no_distribution_is_refused(arguments: dict[str, torch.Tensor], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Predictive(torch.zeros(2, 3), torch.ones(2, 3), **arguments)


# Values without a density --------------------------------------------------------------------------------------------


def test_crps_of_values_is_that_of_properscoring() -> None:
    values, y, weights = normal(50, 8), normal(8, seed=2), normal(50, 8, seed=1).abs()
    plain = properscoring.crps_ensemble(y.numpy(), values.T.numpy())
    weighted = properscoring.crps_ensemble(y.numpy(), values.T.numpy(), weights=weights.T.numpy())
    assert SamplePredictive(values).crps(y).numpy() == pytest.approx(plain, abs=1e-12)
    assert SamplePredictive(values, weights).crps(y).numpy() == pytest.approx(weighted, abs=1e-12)


def test_quantiles_of_values_are_numpys_inverted_distribution() -> None:
    values = normal(10, 6)
    for level in (0.05, 0.3, 0.5, 0.95):
        expected = np.quantile(values.numpy(), level, axis=0, method="inverted_cdf")
        assert SamplePredictive(values).quantile(level).numpy() == pytest.approx(expected)


def test_crps_of_quantiles_at_midpoints_is_twice_the_mean_pinball_loss() -> None:
    levels = (torch.arange(20, dtype=F64) + 0.5) / 20
    values, y = normal(20, 7).sort(0).values, normal(7, seed=2)
    pinball = (((y < values).double() - levels[:, None]) * (values - y)).mean(0)
    torch.testing.assert_close(SamplePredictive.from_quantiles(levels, values).crps(y), 2.0 * pinball)


def test_levels_that_do_not_increase_are_refused() -> None:
    with pytest.raises(ValueError, match="increasing level"):
        SamplePredictive.from_quantiles(torch.tensor([0.5, 0.2]), torch.zeros(2, 3))


def test_values_have_no_log_likelihood_and_all_other_scores() -> None:
    predictive, y = SamplePredictive(normal(30, 40)), normal(40, seed=2)
    scores = metrics.score(metrics.Prediction(predictive, y))
    assert not {"ll", "ll_worst"} & set(scores)
    assert {"rmse", "crps", "sharpness", "calibration", "interval90", "pinball"} <= set(scores)
    assert all(math.isfinite(value) for value in scores.values())
    assert predictive.fault() is None
