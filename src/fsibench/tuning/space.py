"""Search spaces: what a method declares in `search`, as proposals of Optuna or as random draws."""

from __future__ import annotations

import math
from typing import Any

import torch

from fsibench.contract import Between, Method, Space
from fsibench.errors import UsageError


def space_of(method: type[Method]) -> Space:
    """What may be searched of a method; refused where it declares nothing."""
    if not method.search:
        raise UsageError(f"{method.name} declares nothing to search; give the class a `search` mapping of its options.")
    return method.search


def suggested(trial: Any, space: Space) -> dict[str, Any]:
    """A proposal of an Optuna trial."""
    return {name: _suggested(trial, name, values) for name, values in space.items()}


def _suggested(trial: Any, name: str, values: Between | tuple[Any, ...]) -> Any:
    if isinstance(values, tuple):
        return trial.suggest_categorical(name, values)
    if whole(values):
        return trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
    return rounded(trial.suggest_float(name, values.low, values.high, log=values.log))


def drawn(space: Space, generator: torch.Generator) -> dict[str, Any]:
    """A random point of the space."""
    return {name: _drawn(values, generator) for name, values in space.items()}


def _drawn(values: Between | tuple[Any, ...], generator: torch.Generator) -> Any:
    share = torch.rand((), generator=generator, device=generator.device).item()
    if isinstance(values, tuple):
        return values[min(int(share * len(values)), len(values) - 1)]
    low, high = (math.log(values.low), math.log(values.high)) if values.log else (values.low, values.high)
    value = low + share * (high - low)
    value = math.exp(value) if values.log else value
    return round(value) if whole(values) else rounded(value)


def whole(values: Between) -> bool:
    return isinstance(values.low, int) and isinstance(values.high, int)


def rounded(value: float) -> float:
    """Three digits: more would pretend to know more than a search can find out."""
    return float(f"{value:.3g}")


def described(values: Between | tuple[Any, ...]) -> str:
    """For people: `0.001 to 0.03, log` or `10, 25, 50`."""
    if isinstance(values, tuple):
        return ", ".join(map(str, values))
    return f"{values.low:g} to {values.high:g}{', log' if values.log else ''}"
