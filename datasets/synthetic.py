"""The three one-dimensional problems of the SIP paper, by formula: any size, seeded, with their true conditionals.

    bimodal          x ~ U(-4, 4);  y = 10 cos(x - 0.5) + ε  or  10 sin(x - 0.5) + ε, fair coin,  ε ~ N(0, 1)
    heteroscedastic  x ~ U(-4, 4);  y = 7 sin x + ε sin x + 10,                                   ε ~ N(0, 2²)
    composite        x ~ U(-4, 5);  y = 10 + ε (x < 0),  10 (1 + sin x) + ε (x >= 0),             ε ~ N(0, 2²)

The paper says 1000 training points; its released files hold 2000 (`bimodal[num_train=2000]`). A split is a fresh
draw of training and test points, the same on every machine.
"""

from __future__ import annotations

import abc
import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fsibench.data import SPLIT_SCHEMES, Dataset, Description, Floats, Split
from fsibench.data.splits import require_split
from fsibench.errors import UsageError, unknown

SMALLEST_SCALE = 1e-6  # stands in for the zero of the heteroscedastic noise at sin x = 0: a scale must be positive

PROBE_POINTS = 64  # of the formula that enter the fingerprint


@dataclass(frozen=True)
class Synthetic(Dataset):
    """Points from a known conditional p(y | x), an equal-weight mixture of Gaussians."""

    num_train: int = 1000
    num_test: int = 1000

    low: ClassVar[float]
    high: ClassVar[float]

    def __post_init__(self) -> None:
        if self.num_train < 2 or self.num_test < 1:
            raise ValueError("num_train must be at least 2 and num_test at least 1")

    @abc.abstractmethod
    def oracle(self, x: Floats) -> tuple[Floats, Floats]:
        """(loc [S, N], scale [S, N]) of p(y | x) in original units, for x of shape [N, 1] or [N]."""

    def describe(self) -> Description:
        return Description(
            name=self.name,
            rows=self.num_train + self.num_test,
            inputs=1,
            target="y",
            source="formula",
            available=True,
            licence="none needed",
            citation="Rodríguez-Santana, Zaldivar, Hernández-Lobato: Function-space inference with SIP, ICML 2022",
            note="true conditional known",
        )

    def fingerprint(self) -> str:
        """Sizes, and what the formula gives at a few points: another formula or another stream is other data."""
        x, y = self._draw(PROBE_POINTS, np.random.RandomState(0))
        values = " ".join(f"{value:.9g}" for value in np.concatenate([np.ravel(part) for part in (x, y, *self.oracle(x))]))
        return hashlib.sha256(self._words(values).encode()).hexdigest()

    def num_splits(self, scheme: str) -> int:
        if scheme == "gap":
            raise UsageError(f"{self.name} has no gaps: its points are drawn afresh for each split; use another scheme.")
        return super().num_splits(scheme)

    def split(self, scheme: str, index: int) -> Split:
        """Fresh points for each index; the scheme changes nothing, since the sizes are options."""
        if scheme not in SPLIT_SCHEMES:
            raise unknown("split scheme", scheme, SPLIT_SCHEMES)
        require_split(index, self.num_splits(scheme))
        seed = np.frombuffer(hashlib.sha256(self._words(index).encode()).digest(), dtype="<u4")
        generator = np.random.RandomState(seed)  # numpy freezes this stream for good; newer generators may change
        return self.fresh(generator)

    def fresh(self, generator: np.random.RandomState) -> Split:
        """Training and test rows from a stream of one's own: `fsibench audit --fresh` draws what nobody has seen."""
        train = self._draw(self.num_train, generator)
        test = self._draw(self.num_test, generator)
        return Split(*train, *test)

    def _words(self, last: object) -> str:
        return f"{self.name} {self.num_train} {self.num_test} {last}"

    def _draw(self, num_points: int, generator: np.random.RandomState) -> tuple[Floats, Floats]:
        x = generator.uniform(self.low, self.high, (num_points, 1))
        loc, scale = self.oracle(x)  # [S, N]
        component = generator.randint(len(loc), size=num_points)
        point = np.arange(num_points)
        eps = generator.standard_normal(num_points)
        return x, loc[component, point] + scale[component, point] * eps


@dataclass(frozen=True)
class Bimodal(Synthetic):
    low: ClassVar[float] = -4.0
    high: ClassVar[float] = 4.0

    def oracle(self, x: Floats) -> tuple[Floats, Floats]:
        x = np.ravel(x)
        loc = np.stack([10 * np.cos(x - 0.5), 10 * np.sin(x - 0.5)])
        return loc, np.ones_like(loc)


@dataclass(frozen=True)
class Heteroscedastic(Synthetic):
    low: ClassVar[float] = -4.0
    high: ClassVar[float] = 4.0

    def oracle(self, x: Floats) -> tuple[Floats, Floats]:
        x = np.ravel(x)
        # y = 7 sin x + ε sin x + 10 with sd(ε) = 2: the noise is Gaussian with scale 2 |sin x|
        return (7 * np.sin(x) + 10)[None], np.maximum(2 * np.abs(np.sin(x)), SMALLEST_SCALE)[None]


@dataclass(frozen=True)
class Composite(Synthetic):
    low: ClassVar[float] = -4.0
    high: ClassVar[float] = 5.0

    def oracle(self, x: Floats) -> tuple[Floats, Floats]:
        x = np.ravel(x)
        loc = np.where(x < 0, 10.0, 10 * (1 + np.sin(x)))[None]
        return loc, np.full_like(loc, 2.0)


DATASETS = (Bimodal("bimodal"), Heteroscedastic("heteroscedastic"), Composite("composite"))
