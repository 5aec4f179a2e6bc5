"""Every built-in method keeps every check of the contract; methods that do not are caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsibench import checks, registry

ODD = Path(__file__).parent / "support" / "odd_methods.py"
# The floor of every table predicts the training mean, so it cannot beat itself.
EXPECTED_FAILURES = {("constant", "beats_the_constant"): "it is the constant"}


@pytest.mark.parametrize("check", checks.CHECKS)
@pytest.mark.parametrize("name", sorted(registry.methods().items))
def test_every_method_keeps_the_contract(name: str, check: str) -> None:
    problem = checks.run(check, registry.entry(name).method)
    if (name, check) in EXPECTED_FAILURES:
        assert problem is not None
    else:
        assert problem is None, problem


@pytest.mark.parametrize(
    ("method", "check", "sentence"),
    [
        ("UsesGlobalState", "global_random_state_is_ignored", "global random state"),
        ("UsesGlobalState", "same_seed_same_result", "different predictions"),
        ("NoOp", "beats_the_constant", "predicting the training mean gives"),
        ("Raises[after=1]", "same_seed_same_result", "RuntimeError: the method failed on purpose"),
        ("NotANumber", "odd_data_are_survived", "not finite"),
    ],
)
def test_a_method_that_breaks_the_contract_is_caught(method: str, check: str, sentence: str) -> None:
    problem = checks.run(check, registry.entry(f"{ODD}:{method}").method)
    assert problem is not None
    assert sentence in problem
