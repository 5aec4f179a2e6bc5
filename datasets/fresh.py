"""Data that no method can have seen before: `fresh:KEY:boston`, made by `fsibench audit --fresh`.

The rows of a table are divided anew into training and test rows, and a linear function of the inputs is added to the
target; both follow from the key. An honest fit learns the added line with the rest. Answers that were prepared for the
published splits, or looked up in the table, are wrong. For a problem with a formula, new points are drawn.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from fsibench import registry
from fsibench.data import Dataset, Description, Floats, Split
from fsibench.errors import UsageError

PREFIX = "fresh:"
TREND = 0.5  # standard deviation of the added line, in those of the target


@dataclass(frozen=True)
class Fresh(Dataset):
    key: str = ""
    base: str = ""

    def _base(self) -> Dataset:
        return registry.dataset(self.base)

    def describe(self) -> Description:
        return self._base().describe()

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.key} {self._base().fingerprint()}".encode()).hexdigest()

    def fetch(self) -> None:
        self._base().fetch()

    def split(self, scheme: str, index: int) -> Split:
        base = self._base()
        words = f"{self.key} {self.base} {scheme} {index}"
        seed = np.frombuffer(hashlib.sha256(words.encode()).digest(), dtype="<u4")
        generator = np.random.RandomState(seed)
        if hasattr(base, "fresh"):
            fresh: Split = base.fresh(generator)
            return fresh
        return dealt_anew(base.split(scheme, 0), generator)


def dealt_anew(split: Split, generator: np.random.RandomState) -> Split:
    """The same rows in a new split, with a linear function of the inputs added to the target."""
    x = np.concatenate([split.train_x, split.test_x])
    y = np.concatenate([split.train_y, split.test_y])
    y = y + TREND * y.std() * _line(x, generator)
    order = generator.permutation(len(y))
    train, test = order[: len(split.train_y)], order[len(split.train_y) :]
    return Split(x[train], y[train], x[test], y[test])


def _line(x: Floats, generator: np.random.RandomState) -> Floats:
    """A random linear function of the standardised inputs, of unit standard deviation."""
    scale = x.std(0)
    columns = (x - x.mean(0)) / np.where(scale > 0, scale, 1.0)
    line = columns @ generator.standard_normal(x.shape[1])
    return np.asarray(line / max(float(line.std()), 1e-300))


def resolve(text: str) -> Fresh:
    key, colon, base = text.removeprefix(PREFIX).partition(":")
    if not (key and colon and base):
        raise UsageError(f"cannot read {text!r}; write fresh:KEY:NAME, for example fresh:1:boston.")
    registry.dataset(base)
    return Fresh(text, key, base)
