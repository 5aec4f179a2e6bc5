"""fsibench: function-space inference methods compared by their predictive distributions against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsibench.api import Model, fit, load
    from fsibench.cli.calls import report, run
    from fsibench.contract import Budget, Data, Meter, Method, Posterior
    from fsibench.data.sources.adding import add_table
    from fsibench.errors import Diverged, UsageError
    from fsibench.predictive import Predictive, SamplePredictive

__version__ = "0.1.0"
__all__ = [
    "Budget",
    "Data",
    "Diverged",
    "Meter",
    "Method",
    "Model",
    "Posterior",
    "Predictive",
    "SamplePredictive",
    "UsageError",
    "__version__",
    "add_table",
    "fit",
    "load",
    "report",
    "run",
]

_HOME = {
    "Budget": "contract",
    "Data": "contract",
    "Meter": "contract",
    "Method": "contract",
    "Posterior": "contract",
    "Predictive": "predictive",
    "SamplePredictive": "predictive",
    "Diverged": "errors",
    "UsageError": "errors",
    "add_table": "data.sources.adding",
    "Model": "api",
    "fit": "api",
    "load": "api",
    "report": "cli.calls",
    "run": "cli.calls",
}


def __getattr__(name: str) -> Any:
    """Public names on first use: `fsibench --help` must not wait for torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'fsibench' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fsibench.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
