"""The synthetic problems: drawn from the conditional they claim, seeded, any size."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fsibench import registry
from fsibench.data import Floats, Split
from fsibench.datasets.synthetic import Bimodal, Composite, Heteroscedastic, Synthetic
from fsibench.errors import UsageError

SETS: tuple[Synthetic, ...] = (Bimodal("bimodal"), Heteroscedastic("heteroscedastic"), Composite("composite"))
# sha256 of all values, rounded to six decimals, of splits 0 and 19
HASHES = {
    "bimodal": ("4a6735d2ed97651c", "a227b4217e9c434b"),
    "heteroscedastic": ("a42bdc7041f99b7e", "df19b6f4cfde01f5"),
    "composite": ("33fe81a289212164", "8ffe14741754bb05"),
}


def by_name(synthetic: Synthetic) -> str:
    return str(synthetic.name)


def digest(split: Split) -> str:
    parts = (split.train_x.ravel(), split.train_y, split.test_x.ravel(), split.test_y)
    values = np.round(np.concatenate(parts), 6) + 0.0  # minus zero becomes zero
    return hashlib.sha256(values.astype("<f8").tobytes()).hexdigest()[:16]


def mixture_cdf(synthetic: Synthetic, x: Floats, y: Floats) -> Floats:
    loc, scale = synthetic.oracle(x)
    return np.asarray(stats.norm.cdf(y, loc, scale).mean(0))


@pytest.mark.parametrize("synthetic", SETS, ids=by_name)
def test_points_are_the_same_on_every_machine(synthetic: Synthetic) -> None:
    assert (digest(synthetic.split("paper", 0)), digest(synthetic.split("paper", 19))) == HASHES[synthetic.name]


@pytest.mark.parametrize("synthetic", SETS, ids=by_name)
def test_points_follow_the_oracle(synthetic: Synthetic) -> None:
    """The probability integral transform of draws under their own conditional is uniform."""
    large = registry.dataset(f"{synthetic.name}[num_train=50000]")
    split = large.split("paper", 0)
    pit = mixture_cdf(synthetic, split.train_x, split.train_y)
    assert stats.kstest(pit, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(pit, split.train_x[:, 0])[0, 1]) < 4 / np.sqrt(50_000)


def test_the_oracles_are_the_formulas() -> None:
    x = np.array([[-1.0], [0.3], [2.0]])
    loc, scale = SETS[0].oracle(x)
    assert np.allclose(loc, [10 * np.cos(x[:, 0] - 0.5), 10 * np.sin(x[:, 0] - 0.5)])
    assert np.allclose(scale, 1)
    loc, scale = SETS[1].oracle(x)
    assert np.allclose(loc, [7 * np.sin(x[:, 0]) + 10])
    assert np.allclose(scale, [2 * np.abs(np.sin(x[:, 0]))])
    loc, scale = SETS[2].oracle(x)
    assert np.allclose(loc, [[10, 10 * (1 + np.sin(0.3)), 10 * (1 + np.sin(2.0))]])
    assert np.allclose(scale, 2)


@pytest.mark.parametrize("synthetic", SETS, ids=by_name)
def test_each_split_is_a_fresh_draw_of_the_asked_size(synthetic: Synthetic) -> None:
    first, second = synthetic.split("paper", 0), synthetic.split("paper", 1)
    assert first.train_x.shape == (1000, 1)
    assert first.test_y.shape == (1000,)
    assert not np.intersect1d(first.train_x, second.train_x).size
    assert not np.intersect1d(first.train_x, first.test_x).size
    assert (first.train_x >= synthetic.low).all()
    assert (first.train_x <= synthetic.high).all()


def test_sizes_are_options_and_part_of_the_identity() -> None:
    small = registry.dataset("bimodal[num_train=7,num_test=3]")
    split = small.split("standard", 0)
    assert (len(split.train_y), len(split.test_y)) == (7, 3)
    assert small.fingerprint() != SETS[0].fingerprint()
    assert small.describe().rows == 10


def test_global_random_state_is_neither_used_nor_changed() -> None:
    np.random.seed(0)
    before = digest(SETS[0].split("paper", 0))
    following = np.random.uniform()
    np.random.seed(1)
    assert digest(SETS[0].split("paper", 0)) == before
    np.random.seed(0)
    SETS[0].split("paper", 0)
    assert np.random.uniform() == following


@pytest.mark.parametrize("wrong", ["bimodal[num_train=0]", "composite[num_test=-5]"])
def test_empty_sizes_are_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        registry.dataset(wrong)


def test_unknown_splits_and_schemes_are_refused() -> None:
    with pytest.raises(UsageError, match="numbered 0 to 19"):
        SETS[0].split("paper", 20)
    with pytest.raises(UsageError, match="unknown split scheme"):
        SETS[0].split("nonsense", 0)


@pytest.mark.parametrize("synthetic", SETS[:2], ids=by_name)
def test_the_released_files_of_the_paper_follow_the_same_conditional(synthetic: Synthetic) -> None:
    """The authors' own points, where they are at hand: uniform under our oracle."""
    path = Path(__file__).parents[3] / "shared" / "data" / f"{synthetic.name}-authors-train.csv.gz"
    if not path.exists():
        pytest.skip(f"the authors' points are not at {path}")
    x, y = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    assert stats.kstest(mixture_cdf(synthetic, x, y), "uniform").pvalue > 1e-3


def test_a_changed_formula_is_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    before = registry.dataset("bimodal").fingerprint()
    old = Bimodal.oracle
    monkeypatch.setattr(Bimodal, "oracle", lambda self, x: (1.001 * old(self, x)[0], old(self, x)[1]))
    assert registry.dataset("bimodal").fingerprint() != before


def test_one_training_point_is_refused() -> None:
    with pytest.raises(UsageError, match="num_train must be at least 2"):
        registry.dataset("bimodal[num_train=1]")


def test_there_is_no_gap_in_points_that_are_drawn_afresh() -> None:
    with pytest.raises(UsageError, match="bimodal has no gaps"):
        registry.dataset("bimodal").split("gap", 0)
