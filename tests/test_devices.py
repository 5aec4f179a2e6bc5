"""Methods on other devices than the CPU: fits on CUDA where there is one, and who could run without float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fsibench
from fsibench import registry
from fsibench.contract import Data, Meter

PAGE = Path(__file__).parents[1] / "docs" / "platforms.md"
METHODS = sorted(registry.methods().items)
STEPS = 5


def table() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(30, 2))
    return X, X[:, 0] + 0.1 * generator.normal(size=30)


def require_packages(name: str) -> None:
    for package in registry.method_class(name).requires:
        pytest.importorskip(package)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_fits_predicts_and_draws_on_cuda(name: str) -> None:
    require_packages(name)
    X, y = table()
    model = fsibench.fit(name, X, y, steps=STEPS, device="cuda")
    mean, sd = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
    assert np.isfinite(model.draw(X, 3)).all()


class Float64Seen(TorchDispatchMode):
    """Notes whether any operation gave a tensor of float64."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = (part for part in tree_leaves(result) if isinstance(part, torch.Tensor))
        self.seen = self.seen or any(tensor.dtype == torch.float64 for tensor in tensors)
        return result


def uses_float64(name: str) -> bool:
    """In a short fit, a prediction and draws. Scoring is left out: it happens on the CPU."""
    X, y = (torch.from_numpy(part).float() for part in table())
    generator = torch.Generator().manual_seed(0)
    with Float64Seen() as trace:
        *_, posterior = Meter(steps=STEPS).pulls(registry.entry(name).method, Data(X, y), generator)
        with torch.no_grad():
            posterior.predict(X, generator)
            posterior.draw(X, 3, generator)
    found: bool = trace.seen
    return found


def named_in_the_page(start: str) -> set[str]:
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(start))
    return set(re.findall(r"`(\w+)`", line.removeprefix(start)))


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"tuned"}))  # tuned runs another method
def test_the_page_on_platforms_says_whether_a_method_uses_float64(name: str) -> None:
    require_packages(name)
    assert (name in named_in_the_page("- use float64:")) == uses_float64(name)
    assert (name in named_in_the_page("- do not:")) != uses_float64(name)


def test_the_page_on_platforms_names_no_other_methods() -> None:
    assert named_in_the_page("- use float64:") | named_in_the_page("- do not:") == set(METHODS) - {"tuned"}
