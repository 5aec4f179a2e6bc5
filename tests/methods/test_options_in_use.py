"""Every option of a built-in method has a use: somebody sets it, searches over it, or the paper has it.

An option that nobody sets is a constant with a longer name: it costs a reader, an identity and a line of documentation.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from fsibench import registry
from fsibench.contract import Method

ROOT = Path(__file__).parents[2]
# Where an option is set or explained. Other methods are no place: options of the same name are others' options.
PLACES = ("src/fsibench/protocols/*.toml", "benchmarks/*.py", "scripts/*.py", "tests/**/*.py", "docs/**/*.md", "methods/README.md", "README.md")
TEXTS = [path.read_text(encoding="utf-8") for place in PLACES for path in sorted(ROOT.glob(place)) if path != Path(__file__)]

METHODS = [
    method for _, method in sorted(registry.methods().items.items()) if method.__module__.startswith("fsibench.methods.")
]
# Options that need no use of their own, each with the reason.
NEEDS_NO_USE = {
    "schedule": "every method with an optimiser takes it, so that a reader may compare schedules across methods",
}


def is_set(option: str, text: str) -> bool:
    """`option=value`, "option" as a key, or the option as code in a sentence."""
    return re.search(rf"""\b{option}=|"{option}"|`{option}\b""", text) is not None


def is_about(method: type[Method], text: str) -> bool:
    return re.search(rf"\b({method.name}|{method.__name__})\b", text) is not None


def unused(method: type[Method]) -> list[str]:
    """The options that no preset, search space, docstring, protocol, test, benchmark or page names."""
    presets = {option for preset in method.presets.values() for option in preset}
    texts = [sys.modules[method.__module__].__doc__ or "", *(text for text in TEXTS if is_about(method, text))]
    named = presets | set(method.search) | set(NEEDS_NO_USE)
    return [
        field.name
        for field in dataclasses.fields(method)
        if field.name not in named and not any(is_set(field.name, text) for text in texts)
    ]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_option_has_a_use(method: type[Method]) -> None:
    assert unused(method) == []


def test_an_option_that_nobody_sets_is_found() -> None:
    @dataclasses.dataclass(frozen=True)
    class Example(registry.method_class("linear")):  # type: ignore[misc]
        an_option_that_nobody_sets: float = 1.0

    assert "an_option_that_nobody_sets" in unused(Example)
