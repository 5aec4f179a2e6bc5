"""`fsibench.fit` and its model, runs and results from Python: in the user's own units, one sentence per mistake."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.sparse import csr_matrix

import fsibench
from fsibench import Budget, Data, Method, Posterior, registry
from fsibench.progress import Bar

mpl.use("Agg")
RNG = np.random.default_rng(0)
X = RNG.uniform(-50.0, 80.0, (150, 2))
Y = 1e4 + 30.0 * X[:, 0] - 10.0 * X[:, 1] + 200.0 * RNG.standard_normal(150)


@pytest.fixture(scope="module")
def model() -> fsibench.Model:
    return fsibench.fit("linear", X, Y, steps=1, progress=False)


def test_predictions_are_in_the_units_of_the_table(model: fsibench.Model) -> None:
    mean, sd = model.predict([[0.0, 0.0], [10.0, -10.0]], return_std=True)
    # Standard errors: 200 / sqrt(150) at the centre of the rows, a little more beside it.
    assert mean == pytest.approx([1e4, 1e4 + 400.0], abs=120.0)
    assert sd == pytest.approx([200.0, 200.0], rel=0.2)
    assert model.predict([[0.0, 0.0]]).shape == (1,)


def test_quantiles_samples_and_draws_agree_with_the_predictive(model: fsibench.Model) -> None:
    new = X[:5]
    mean, sd = model.predict(new, return_std=True)
    quantiles = model.quantile(new, [0.05, 0.5, 0.95])
    assert quantiles.shape == (5, 3)
    expected = stats.norm(mean[:, None], sd[:, None]).ppf([0.05, 0.5, 0.95])
    assert quantiles == pytest.approx(expected, rel=1e-5)  # predictions of the method itself are float32
    assert np.array_equal(model.quantile(new, 0.5), quantiles[:, 1])
    assert model.sample(new, 4000).std(0) == pytest.approx(sd, rel=0.1)
    draws = model.draw(new, 500)
    assert draws.shape == (500, 5)
    assert (draws.std(0) < 0.5 * sd).all()  # functions, without noise
    assert model.predictive(new).log_prob(torch.from_numpy(mean)).numpy() == pytest.approx(stats.norm(0, sd).logpdf(0))


def test_scores_are_those_of_the_harness(model: fsibench.Model) -> None:
    scores = model.score(X, Y)
    assert scores["rmse"] == pytest.approx(float(np.sqrt(np.mean((model.predict(X) - Y) ** 2))))
    assert {"ll", "crps", "calibration", "joint_ll", "energy"} <= set(scores)
    # A linear fit knows its function well: rows are almost independent, so that the joint density is that of each row.
    assert scores["joint_ll"] == pytest.approx(scores["ll"], abs=0.05)


@pytest.mark.parametrize(
    "convert",
    [np.asarray, torch.from_numpy, pd.DataFrame, lambda values: values.tolist()],
    ids=["numpy", "torch", "pandas", "lists"],
)
def test_tables_come_as_numpy_pandas_torch_or_lists(convert: Any, model: fsibench.Model) -> None:
    targets = pd.Series(Y) if convert is pd.DataFrame else convert(Y)
    again = fsibench.fit("linear", convert(X.copy()), targets, steps=1, progress=False)
    assert again.predict(convert(X.copy())) == pytest.approx(model.predict(X))


def test_steps_and_a_seed_repeat_bit_for_bit_and_another_seed_does_not() -> None:
    first, second, other = (
        fsibench.fit("bbb", X, Y, steps=20, seed=seed, progress=False).predict(X) for seed in (1, 1, 2)
    )
    assert (first == second).all()
    assert (first != other).any()


def test_a_fit_stops_after_its_seconds_and_keeps_a_trace() -> None:
    model = fsibench.fit("bbb[batch_size=20]", X, Y, seconds=0.4, progress=False)
    trace = model.trace
    assert list(trace.columns[:2]) == ["step", "seconds"]
    assert trace["seconds"].iloc[-1] >= 0.4
    assert trace["step"].is_monotonic_increasing
    assert "noise" in trace
    assert "<fsibench model bbb[batch_size=20]: " in repr(model)


def test_a_method_may_be_a_class_or_an_instance(model: fsibench.Model) -> None:
    for method in (type(model.method), model.method):
        assert fsibench.fit(method, X, Y, steps=1, progress=False).predict(X) == pytest.approx(model.predict(X))


def test_one_input_may_come_flat_and_is_plotted(model: fsibench.Model) -> None:
    flat = fsibench.fit("linear", X[:, 0], Y, steps=1, progress=False)
    axes = flat.plot()
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"90 % of y", "50 % of y", "median"}
    assert flat.plot(np.linspace(0, 1, 5), ax=axes) is axes
    with pytest.raises(fsibench.UsageError, match="plot is for tables with one input; this one has 2"):
        model.plot()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: fsibench.fit("liner", X, Y), "did you mean 'linear'"),
        (lambda: fsibench.fit(7, X, Y), "method must be a name such as 'bbb'"),
        (lambda: fsibench.fit("linear", X, Y[:-1]), "one number for each of the 150 rows of X; got shape (149,)"),
        (lambda: fsibench.fit("linear", X[None], Y), "X must be a table of rows and columns"),
        (lambda: fsibench.fit("linear", [["a"], ["b"]], [1, 2]), "X must hold numbers only"),
        (lambda: fsibench.fit("linear", X, np.where(Y > 1e4, np.nan, Y)), "missing or infinite values"),
        (lambda: fsibench.fit("linear", X, Y, seconds=-1), "a budget must be positive"),
        (lambda: fsibench.fit("linear", X, Y, seconds=1, steps=1), "exactly one of them"),
        (lambda: fsibench.fit("linear", X, Y, seconds="1"), "seconds must be a number and steps a whole number; got '1'"),
        (lambda: fsibench.fit("linear", X, Y, steps=1.5), "steps a whole number; got None and 1.5"),
        (lambda: fsibench.fit("linear", X, Y, steps=1, seed="a"), "seed must be a whole number; got 'a'"),
        (lambda: fsibench.fit("linear", X, Y, seconds=float("inf")), "a finite number of seconds"),
        (lambda: fsibench.fit("linear", X + 1j, Y), "X must hold real numbers"),
        (lambda: fsibench.fit("linear", None, Y), "X must be an array, a frame or a list; got None"),
        (lambda: fsibench.fit("linear", csr_matrix(X), Y), "X.toarray()"),
        (lambda: fsibench.fit("linear", [[1.0, 2.0], [3.0]], [1, 2]), "X must hold numbers only"),
        (lambda: fsibench.fit("linear", pd.DataFrame({"day": pd.date_range("2026-01-01", periods=150)}), Y), "encode dates first"),
        (lambda: fsibench.fit("linear", X, np.arange(150).astype("datetime64[D]")), "y must hold numbers only; encode dates"),
        (lambda: fsibench.fit("linear", X, pd.to_timedelta(np.arange(150), unit="h")), "y must hold numbers only; encode dates"),
        (lambda: fsibench.fit("linear", np.ma.masked_greater(X, 1.0), Y), "missing or infinite values"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).predict(X[:0]), "a table of rows and columns; got shape (0, 2)"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).quantile(X, []), "between 0 and 1"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).quantile(X, "low"), "levels must hold numbers only"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).sample(X, 0), "num_samples must be a whole number of at least 1"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).draw(X, 2.5), "num_draws must be a whole number of at least 1"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).predict(X[:, :1]), "X has 1 columns; the model was fitted to 2"),
        (lambda: fsibench.fit("linear", X, Y, steps=1).quantile(X, [1.5]), "between 0 and 1"),
        (
            lambda: fsibench.fit("linear", pd.DataFrame(X, columns=["a", "b"]), Y, steps=1).predict(
                pd.DataFrame(X, columns=["b", "a"])
            ),
            "the model was fitted to ['a', 'b'], in this order",
        ),
        (lambda: fsibench.run("smoke", metods=["linear"]), "did you mean 'methods'"),
        (lambda: fsibench.run("smokee"), "did you mean 'smoke'"),
        (lambda: fsibench.run("smoke", budget="5s", steps=3), "argument --steps: not allowed with argument --budget"),
        (lambda: fsibench.run("smoke", datasets=["table:mine?target=y"]), "there is no table 'mine' here; `fsibench.add_table"),
        (lambda: fsibench.load("absent.sqlite"), "there is no store"),
    ],
)
def test_every_mistake_is_one_sentence(call: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fsibench.UsageError) as caught:
        call()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**70, np.int64(3)])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    model = fsibench.fit("linear", X, Y, steps=1, seed=seed)
    assert np.array_equal(model.sample(X[:2], 3), model.sample(X[:2], 3))
    assert model.draw(X[:2], 3).shape == (3, 2)


def test_a_bar_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    fsibench.fit("bbb", X, Y, steps=30, progress=True)
    shown = capsys.readouterr().err
    assert "bbb [##############################] 100%  30 steps" in shown
    assert shown.endswith("\n")
    assert shown.startswith("\rbbb [                              ]   0%  before the first step")
    with Bar("nothing", shown=None) as bar:  # not a terminal
        bar.show(0.5, "")
    assert capsys.readouterr().err == ""


def test_a_bar_is_shown_in_a_notebook(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with Bar("mine") as bar:
        bar.show(1.0, "done")
    assert "mine [##############################] 100%  done" in capsys.readouterr().err


def test_other_units_give_the_same_model() -> None:
    """Inputs and targets are standardised, so that units cancel."""
    model = fsibench.fit("bbb", X, Y, steps=30, progress=False)
    other = fsibench.fit("bbb", 1000.0 * X + 5.0, 3.0 * Y - 7.0, steps=30, progress=False)
    assert other.predict(1000.0 * X + 5.0) == pytest.approx(3.0 * model.predict(X) - 7.0, abs=1e-3)
    there, here = other.score(1000.0 * X + 5.0, 3.0 * Y - 7.0), model.score(X, Y)
    assert there["crps"] == pytest.approx(3.0 * here["crps"], rel=1e-3)
    assert there["ll"] == pytest.approx(here["ll"] - math.log(3.0), abs=1e-3)


@dataclass(frozen=True)
class Interrupted(Method):
    """Somebody presses Ctrl-C in the third step."""

    name: ClassVar[str] = "interrupted"

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Posterior]:
        for step, posterior in enumerate(registry.entry("bbb").method.fit(train, budget, generator)):
            if step == 2:
                signal.raise_signal(signal.SIGINT)
            yield posterior


@pytest.fixture
def listening() -> Iterator[None]:
    """Python's own handler of Ctrl-C: a shell starts background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_ends_a_fit_and_the_line_of_its_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        fsibench.fit(Interrupted, X, Y, steps=30, progress=True)
    last = capsys.readouterr().err.rpartition("\r")[2]
    assert " 2 steps, " in last
    assert last.endswith("s\n")


def test_a_run_its_results_and_its_report_from_python(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    frame = fsibench.run("smoke", store=store, methods=["constant", "linear"], datasets=["yacht"], executor="inline")
    assert sorted(frame["entry"]) == ["constant", "linear"]
    assert frame["final"].dtype == "boolean"
    assert frame["final"].all()
    curves = fsibench.load(store, curves=True)
    assert len(curves[curves["final"]]) == len(frame) <= len(curves)
    assert set(fsibench.load(store, table="cells")["entry"]) == {"constant", "linear"}
    index = fsibench.report(store, out=tmp_path / "site", figures="none")
    assert "linear" in index.read_text()


def test_the_public_names_are_listed_and_cost_no_torch() -> None:
    assert {"fit", "run", "load", "report", "Method", "Predictive"} <= set(dir(fsibench)) == set(fsibench.__all__)
    assert all(getattr(fsibench, name) is not None for name in dir(fsibench))
    code = "import sys, fsibench; dir(fsibench); assert not {'torch', 'numpy', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
