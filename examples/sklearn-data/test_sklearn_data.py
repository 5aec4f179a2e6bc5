"""The table behind the prefix is found, whole, and split without loss."""

import pytest

from fsibench import UsageError, registry
from fsibench.data.audit import audit


def test_diabetes_is_found_and_every_row_is_used_once() -> None:
    diabetes = registry.dataset("sk:diabetes")
    split = diabetes.split("standard", 0)
    assert len(split.train_y) + len(split.test_y) == diabetes.describe().rows == 442
    assert audit(diabetes) == []


def test_another_name_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="did you mean 'diabetes'"):
        registry.dataset("sk:diabets")
