"""A scikit-learn regressor around any method: works in `cross_validate`, `GridSearchCV` and pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fsibench.api import Model, fit
from fsibench.data import Floats

LARGEST_SEED = 2**31 - 1


class FunctionSpaceRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Bayesian regression by one of fsibench's methods.

    Parameters
    ----------
    method : what `fsibench list methods` shows, with options: "gp", "sip[prior=ns]", "./file.py:Class".
    seconds : training time; or give `steps`, with which equal seeds give equal results.
    steps : training steps; replaces `seconds`.
    random_state : seed, generator or None, as everywhere in scikit-learn.
    device : "cpu", "cuda" or "mps".
    """

    def __init__(
        self,
        method: str = "ensemble",
        seconds: float = 10.0,
        steps: int | None = None,
        random_state: Any = 0,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.seconds = seconds
        self.steps = steps
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> FunctionSpaceRegressor:
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        seed = int(check_random_state(self.random_state).randint(LARGEST_SEED))
        seconds = self.seconds if self.steps is None else None
        self.model_: Model = fit(
            self.method, X, column_or_1d(y), seconds=seconds, steps=self.steps, seed=seed, device=self.device,
            progress=False,
        )  # fmt: skip
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of y at each row; with `return_std` also the standard deviation, noise included."""
        checked = self._validated(X)
        return self.model_.predict(checked, return_std=return_std)

    def predict_quantiles(self, X: Any, levels: Any = (0.05, 0.5, 0.95)) -> Floats:
        """Quantiles of y at each row [N, number of levels]."""
        checked = self._validated(X)
        return self.model_.quantile(checked, levels)

    def sample_y(self, X: Any, n_samples: int = 1) -> Floats:
        """Samples of y [N, n_samples], as scikit-learn's Gaussian process has them."""
        checked = self._validated(X)
        return self.model_.sample(checked, n_samples).T

    def _validated(self, X: Any) -> Floats:
        check_is_fitted(self)
        checked: Floats = validate_data(self, X, dtype=np.float64, reset=False)
        return checked

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.steps is None
        return tags
