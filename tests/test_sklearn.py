"""The scikit-learn regressor: scikit-learn's own checks, and its tools around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from fsibench.sklearn import FunctionSpaceRegressor

CHECKED = [FunctionSpaceRegressor("linear", steps=1), FunctionSpaceRegressor("bbb[batch_size=50]", steps=100)]


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


def test_predictions_are_those_of_bayesian_ridge() -> None:
    x, y = load_diabetes(return_X_y=True)
    ours = FunctionSpaceRegressor("linear", steps=1).fit(x, y)
    mean, sd = ours.predict(x[:20], return_std=True)
    theirs, their_sd = BayesianRidge(tol=1e-8, max_iter=2000).fit(x, y).predict(x[:20], return_std=True)
    assert mean == pytest.approx(theirs, abs=3.0)  # of a target with standard deviation 77
    assert sd == pytest.approx(their_sd, rel=0.03)
    assert ours.predict_quantiles(x[:3]).shape == (3, 3)
    assert ours.sample_y(x[:3], 5).shape == (3, 5)


def test_it_works_in_cross_validation_grids_and_pipelines() -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(-2, 2, (80, 1))
    y = x[:, 0] ** 2 + 0.1 * generator.standard_normal(80)
    pipeline = make_pipeline(PolynomialFeatures(2), FunctionSpaceRegressor("linear", steps=1))
    assert cross_validate(pipeline, x, y, cv=3)["test_score"].min() > 0.9
    grid = GridSearchCV(FunctionSpaceRegressor(steps=5), {"method": ["constant", "gp"]}, cv=2, error_score="raise").fit(x, y)
    assert grid.best_params_ == {"method": "gp"}
