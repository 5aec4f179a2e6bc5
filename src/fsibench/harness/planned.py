"""What a cell was planned with: its method as planned, and a refusal where code or data are not the planned ones."""

from __future__ import annotations

from fsibench import options, registry
from fsibench.contract import Method
from fsibench.data import Dataset
from fsibench.errors import DataError, Mismatch
from fsibench.harness import identity
from fsibench.harness.plan import Cell


def build_method(cell: Cell) -> Method:
    cls = registry.method_class(cell.file or cell.method)
    method: Method = options.build(cls, cell.method, dict(cell.options))
    return method


def refuse_what_was_not_planned(cell: Cell, method: Method, dataset: Dataset) -> None:
    """Results stand under the planned versions, so a cell runs with these or not at all."""
    version = identity.version_of(method)
    if version != cell.code_version:
        raise Mismatch(
            f"the code of {cell.entry} here ({version[:8]}) is not the planned one ({cell.code_version[:8]}): it was "
            "edited since, or this worker has another version installed. Run the same command again, with the same "
            "fsibench and method files on every worker."
        )
    fingerprint = dataset.fingerprint()
    if fingerprint == cell.data_fingerprint:
        return
    if dataset.fingerprint() != fingerprint:
        raise DataError(
            f"{cell.dataset} has other values each time that it is loaded; draw its random numbers from a generator "
            "with a fixed seed that `table` makes anew."
        )
    raise Mismatch(
        f"the data of {cell.dataset} here ({fingerprint[:8]}) are not the planned ones "
        f"({cell.data_fingerprint[:8]}): they were edited since, or this worker has other files. Run the same "
        "command again, with the same data on every worker."
    )
