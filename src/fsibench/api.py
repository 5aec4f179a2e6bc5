"""The Python side: fit one method to your own table, and load results. Runs and reports: `fsibench.cli.calls`.

    model = fsibench.fit("sip[prior=ns]", X, y, seconds=10, seed=0)
    mean, sd = model.predict(X_new, return_std=True)

Inputs are numpy arrays, pandas frames, torch tensors or lists, in their own units; results are numpy arrays in the
units of y.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fsibench import options, registry
from fsibench.contract import Data, Meter, Method, Posterior
from fsibench.data import Floats, Standardiser
from fsibench.errors import UsageError
from fsibench.harness import export
from fsibench.harness.identity import derive_seed
from fsibench.harness.runner import ROWS_PER_DRAW, ROWS_PER_PREDICT, device_named, scalar_trace
from fsibench.harness.schedule import Schedule
from fsibench.harness.store import DEFAULT_STORE, Store
from fsibench.metrics import Prediction, left_out
from fsibench.metrics import score as all_scores
from fsibench.predictive import Predictive, concatenate
from fsibench.progress import Bar
from fsibench.scoring import MOST_ROWS, NUM_JOINT_DRAWS

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_SECONDS = 10.0


def fit(
    method: str | Method | type[Method],
    X: Any,
    y: Any,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: bool | None = None,
) -> Model:
    """Fit a method to a table and return the fitted model.

    `method` is what `fsibench list methods` shows, with options: "bbb", "sip[prior=ns]", "./file.py:Class"; or a
    Method. It stops after `seconds` of training (10 unless told) or after `steps`; with steps, a seed and one thread
    the result repeats bit for bit. `progress` shows a bar: by default in terminals and notebooks.
    """
    chosen = _method(method)
    names, inputs = as_inputs(X)
    targets = as_targets(y, len(inputs))
    if seconds is None and steps is None:
        seconds = DEFAULT_SECONDS
    if not isinstance(seconds, Real | None) or not isinstance(steps, Integral | None) or isinstance(steps, bool):
        raise UsageError(f"seconds must be a number and steps a whole number; got {seconds!r} and {steps!r}.")
    if seconds is not None and math.isinf(seconds):
        raise UsageError("a fit ends after a finite number of seconds; write seconds=10 or steps=1000.")
    if not isinstance(seed, Integral):
        raise UsageError(f"seed must be a whole number; got {seed!r}.")
    standardiser = Standardiser.of(inputs, targets)
    place = device_named(device)
    train = Data(
        torch.from_numpy(standardiser.x(inputs)).to(place), torch.from_numpy(standardiser.y(targets)).to(place)
    )
    try:
        meter = Meter(seconds, steps)
    except ValueError as error:
        raise UsageError(f"{error}; write seconds=10 or steps=1000.") from None
    generator = torch.Generator(place).manual_seed(derive_seed("fit", seed))
    posterior, trace = _pull(chosen, train, meter, generator, Bar(chosen.name, progress))
    return Model(chosen, posterior, standardiser, train, names, trace, seed)


def _pull(
    method: Method, train: Data, meter: Meter, generator: torch.Generator, bar: Bar
) -> tuple[Posterior, list[dict[str, float]]]:
    schedule = Schedule(meter, per_decade=10)
    trace: list[dict[str, float]] = []
    posterior: Posterior | None = None
    with bar:
        for posterior in meter.pulls(method, train, generator):
            bar.show(meter.budget.fraction, f"{meter.steps_done} steps, {meter.elapsed:.1f} s")
            if schedule.due() or meter.exhausted:
                trace.append(_moment(meter, posterior))
    if posterior is None:
        raise UsageError(f"{method.name} ended without a posterior; `fit` must yield at least once.")
    if not trace or trace[-1]["step"] != meter.steps_done:
        trace.append(_moment(meter, posterior))
    return posterior, trace


def _moment(meter: Meter, posterior: Posterior) -> dict[str, float]:
    return {"step": meter.steps_done, "seconds": meter.elapsed, **scalar_trace(posterior)}


def _method(method: str | Method | type[Method]) -> Method:
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Method):
        return method()
    if isinstance(method, str):
        return registry.entry(method).method
    raise UsageError(f"method must be a name such as 'bbb', a Method or its class; got {type(method).__name__}.")


def as_inputs(X: Any) -> tuple[list[str] | None, Floats]:
    """Column names where there are any, and the inputs as float64 [N, D]; one column may come flat."""
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    values = _numbers(X, "X")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not all(values.shape):
        raise UsageError(f"X must be a table of rows and columns; got shape {values.shape}.")
    return names, values


def as_targets(y: Any, num_rows: int) -> Floats:
    values = _numbers(y, "y")
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (num_rows,):
        raise UsageError(f"y must be one number for each of the {num_rows} rows of X; got shape {values.shape}.")
    return values


def _numbers(values: Any, name: str) -> Floats:
    if values is None or hasattr(values, "toarray"):
        raise UsageError(f"{name} must be an array, a frame or a list; got {'None' if values is None else f'a sparse one: {name}.toarray()'}.")
    if isinstance(values, Tensor):
        values = values.detach().cpu().resolve_conj().numpy() if values.is_complex() else values.detach().cpu().double().numpy()
    if _holds_dates(values):
        raise UsageError(f"{name} must hold numbers only; encode dates first, for example as days since the first one.")
    try:
        if np.iscomplexobj(values):
            raise UsageError(f"{name} must hold real numbers; got complex ones.")
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)  # as an ordinary array it would show what is masked
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must hold numbers only ({error}); encode text and dates first.") from None
    if not np.isfinite(numbers).all():
        raise UsageError(f"{name} holds {int((~np.isfinite(numbers)).sum())} missing or infinite values; fill or drop them.")
    return numbers


def _holds_dates(values: Any) -> bool:
    """Whether an array or a column of a frame holds dates or times, which numpy would turn into nanoseconds without a word."""
    dtypes = [values.dtype] if hasattr(values, "dtype") else list(getattr(values, "dtypes", ()))
    return any(getattr(dtype, "kind", "") in ("m", "M") for dtype in dtypes)


def _require_count(value: int, name: str) -> None:
    if not isinstance(value, Integral) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1; got {value!r}.")


class Model:
    """A fitted method in the units of the table that it was fitted to. Equal calls give equal answers."""

    def __init__(
        self,
        method: Method,
        posterior: Posterior,
        standardiser: Standardiser,
        train: Data,
        columns: list[str] | None,
        trace: list[dict[str, float]],
        seed: int,
    ) -> None:
        self.method = method
        self.posterior = posterior
        self.columns = columns
        self._standardiser = standardiser
        self._train = train
        self._trace = trace
        self._seed = seed

    def __repr__(self) -> str:
        last = self._trace[-1]
        return f"<fsibench model {self.entry}: {last['step']:.0f} steps, {last['seconds']:.3g} s>"

    @property
    def entry(self) -> str:
        """The method with its options, as `fsibench run` names it."""
        return options.label(self.method.name, options.changed(self.method))

    @property
    def trace(self) -> pd.DataFrame:
        """What the method told on the way (loss, noise, ...), by step and training seconds."""
        import pandas as pd

        return pd.DataFrame(self._trace)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of y at each row [N]; with `return_std` also its standard deviation, noise included."""
        predictive = self.predictive(X)
        mean = predictive.mean.numpy()
        return (mean, predictive.variance.sqrt().numpy()) if return_std else mean

    def predictive(self, X: Any) -> Predictive:
        """p(y | x) at each row, a `Predictive` in the units of y: log_prob, cdf, crps, quantile, sample."""
        x, generator = self._inputs(X), self._generator("predict")
        with torch.no_grad():
            parts = [self.posterior.predict(rows, generator) for rows in torch.split(x, ROWS_PER_PREDICT)]
        return concatenate(parts).double().rescale(self._standardiser.y_scale, self._standardiser.y_mean)

    def quantile(self, X: Any, levels: float | Sequence[float]) -> Floats:
        """Quantiles of y at each row [N, number of levels]; [N] for a single number."""
        numbers = _numbers(levels, "levels")
        wanted = torch.from_numpy(np.atleast_1d(numbers))
        if not wanted.numel() or not bool(((wanted > 0) & (wanted < 1)).all()):
            raise UsageError(f"quantile levels lie between 0 and 1; got {levels}.")
        quantiles: Floats = self.predictive(X).quantile(wanted).numpy().T
        return quantiles if numbers.ndim else quantiles[:, 0]

    def sample(self, X: Any, num_samples: int = 100) -> Floats:
        """Independent samples of y at each row, noise included [num_samples, N]."""
        _require_count(num_samples, "num_samples")
        generator = torch.Generator().manual_seed(derive_seed("sample", self._seed))  # a predictive is on the CPU
        samples: Floats = self.predictive(X).sample(num_samples, generator).numpy()
        return samples

    def draw(self, X: Any, num_draws: int = 100) -> Floats:
        """Whole functions at the rows, without noise [num_draws, N]."""
        _require_count(num_draws, "num_draws")
        with torch.no_grad():
            draws = self.posterior.draw(self._inputs(X), num_draws, self._generator("draw"))
        functions: Floats = draws.cpu().double().numpy() * self._standardiser.y_scale + self._standardiser.y_mean
        return functions

    def score(self, X: Any, y: Any) -> dict[str, float]:
        """Every metric that `fsibench list metrics` shows and that exists for these rows, in the units of y."""
        predictive = self.predictive(X)
        answers = torch.from_numpy(as_targets(y, predictive.num_points))
        faults: dict[str, str] = {}
        scores = all_scores(Prediction(predictive, answers, lambda: self._functions(X)), True, faults)
        if faults:
            warnings.warn(left_out(faults) or "", stacklevel=2)
        return scores

    def _functions(self, X: Any) -> Tensor:
        """Draws at the first rows for joint scores, [S, R]; coherent within each piece of rows."""
        rows = as_inputs(X)[1][:MOST_ROWS]
        pieces = [rows[start : start + ROWS_PER_DRAW] for start in range(0, len(rows), ROWS_PER_DRAW)]
        return torch.from_numpy(np.concatenate([self.draw(piece, NUM_JOINT_DRAWS) for piece in pieces], 1))

    def plot(self, x: Any = None, num_draws: int = 10, ax: Any = None) -> Any:
        """Bands of 50 and 90 %, functions and training rows, for one input; returns the matplotlib axes."""
        if self._train.num_inputs != 1:
            raise UsageError(f"plot is for tables with one input; this one has {self._train.num_inputs}.")
        from matplotlib import pyplot

        standard = self._standardiser
        rows = self._train.x[:, 0].cpu().double().numpy() * standard.x_scale[0] + standard.x_mean[0]
        if x is None:
            margin = 0.1 * (rows.max() - rows.min())
            x = np.linspace(rows.min() - margin, rows.max() + margin, 200)
        grid = np.sort(as_inputs(x)[1].reshape(-1))
        axes = pyplot.subplots()[1] if ax is None else ax
        low, lower, middle, upper, high = self.quantile(grid, (0.05, 0.25, 0.5, 0.75, 0.95)).T
        axes.fill_between(grid, low, high, color="C0", alpha=0.2, label="90 % of y")
        axes.fill_between(grid, lower, upper, color="C0", alpha=0.3, label="50 % of y")
        axes.plot(grid, self.draw(grid, num_draws).T, color="C1", alpha=0.5, linewidth=0.8)
        axes.plot(grid, middle, color="C0", label="median")
        axes.plot(rows, self._train.y.cpu().double().numpy() * standard.y_scale + standard.y_mean, "k.", markersize=3)
        axes.set_title(self.entry)
        axes.legend()
        return axes

    def _inputs(self, X: Any) -> Tensor:
        names, values = as_inputs(X)
        if values.shape[1] != self._train.num_inputs:
            raise UsageError(f"X has {values.shape[1]} columns; the model was fitted to {self._train.num_inputs}.")
        if names is not None and self.columns is not None and names != self.columns:
            raise UsageError(f"X has the columns {names}; the model was fitted to {self.columns}, in this order.")
        return torch.from_numpy(self._standardiser.x(values)).to(self._train.x.device)

    def _generator(self, purpose: str) -> torch.Generator:
        return torch.Generator(self._train.x.device).manual_seed(derive_seed(purpose, self._seed))


def load(store: str | Path = DEFAULT_STORE, curves: bool = False, table: str = "evaluations") -> pd.DataFrame:
    """Results as a tidy frame: one row per finished cell, or with `curves` one per look at it.

    Columns are those of `fsibench export --dictionary`, and so are the other tables: cells, options, pit, trace.
    """
    with Store.read(Path(store)) as opened:
        found = export.frame(opened, table)
    return found if curves or "final" not in found else found[found["final"].fillna(False)].reset_index(drop=True)
