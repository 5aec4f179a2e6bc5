"""The contract checks for a plugin's own tests.

    import pytest
    from fsibench.testing import check_method, check_names

    @pytest.mark.parametrize("check", check_names())
    def test_contract(check):
        check_method("my_package.mine:Mine", check)       # or a Method class, an instance, or ./file.py:Class
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from fsibench import checks, options, registry
from fsibench.checks import LIMIT, CheckFailed, Outcome
from fsibench.contract import Method
from fsibench.errors import UsageError

__all__ = ["CheckFailed", "Outcome", "check_method", "check_names"]


def check_names() -> list[str]:
    """The names of all checks, for `pytest.mark.parametrize`."""
    return list(checks.CHECKS)


def check_method(
    method: str | type[Method] | Method,
    check: str | None = None,
    *,
    limit: float = LIMIT,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run one check, or all of them, on a method; raises `CheckFailed` with a line for each failure.

    `limit` is CPU seconds per check. `progress` is called after each check. A waived check is an outcome of its own.
    """
    instance = _instance(method)
    outcomes = []
    for name in [check] if check is not None else check_names():
        outcomes.append(checks.run(name, instance, limit))
        if progress is not None:
            progress(outcomes[-1])
    failures = [f"{one.name}: {one.reason}. Hint: {one.hint}." for one in outcomes if one.status == "failed"]
    if failures:
        raise CheckFailed("\n".join([f"{instance.name} breaks the contract:", *failures]))
    return outcomes


def _instance(method: str | type[Method] | Method) -> Method:
    if isinstance(method, Method):
        return method
    if isinstance(method, type) and issubclass(method, Method):
        return method()
    if not isinstance(method, str):
        raise UsageError(f"expected a Method, its class or its name; got {method!r}.")
    name, raw = options.parse_entry(method)
    module, colon, class_name = name.partition(":")
    if not colon or module.endswith(".py"):
        return registry.entry(method).method
    cls: type[Method] = getattr(importlib.import_module(module), class_name)
    made: Method = options.build(cls, cls.name, raw)
    return made
