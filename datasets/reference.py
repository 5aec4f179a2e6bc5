"""Eight small problems whose exact posterior is known under a stated prior: `reference-snelson`, `reference-yacht`, ...

The same rows with the exact posterior of a Gaussian process are `reference-gp-snelson`, `reference-gp-yacht`, ...

A problem has one split. Rows are *inside* when they are nearer to the middle of all inputs than three quarters of the rows:
training rows and half of the test rows are inside, the other test rows outside. Targets of real tables carry added Gaussian
noise of a fifth of their standard deviation: the noise is then known to be there, and large enough for the posterior to be
sampled to any accuracy (yacht by itself is nearly free of noise).
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np

from fsibench.data import Dataset, Description, Floats, Rows, Split
from fsibench.data.splits import require_split
from fsibench.datasets.synthetic import Bimodal, Composite, Heteroscedastic
from fsibench.datasets.tables import PassportTable
from fsibench.errors import DataError
from fsibench.references import Reference, files

INSIDE_SHARE = 0.75
NUM_TEST = 50  # rows inside, and as many outside
ADDED_NOISE = 0.2  # standard deviations of the target
SEED = 15


@dataclass(frozen=True)
class ReferenceProblem(Dataset):
    """Rows of another data set, divided into training rows, test rows among them and test rows around them."""

    @property
    def base(self) -> Dataset:
        return BASES[self.problem]

    @property
    def train_rows(self) -> int:
        return 90 if self.problem == "snelson" else 150

    @property
    def added_noise(self) -> float:
        return ADDED_NOISE if self.problem in REAL else 0.0

    def describe(self) -> Description:
        of = self.base.describe()
        known = self.has_process or files.path_of(self.problem).is_file()
        return Description(
            name=self.name, rows=self.train_rows + 2 * NUM_TEST, inputs=of.inputs, target=of.target, source=of.source,
            available=of.available, licence=of.licence, citation=of.citation,
            note="posterior known" if known else f"its posterior is made by `fsibench reference {self.problem}`",
        )  # fmt: skip

    @property
    def problem(self) -> str:
        return self.name.removeprefix("reference-").removeprefix("gp-")

    @property
    def has_process(self) -> bool:
        """Whether the stated prior is the Gaussian process, not the network."""
        return self.name.startswith("reference-gp-")

    def fingerprint(self) -> str:
        words = f"{self.base.fingerprint()} {self.train_rows} {self.added_noise} {INSIDE_SHARE} {NUM_TEST} {SEED}"
        return hashlib.sha256(words.encode()).hexdigest()

    def num_splits(self, scheme: str) -> int:
        return 1

    def split(self, scheme: str, index: int) -> Split:
        require_split(index, 1)
        x, y = self._rows()
        generator = np.random.RandomState(SEED)
        order = generator.permutation(len(y))
        if self.added_noise:
            y = y + self.added_noise * y.std() * generator.standard_normal(len(y))
        inside = order[is_inside(x)[order]]
        outside = order[~is_inside(x)[order]]
        if len(inside) < self.train_rows + NUM_TEST or len(outside) < NUM_TEST:
            raise DataError(f"{self.name} needs {self.train_rows + NUM_TEST} rows inside and {NUM_TEST} outside.")
        train = inside[: self.train_rows]
        test: Rows = np.concatenate([inside[self.train_rows : self.train_rows + NUM_TEST], outside[:NUM_TEST]])
        return Split(x[train], y[train], x[test], y[test])

    def _rows(self) -> tuple[Floats, Floats]:
        if isinstance(self.base, PassportTable):
            table = self.base.table()
            return table.x, table.y
        split = self.base.split("paper", 0)
        return np.concatenate([split.train_x, split.test_x]), np.concatenate([split.train_y, split.test_y])

    def reference(self) -> Reference | None:
        """The exact posterior at the test rows: computed, or if it has been made for these very rows."""
        return _with_process(self) if self.has_process else files.load(self.problem, self.fingerprint())

    def fetch(self) -> None:
        self.base.fetch()


@functools.lru_cache(maxsize=16)
def _with_process(problem: ReferenceProblem) -> Reference:
    import torch

    from fsibench.blocks.priors import reference_process
    from fsibench.data import prepare
    from fsibench.references.exact import exact_reference

    rows = prepare(problem, "paper", 0)
    x, y, at = (torch.from_numpy(values) for values in (rows.train_x, rows.train_y, rows.test_x))
    about: dict[str, object] = {"problem": problem.problem, "fingerprint": problem.fingerprint()}
    process = reference_process(x.shape[1])
    return exact_reference(process, x, y, at, rows.standardiser.y_scale, rows.standardiser.y_mean, about)


def is_inside(x: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each row of x [N, D] is among the three quarters that are nearest to the middle, in standard deviations."""
    scale = x.std(0)
    distance = np.square((x - x.mean(0)) / np.where(scale > 0, scale, 1.0)).sum(1)
    return np.asarray(distance <= np.quantile(distance, INSIDE_SHARE))


REAL = ("boston", "yacht", "concrete", "energy")
BASES: dict[str, Dataset] = {
    "snelson": PassportTable("snelson"),
    **{made.__name__.lower(): made(made.__name__.lower(), 300, 100) for made in (Bimodal, Heteroscedastic, Composite)},
    **{name: PassportTable(name) for name in REAL},
}
DATASETS = tuple(ReferenceProblem(f"reference-{kind}{name}") for kind in ("", "gp-") for name in BASES)
