"""Is the running harness the one on disk? Names the functions of the harness that something has replaced.

Every function that a module defines must still be one whose code comes from that module's file, and the clocks must
still be the interpreter's own.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any

# What turns a fit into scores, seconds and rows.
WATCHED = (
    *("fsibench.contract", "fsibench.metrics", "fsibench.scoring", "fsibench.registry"),
    *("fsibench.predictive.mixture", "fsibench.predictive.student_t", "fsibench.predictive.values"),
    *("fsibench.data.splits", "fsibench.data.standardise", "fsibench.data.tables"),
    *("fsibench.harness.events", "fsibench.harness.identity", "fsibench.harness.runner", "fsibench.harness.schedule"),
    "fsibench.harness.speed",
)
CLOCKS = ("perf_counter", "process_time", "monotonic", "time")


def replaced() -> list[str]:
    """Functions that are no longer what their file defines, as `module.name`."""
    found = [f"time.{name}" for name in CLOCKS if not isinstance(getattr(time, name), BuiltinFunctionType)]
    for name in WATCHED:
        module = importlib.import_module(name)
        found += [f"{name}.{place}" for place in _foreign(module)]
    return found


def _foreign(module: ModuleType) -> Iterator[str]:
    for owner, name in _definitions(str(module.__file__)):
        holder = vars(module).get(owner) if owner else module
        place = f"{owner}.{name}" if owner else name
        value = vars(holder).get(name) if holder is not None else None
        if not _comes_from(str(module.__file__), value):
            yield place
    for metric in getattr(module, "METRICS", ()):
        if not _comes_from(str(module.__file__), metric.compute):
            yield f"METRICS[{metric.key}]"


@functools.cache
def _definitions(path: str) -> tuple[tuple[str, str], ...]:
    """(class or empty, function) of every function that a file defines at its top or in a class."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    places: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    places += ((node.name, node) for node in tree.body if isinstance(node, ast.ClassDef))
    return tuple(
        (owner, node.name) for owner, holder in places for node in holder.body if isinstance(node, ast.FunctionDef)
    )


def _comes_from(path: str, value: Any) -> bool:
    for inner in ("fget", "func", "__func__"):  # property, cached property, class and static methods
        value = getattr(value, inner, value)
    function = inspect.unwrap(value) if callable(value) else value
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == path
