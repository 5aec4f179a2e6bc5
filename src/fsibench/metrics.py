"""The metric list. Scores, store columns, exports and reports read it, so a metric is one entry here or in a plugin.

A metric is one number of a predictive distribution on test rows, in the target's own units. Metrics of other packages
come from the entry-point group `fsibench.metrics`; its value is a Metric or a module with a tuple METRICS.

This module loads without torch, so that reports can read the list.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fsibench import scoring
from fsibench.errors import Diverged, FsibenchError, UsageError, told

if TYPE_CHECKING:
    from torch import Tensor

    from fsibench.predictive import Predictive
    from fsibench.references import Reference


@dataclass(frozen=True)
class Prediction:
    """What a metric sees, in float64 and in the target's own units.

    `predictive` is p(y | x) at each test row, `y` [N] are the answers. `functions` gives coherent draws f_s at the
    first R rows, noise not included, [S, R]; it is None where there are none. `reference` is the exact posterior of these
    rows under a stated prior, for the few problems where it is known.
    """

    predictive: Predictive
    y: Tensor
    functions: Callable[[], Tensor] | None = None
    reference: Reference | None = None

    @functools.cached_property
    def log_density(self) -> Tensor:
        """log p(y | x) at each test row, [N]."""
        return self.predictive.log_prob(self.y)

    @functools.cached_property
    def pit(self) -> Tensor:
        """Probability integral transforms F(y) at each test row, [N]."""
        return self.predictive.cdf(self.y)

    @functools.cached_property
    def first(self) -> Prediction:
        """The first test rows (their order is random), for metrics whose cost would grow with all of them."""
        if len(self.y) <= scoring.MOST_ROWS:
            return self
        rows = slice(0, scoring.MOST_ROWS)
        return Prediction(self.predictive.rows(rows), self.y[rows])

    @functools.cached_property
    def crps(self) -> Tensor:
        """CRPS of every row, [N]."""
        return self.predictive.crps(self.y)

    @functools.cached_property
    def quantiles(self) -> Mapping[float, Tensor]:
        """Predictive quantiles of the first rows at `scoring.LEVELS`, computed once for all metrics that need them."""
        values = self.first.predictive.quantile(scoring.levels())
        return dict(zip(scoring.LEVELS, values, strict=True))

    @functools.cached_property
    def crps_parts(self) -> scoring.CrpsParts:
        return scoring.crps_parts(self.first.predictive, self.first.y)

    @functools.cached_property
    def groups(self) -> scoring.Groups | None:
        """Draws and answers in groups of test rows, for scores of joint predictions."""
        if self.functions is None:
            return None
        draws = self.functions()
        rows = slice(0, draws.shape[1])
        return scoring.groups(draws, self.predictive.variance[rows], self.y[rows])


@dataclass(frozen=True)
class Metric:
    """One number of a prediction.

    `unit` is `target` (the target's own), `nats`, or empty for a pure number. `headline` metrics are ranked and lead
    every table. `looks` says when it is computed: at every look, or at the last one only because it is costly; such
    metrics use at most the first `scoring.MOST_ROWS` test rows.
    `compute` returns nan where the metric does not exist, for example a density of a sample predictive.
    """

    key: str
    label: str
    unit: Literal["target", "nats", ""]
    larger_is_better: bool
    compute: Callable[[Prediction], float]
    meaning: str = ""
    headline: bool = False
    looks: Literal["every", "last"] = "every"

    def __post_init__(self) -> None:
        require_key(self.key)


# Columns of the store's table of evaluations that are no metrics.
RESERVED_KEYS = frozenset(
    {"cell", "step", "num_rows", "train_seconds", "wall_seconds", "cpu_seconds", "pit", "trace", "final"}
)
# Columns of cells, which stand beside metrics in exports.
CELL_KEYS = frozenset({
    *("id", "run", "entry", "method", "options", "note", "reproduces", "variant"),
    *("dataset", "scheme", "split", "seed", "budget", "clock", "device", "keep"),
    *("status", "message", "traceback", "attempts", "flags", "worker", "started", "finished", "contended"),
})


def require_key(key: str) -> None:
    """A key names a column of the store and of exports."""
    if not re.fullmatch("[a-z][a-z0-9_]{0,40}", key):
        raise UsageError(f"a metric's key must be a short name of a-z, 0-9 and _, since it names a column; got {key!r}.")
    if key in RESERVED_KEYS | CELL_KEYS or key.endswith(("_seconds", "_rows")):
        raise UsageError(f"the metric key {key!r} is taken by a column of the store; choose another.")


METRICS: tuple[Metric, ...] = (
    Metric(
        "rmse", "RMSE", "target", False,
        lambda p: float((p.predictive.mean - p.y).square().mean().sqrt()),
        "root mean squared error of the predictive mean", headline=True,
    ),
    Metric(
        "ll", "LL", "nats", True,
        lambda p: float(p.log_density.mean()),
        "mean log density of the test targets", headline=True,
    ),
    Metric(
        "crps", "CRPS", "target", False,
        lambda p: float(p.crps.mean()),
        "continuous ranked probability score", headline=True,
    ),
    Metric(
        "sharpness", "sharpness", "target", False,
        lambda p: float(p.predictive.variance.sqrt().mean()),
        "mean standard deviation of the predictive; smaller is sharper, not better by itself",
    ),
    Metric(
        "calibration", "calibration error", "", False,
        lambda p: scoring.calibration_error(p.pit),
        "mean distance between nominal and observed coverage of central intervals",
    ),
    Metric(
        "interval50", "interval score 50 %", "target", False,
        lambda p: scoring.interval_score(p.quantiles, p.first.y, 0.5),
        "width of the central 50 % interval plus a penalty for misses", looks="last",
    ),
    Metric(
        "interval90", "interval score 90 %", "target", False,
        lambda p: scoring.interval_score(p.quantiles, p.first.y, 0.9),
        "width of the central 90 % interval plus a penalty for misses", looks="last",
    ),
    Metric(
        "pinball", "pinball loss", "target", False,
        lambda p: scoring.pinball(p.quantiles, p.first.y),
        "mean pinball loss over 20 equally spaced levels; twice it approximates the CRPS", looks="last",
    ),
    Metric(
        "crps_tails", "tail CRPS", "target", False,
        lambda p: scoring.tail_weighted_crps(p.quantiles, p.first.y),
        "CRPS with quantile weight (2τ − 1)², which stresses both tails", looks="last",
    ),
    Metric(
        "ll_worst", "LL lost in the worst 1 %", "", False,
        lambda p: scoring.share_of_worst(p.log_density),
        "share of all deviation from the median log density that the worst 1 % of points cause",
    ),
    Metric(
        "crps_miscalibration", "CRPS: miscalibration", "target", False,
        lambda p: p.crps_parts.miscalibration,
        "part of the CRPS that recalibrating each threshold removes", looks="last",
    ),
    Metric(
        "crps_discrimination", "CRPS: discrimination", "target", True,
        lambda p: p.crps_parts.discrimination,
        "how much better the recalibrated forecast is than the test targets' own distribution", looks="last",
    ),
    Metric(
        "crps_uncertainty", "CRPS: uncertainty", "target", False,
        lambda p: p.crps_parts.uncertainty,
        "CRPS of the test targets' own distribution, the same for every method", looks="last",
    ),
    Metric(
        "joint_ll", "joint LL", "nats", True,
        lambda p: math.nan if p.groups is None else scoring.joint_log_likelihood(p.groups),
        "log density of groups of 10 test points under coherent draws plus noise, per point", looks="last",
    ),
    Metric(
        "energy", "energy score", "target", False,
        lambda p: math.nan if p.groups is None else scoring.energy_score(p.groups),
        "energy score of groups of 10 test points from coherent draws plus noise", looks="last",
    ),
)  # fmt: skip


def _from_truth(key: str, label: str, meaning: str, distance: str, looks: Literal["every", "last"]) -> tuple[Metric, Metric]:
    """One distance from the exact posterior, on test rows inside and outside the training data."""

    def compute(inside: bool) -> Callable[[Prediction], float]:
        def value(p: Prediction) -> float:
            if p.reference is None or len(p.y) != len(p.reference.inside):
                return math.nan
            from fsibench.references import distances

            rows = distances.rows_of(p.reference, inside)
            if distance == "energy_distance":
                return math.nan if p.functions is None else distances.energy_distance(p.functions(), p.reference, rows)
            return float(getattr(distances, distance)(p.predictive, p.reference, rows))

        return value

    unit: Literal["nats", ""] = "nats" if distance == "divergence" else ""
    return (
        Metric(f"truth_{key}", label, unit, False, compute(True), f"{meaning}; test rows inside the data", looks=looks),
        Metric(
            f"truth_{key}_outside", f"{label}, outside", unit, False, compute(False),
            f"{meaning}; test rows outside the data", looks=looks,
        ),
    )  # fmt: skip


METRICS += (
    *_from_truth(
        "w2", "W2 to truth", "Wasserstein-2 distance of the marginals of y from the exact ones, in sds of the target",
        "wasserstein", "every",
    ),
    *_from_truth("kl", "KL from truth", "KL(exact ‖ predicted) of the marginals of y", "divergence", "every"),
    *_from_truth("mean", "mean off truth", "RMS error of the predictive mean against the exact one, in sds of the target", "mean_error", "every"),
    *_from_truth("sd", "sd off truth", "RMS error of the predictive sd against the exact one, in sds of the target", "sd_error", "every"),
    *_from_truth(
        "energy", "energy distance to truth", "energy distance of joint draws of functions from the exact ones, per root of the rows",
        "energy_distance", "last",
    ),
)  # fmt: skip


@functools.cache
def known() -> Mapping[str, Metric]:
    """Every metric by key: the built-in ones, then those of installed plugins."""
    return {metric.key: metric for metric in (*METRICS, *_plugins()[0])}


def headline() -> tuple[Metric, ...]:
    """The metrics that are ranked and lead every table."""
    return tuple(metric for metric in known().values() if metric.headline)


def broken() -> Mapping[str, str]:
    """Entry points that offer no metric, with the reason."""
    return _plugins()[1]


@functools.cache
def _plugins() -> tuple[list[Metric], dict[str, str]]:
    """Metrics of plugins, and what is wrong with the others; a key that is offered twice is used for none of them."""
    offered: list[Metric] = []
    faults: dict[str, str] = {}
    for point in importlib.metadata.entry_points(group="fsibench.metrics"):
        try:
            offered.extend(_metrics_in(point.load()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a plugin may fail in any way)
            faults[point.name] = f"{type(error).__name__}: {error}"
    counts = Counter(metric.key for metric in (*METRICS, *offered))
    faults |= {key: "the key is offered twice; rename or remove one of them" for key, n in counts.items() if n > 1}
    return [metric for metric in offered if counts[metric.key] == 1], faults


def _metrics_in(value: Any) -> tuple[Metric, ...]:
    offered = (value,) if isinstance(value, Metric) else tuple(getattr(value, "METRICS", ()))
    if not offered or not all(isinstance(metric, Metric) for metric in offered):
        raise UsageError("it offers no fsibench.metrics.Metric; give a Metric, or a module with a tuple METRICS")
    return offered


def score(prediction: Prediction, last: bool = True, faults: dict[str, str] | None = None) -> dict[str, float]:
    """Metrics by key; an infinite value means that the method diverged. Those that do not exist are left out.

    So are metrics of plugins that fail; `faults` gets their keys with the reasons.
    """
    chosen = (metric for metric in known().values() if last or metric.looks == "every")
    values = {metric.key: value(metric, prediction, {} if faults is None else faults) for metric in chosen}
    for name, number in values.items():
        if math.isinf(number):
            raise Diverged(f"{name} is {number}")
    return {name: number for name, number in values.items() if not math.isnan(number)}


def value(metric: Metric, prediction: Prediction, faults: dict[str, str]) -> float:
    """The metric; nan where one of a plugin fails, with the reason in `faults`: a broken plugin breaks only itself."""
    if metric in METRICS:
        return metric.compute(prediction)
    try:
        number = _number(metric.compute(prediction))
    except (Diverged, MemoryError):
        raise  # of the method, whose draws a metric may ask for
    except NotANumber as error:
        faults[metric.key] = str(error)
    except Exception as error:  # noqa: BLE001 (a plugin may fail in any way)
        faults[metric.key] = told(error)
    else:
        return number
    return math.nan


def left_out(faults: Mapping[str, str]) -> str | None:
    """One sentence about metrics that failed, or None."""
    reasons = "; ".join(f"the metric {key} is left out: {reason}" for key, reason in sorted(faults.items()))
    return reasons or None


class NotANumber(FsibenchError):
    """A metric gave something else."""


def _number(result: Any) -> float:
    try:
        number = float(result)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor with several elements
        raise NotANumber(f"it returned an object of type {type(result).__name__}, not a number") from None
    if math.isinf(number):
        raise NotANumber(f"it is {number}")
    return number
