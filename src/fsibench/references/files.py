"""The file of a reference posterior: one row per test row, and what was sampled in the metadata.

columns: `inside`, `mean` and `sd` of f, `draws` of f [S], `quantiles` of y at `LEVELS`, `log_density` of y at these quantiles,
`rhat` and `ess` of f, `z` (how far the second sampler's mean is from the first one's, in Monte Carlo errors).
All values are in the target's own units. The metadata (JSON under `fsibench`) has the prior in words, the data's fingerprint,
draws of the noise sd, log evidence with its error, and a checksum of the columns.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FOLDER = Path(__file__).parent
PROBLEMS = ("snelson", "bimodal", "heteroscedastic", "composite", "boston", "yacht", "concrete", "energy")
# Of the predictive quantiles: the midpoints of a hundred equal shares, so that a mean over them is an integral.
LEVELS = tuple((k + 0.5) / 100 for k in range(100))
COLUMNS = ("inside", "mean", "sd", "draws", "quantiles", "log_density", "rhat", "ess", "z")


@dataclass(frozen=True)
class Reference:
    """An exact posterior at T test rows: S draws of functions, marginal moments and quantiles."""

    inside: npt.NDArray[np.bool_]  # [T]
    draws: npt.NDArray[np.float32]  # of f, [S, T]
    mean: Floats  # of f and of y, [T]
    sd: Floats  # of f, [T]
    quantiles: Floats  # of y, [T, L]
    log_density: Floats  # of y at its quantiles, [T, L]
    rhat: Floats
    ess: Floats
    z: Floats
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Standard deviation of the training targets: the unit of distances."""
        return float(self.about["target_scale"])

    @property
    def noise_variance(self) -> float:
        """Mean of σ², so that the variance of y is sd² plus this."""
        return float(np.mean(np.square(self.about["noise"])))

    def checksum(self) -> str:
        digest = hashlib.sha256()
        for name in COLUMNS:
            digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return digest.hexdigest()


def path_of(problem: str, folder: Path = FOLDER) -> Path:
    return folder / f"{problem}.parquet"


def save(reference: Reference, path: Path) -> None:
    """One row per test row; written under another name first, so that no half file is ever read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        name: list(reference.draws.T) if name == "draws" else _column(getattr(reference, name)) for name in COLUMNS
    }
    about = {**reference.about, "checksum": reference.checksum()}
    table = pa.table(columns).replace_schema_metadata({"fsibench": json.dumps(about)})
    partial = path.with_name(path.name + ".part")
    pq.write_table(table, partial, compression="zstd")
    partial.replace(path)


def _column(values: npt.NDArray[Any]) -> list[Any] | npt.NDArray[Any]:
    return values if values.ndim == 1 else list(values)


def read(path: Path) -> Reference:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"fsibench"])
    columns = {name: np.array(table[name].to_pylist()) for name in COLUMNS}
    columns["draws"] = columns["draws"].astype(np.float32).T
    return Reference(**columns, about=about)


@functools.lru_cache(maxsize=16)
def load(problem: str, fingerprint: str | None = None) -> Reference | None:
    """The reference of a problem; None where it was not made, or was made for other rows."""
    path = path_of(problem)
    if not path.is_file():
        return None
    found = read(path)
    return found if fingerprint in (None, found.about["fingerprint"]) else None
