"""Tasks and suites of OpenML through the real client: the table, the target and the folds are the provider's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from fsibench import registry
from fsibench.data import TableDataset
from fsibench.errors import DataError, UsageError

pytestmark = pytest.mark.usefixtures("openml_client")

FOLDS = [[list(range(0, 60, 3)), list(range(1, 60, 3)), list(range(2, 60, 3))], [[0, 1], [2, 3], list(range(4, 60))]]


@pytest.fixture
def task(loopback: Any, numbers: Any) -> Any:
    served = sys.modules[type(loopback).__module__].ServedTask
    loopback.offer(44959, numbers, "theta1")  # the task has a target of its own
    loopback.tasks[361234] = served(44959, "y", 60, FOLDS)
    loopback.tasks[5] = served(44959, "y", 60, FOLDS, (5, "Clustering"))
    return loopback


def test_a_task_brings_its_table_its_target_and_its_folds(task: Any, numbers: Any) -> None:
    dataset = registry.dataset("openml-task:361234")
    assert isinstance(dataset, TableDataset)
    assert dataset.table().target == "y"
    assert "theta1" not in dataset.table().columns, "the provider's other target is not an input"
    assert dataset.num_splits("paper") == 6
    for index, test in enumerate([*FOLDS[0], *FOLDS[1]]):
        assert np.array_equal(dataset.split("standard", index).test_y, numbers["y"].to_numpy()[test])
        assert len(dataset.split("standard", index).train_y) == 60 - len(test)
    with pytest.raises(UsageError, match="numbered 0 to 5"):
        dataset.split("paper", 6)


def test_a_task_is_fetched_once(task: Any) -> None:
    dataset = registry.dataset("openml-task:361234")
    dataset.fetch()
    asked = len(task.log)
    assert dataset.num_splits("paper") == 6
    dataset.split("paper", 0)
    assert dataset.fingerprint() == registry.dataset("openml-task:361234").fingerprint()
    assert len(task.log) == asked


def test_another_kind_of_task_is_refused(task: Any) -> None:
    with pytest.raises(DataError, match="not a regression task"):
        registry.dataset("openml-task:5").fetch()


def test_a_suite_stands_for_its_tasks(task: Any) -> None:
    task.suites[353] = [361234, 361235]
    assert registry.expand("openml-suite:353") == ["openml-task:361234", "openml-task:361235"]
    assert registry.expand("openml-suite:353?dedupe=true")[0] == "openml-task:361234?dedupe=true"
    assert sum("study/353" in line for line in task.log) == 1, "asked for once, then read from the cache"
    assert registry.expand("boston") == ["boston"]
    with pytest.raises(UsageError, match="stands for 2 data sets, openml-task:361234 and others"):
        registry.dataset("openml-suite:353")


def test_an_unknown_suite_is_explained(task: Any) -> None:
    with pytest.raises(DataError, match="OpenML suite 99"):
        registry.expand("openml-suite:99")


@pytest.mark.parametrize("reference", ["openml-task:", "openml-task:x", "openml-task:0", "openml-task:1?goal=2"])
def test_unreadable_task_references_are_refused(reference: str) -> None:
    with pytest.raises(UsageError):
        registry.dataset(reference)
