"""Splits and standardisation: the published index lists, every row once, no leak from test rows."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fsibench import data, registry
from fsibench.data import (
    NUM_SPLITS,
    Description,
    Floats,
    Rows,
    Split,
    Standardiser,
    Table,
    parse_splits,
    prepare,
    show_splits,
    split_rows,
    splits,
)
from fsibench.errors import DataError, UsageError

# set: (rows, sha256 of the test rows of all 20 splits under `paper`, under `standard`)
HASHES = {
    "boston": (506, "a43d5b2f3e8e7989", "1e9dcfbf142f1d20"),
    "concrete": (1030, "8204fa569df669f7", "903d4850a38e5036"),
    "energy": (768, "7f6cd6197fd43b4c", "306e18119d44d022"),
    "kin8nm": (8192, "2b05484d787059f0", "796617fd17ca36aa"),
    "naval": (11934, "e8b2ab0c7d028ac3", "2ea0341b56f70d8d"),
    "power": (9568, "4a2269ec683d8dfc", "cbd0179091ec19f8"),
    "wine": (1599, "603cc9f5b3417ee7", "43ecad6449c9c620"),
    "yacht": (308, "7217388a13404b6f", "6317e7a922e0e811"),
    "protein": (45730, "c906cc586f12f1ac", "af4944e0bace1ac3"),
}
# Where the published lists may lie; they are not ours to distribute.
BESIDE = Path(__file__).parents[3] / "shared" / "data" / "splits_90_10.json.gz"
PUBLISHED = Path(os.environ.get("FSIBENCH_PUBLISHED_SPLITS", BESIDE))


def digest(*rows: Rows) -> str:
    found = hashlib.sha256()
    for part in rows:
        found.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class Fixed(data.TableDataset):
    """A table given by hand."""

    x: Floats
    y: Floats

    def describe(self) -> Description:
        raise NotImplementedError

    def table(self) -> Table:
        return Table(self.x, self.y, tuple(f"x{column}" for column in range(self.x.shape[1])), "y")


@pytest.mark.parametrize("name", HASHES)
def test_splits_are_the_same_on_every_machine(name: str) -> None:
    num_rows, paper, standard = HASHES[name]
    for scheme, expected in (("paper", paper), ("standard", standard)):
        assert digest(*(split_rows(num_rows, scheme, index)[1] for index in range(NUM_SPLITS))) == expected


def test_large_splits_are_the_same_on_every_machine() -> None:
    train, test = split_rows(515_345, "large", 3)
    assert len(test) == 10_000
    assert digest(test) == "369400fc858fe230"
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(515_345))


@pytest.mark.parametrize("name", HASHES)
def test_splits_are_the_published_ones(name: str) -> None:
    if not PUBLISHED.exists():
        pytest.skip(f"the published index lists are not at {PUBLISHED}")
    lists = json.loads(gzip.decompress(PUBLISHED.read_bytes()))["test_rows"]
    published = lists["wine_red" if name == "wine" else name]
    for index, rows in enumerate(published):
        assert split_rows(HASHES[name][0], "standard", index)[1].tolist() == rows


@settings(deadline=None)
@given(st.integers(5, 400), st.sampled_from(["paper", "standard"]), st.integers(0, NUM_SPLITS - 1))
def test_every_row_appears_once(num_rows: int, scheme: str, index: int) -> None:
    train, test = split_rows(num_rows, scheme, index)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(num_rows))
    assert len(train) == round({"paper": 0.8, "standard": 0.9}[scheme] * num_rows)


@settings(deadline=None)
@given(st.integers(5, 400), st.sampled_from(["paper", "standard"]), st.integers(0, NUM_SPLITS - 1))
def test_a_split_does_not_depend_on_what_was_asked_before(num_rows: int, scheme: str, index: int) -> None:
    first = split_rows(num_rows, scheme, index)
    split_rows(num_rows + 1, scheme, (index + 1) % NUM_SPLITS)
    np.random.seed(index)  # nor on the global random state
    splits._permutation.cache_clear()
    again = split_rows(num_rows, scheme, index)
    assert all(np.array_equal(old, new) for old, new in zip(first, again, strict=True))


finite = st.integers(-(10**9), 10**9).map(lambda value: value / 1000)  # the digits of real tables, no denormal numbers


@settings(deadline=None)
@given(arrays(np.float64, (30, 3), elements=finite), st.integers(0, NUM_SPLITS - 1))
def test_no_test_row_influences_training(values: Floats, index: int) -> None:
    """The canary: other test rows leave the standardiser and every training value bit for bit as they were."""
    train, test = split_rows(30, "paper", index)
    values[train[0], 2] += 1.0 + abs(values[train[1], 2])  # a constant target is refused
    assume(np.ptp(values[train, 2]) > 0)
    changed = values.copy()
    changed[test] = 1e9 * (1 + np.arange(len(test) * 3).reshape(-1, 3))
    before = prepare(Fixed("a", values[:, :2], values[:, 2]), "paper", index)
    after = prepare(Fixed("b", changed[:, :2], changed[:, 2]), "paper", index)
    assert np.array_equal(before.train_x, after.train_x)
    assert np.array_equal(before.train_y, after.train_y)
    assert np.array_equal(before.standardiser.x_mean, after.standardiser.x_mean)
    assert np.array_equal(before.standardiser.x_scale, after.standardiser.x_scale)
    assert (before.standardiser.y_mean, before.standardiser.y_scale) == (
        after.standardiser.y_mean,
        after.standardiser.y_scale,
    )
    assert np.array_equal(after.test_y, changed[test, 2])


@settings(deadline=None)
@given(arrays(np.float64, (40, 2), elements=finite))
def test_training_rows_become_mean_zero_and_scale_one(values: Floats) -> None:
    standard = Standardiser.of(values, np.arange(40.0))
    x = (values - standard.x_mean) / standard.x_scale
    tolerance = 1e-6  # 1e-16 of the largest value over the smallest scale that is not taken as zero
    spread = values.std(0) > 1e-9 * np.abs(values).max(0)
    assert np.allclose(x[:, spread].mean(0), 0, atol=tolerance)
    assert np.allclose(x[:, spread].std(0), 1, atol=tolerance)


@settings(deadline=None)
@given(arrays(np.float64, (40, 2), elements=finite))
def test_standardising_can_be_undone(values: Floats) -> None:
    standard = Standardiser.of(values, np.arange(40.0))
    back = standard.x(values).astype(np.float64) * standard.x_scale + standard.x_mean
    reach = np.abs(values - standard.x_mean).max(0)
    assert (np.abs(back - values) <= 1e-6 * reach + 1e-9 * np.abs(values).max(0) + 1e-300).all()  # float32 in between


def test_constant_columns_are_divided_by_one() -> None:
    values = np.column_stack([np.full(50, 0.998), np.full(50, 288.0), np.arange(50.0)])  # as in naval
    standard = Standardiser.of(values, np.arange(50.0))
    assert standard.x_scale[:2].tolist() == [1.0, 1.0]
    assert standard.x_constant == (0, 1)
    assert np.abs(standard.x(values)[:, :2]).max() == 0


def test_a_large_column_with_a_small_spread_is_not_constant() -> None:
    """Nanoseconds since 1970 within one second: a spread of 2e-10 of the size."""
    times = 1.7e18 + 1e6 * np.arange(1000.0)
    standard = Standardiser.of(times[:, None], np.arange(1000.0))
    assert standard.x_scale[0] == pytest.approx(times.std(), rel=1e-6)
    assert np.abs(standard.x(times[:, None])).max() < 2


def test_a_value_that_overflows_is_refused_instead_of_wiping_its_column_out() -> None:
    values = np.arange(50.0)[:, None].repeat(2, axis=1)
    values[7, 1] = 1e300
    with pytest.raises(DataError, match=r"column 2 cannot be standardised: it has a value of size 1e\+300"):
        Standardiser.of(values, np.arange(50.0))
    standard = Standardiser.of(np.arange(50.0)[:, None], np.arange(50.0))
    with pytest.raises(DataError, match="standard deviations from the mean overflows"):
        standard.x(np.array([[1e300]]))


def test_an_input_that_is_constant_in_training_only_becomes_zero_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, test = split_rows(50, "paper", 0)
    x = np.column_stack([np.arange(50.0), np.ones(50)])
    x[test[0], 1] = 1e6
    prepared = prepare(Fixed("odd", x, np.arange(50.0)), "paper", 0)
    assert prepared.test_x[:, 1].tolist() == [0.0] * 10
    assert "odd, split 0: input 2 is constant in the training rows and not in the test rows" in caplog.text


def test_a_constant_target_is_refused() -> None:
    with pytest.raises(DataError, match="the target is 3 in every training row"):
        prepare(Fixed("flat", np.arange(50.0)[:, None], np.full(50, 3.0)), "paper", 0)


def test_one_training_row_is_refused() -> None:
    with pytest.raises(DataError, match="1 training row is too few"):
        Standardiser.of(np.arange(1.0)[:, None], np.arange(1.0))


def test_statistics_in_blocks_are_those_of_numpy() -> None:
    values = np.random.default_rng(0).normal(5, 3, (200_001, 3))
    rows = np.random.default_rng(1).permutation(200_001)[:150_000]
    standard = Standardiser.of(values, values[:, 0], rows)
    assert np.allclose(standard.x_mean, values[rows].mean(0), rtol=1e-13)
    assert np.allclose(standard.x_scale, values[rows].std(0), rtol=1e-13)


@pytest.mark.parametrize("index", [-1, NUM_SPLITS])
def test_splits_beyond_the_last_are_refused(index: int) -> None:
    with pytest.raises(UsageError, match="numbered 0 to 19"):
        split_rows(100, "paper", index)


def test_unknown_schemes_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'paper'"):
        split_rows(100, "papper", 0)


@pytest.mark.parametrize(("num_rows", "scheme"), [(1, "paper"), (2, "standard"), (10_000, "large")])
def test_too_few_rows_are_refused(num_rows: int, scheme: str) -> None:
    with pytest.raises(UsageError, match="rows"):
        split_rows(num_rows, scheme, 0)


def test_a_split_takes_rows_in_the_order_of_the_permutation() -> None:
    table = Fixed("ordered", np.arange(20.0)[:, None], np.arange(20.0))
    train, test = split_rows(20, "standard", 7)
    split: Split = table.split("standard", 7)
    assert split.train_y.tolist() == train.tolist()
    assert split.test_x[:, 0].tolist() == test.tolist()


# --- which of them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [(3, (0, 1, 2)), ("5", (0, 1, 2, 3, 4)), ("15-19", (15, 16, 17, 18, 19)), ("3,7", (3, 7)), ("4-4", (4,)),
     ("0-2, 9", (0, 1, 2, 9)), ("7,3,7", (7, 3))],
)
def test_splits_are_chosen_by_number_range_or_list(text: int | str, expected: tuple[int, ...]) -> None:
    assert parse_splits(text) == expected
    assert parse_splits(show_splits(expected)) == expected


@pytest.mark.parametrize("text", ["0", "-3", "a", "5-3", "1,,2", "", "3.5", "1-2-3", "99999999999999999999"])
def test_unreadable_splits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="splits"):
        parse_splits(text)


# --- twins, gaps, time, groups, folds -------------------------------------------------------------------------------


def twins_of(num_rows: int) -> Fixed:
    x = np.random.default_rng(0).integers(0, 40, (num_rows, 1)).astype(float)
    return Fixed("twins", x, x[:, 0] ** 2)


@pytest.mark.parametrize("index", [0, 7, 19])
def test_the_scheme_twins_keeps_equal_rows_on_one_side(index: int) -> None:
    split = twins_of(300).split("twins", index)
    assert not set(split.train_y) & set(split.test_y)
    assert len(split.train_y) + len(split.test_y) == 300
    assert 0.9 * 300 <= len(split.train_y) < 300
    ordinary = twins_of(300).split("standard", index)
    assert set(ordinary.train_y) & set(ordinary.test_y)


def test_without_twins_the_scheme_is_the_standard_one() -> None:
    table = Fixed("different", np.arange(50.0)[:, None], np.arange(50.0))
    assert all(np.array_equal(a, b) for a, b in zip(
        table.split_rows(table.table(), "twins", 4), split_rows(50, "standard", 4), strict=True
    ))


def test_dedupe_keeps_the_first_of_equal_rows() -> None:
    table = Fixed("twins", np.array([[3.0], [1.0], [3.0], [2.0], [1.0]]), np.array([9.0, 1.0, 9.0, 4.0, 5.0]), dedupe=True)
    assert table.rows().x[:, 0].tolist() == [3.0, 1.0, 2.0, 1.0]
    assert table.fingerprint() != Fixed("twins", table.x, table.y).fingerprint()


# (set, input) -> number and hash of the published test rows (github.com/cambridge-mlg/DUN); all have ties at the edges
PUBLISHED_GAPS = {
    ("boston", 3): (168, "e93f6e0029c949bc"),
    ("boston", 8): (168, "600e39433e75bdb7"),
    ("concrete", 7): (344, "e151dba4440a88eb"),
    ("energy", 0): (256, "e2198a40cbeecd81"),
    ("energy", 6): (256, "0a09c64377c4d13d"),
    ("yacht", 0): (102, "efda79442628abc8"),
    ("yacht", 3): (102, "3f3ecc69d76cdf82"),
}


@pytest.mark.parametrize(("name", "column"), PUBLISHED_GAPS)
def test_gaps_are_the_published_ones(name: str, column: int) -> None:
    dataset = registry.dataset(name)
    assert isinstance(dataset, data.TableDataset)
    train, test = dataset.split_rows(dataset.table(), "gap", column)
    found = hashlib.sha256(",".join(map(str, sorted(test.tolist()))).encode()).hexdigest()[:16]
    assert (len(test), found) == PUBLISHED_GAPS[name, column]
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(dataset.table())))


def test_there_is_a_gap_for_each_input() -> None:
    """The 83 splits of the literature: the eight sets of the paper and protein."""
    names = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
    assert sum(registry.dataset(name).num_splits("gap") for name in names) == 83
    with pytest.raises(UsageError, match="numbered 0 to 5"):
        registry.dataset("yacht").split("gap", 6)


def test_time_splits_train_on_the_past_and_test_on_the_next_rows() -> None:
    times = np.random.default_rng(0).permutation(100).astype(float)
    blocks = [splits.time_rows(times, "paper", index) for index in range(splits.num_time_splits("paper"))]
    assert [len(test) for _, test in blocks] == [20] * 4
    for train, test in blocks:
        assert times[train].max() < times[test].min()
    assert times[blocks[0][1]].min() == 80
    assert times[blocks[3][1]].tolist() == sorted(times[blocks[3][1]])


def test_rows_of_one_instant_are_not_divided() -> None:
    times = np.repeat(np.arange(10.0), 7)
    for index in range(4):
        train, test = splits.time_rows(times, "paper", index)
        assert not set(times[train]) & set(times[test])


def test_groups_are_not_divided() -> None:
    groups = np.random.default_rng(0).integers(0, 12, 200)
    for index in range(NUM_SPLITS):
        train, test = splits.grouped_rows(groups, "paper", index)
        assert not set(groups[train]) & set(groups[test])
        assert len(train) + len(test) == 200
        assert len(test) > 0
    with pytest.raises(DataError, match="all rows belong to one group"):
        splits.grouped_rows(np.zeros(20, dtype=np.int64), "paper", 0)


def test_folds_are_tested_in_turn() -> None:
    folds = np.array([5.0, 2.0, 5.0, 9.0])
    assert [splits.fold_rows(folds, index)[1].tolist() for index in range(3)] == [[1], [0, 2], [3]]


def test_a_file_gives_splits_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    path.write_text("[[0, 1], [5]]", encoding="utf-8")
    table = Fixed("own", np.arange(6.0)[:, None], np.arange(6.0), splits=str(path))
    assert table.num_splits("paper") == 2
    assert table.split("paper", 0).test_y.tolist() == [0.0, 1.0]
    assert table.split("standard", 1).train_y.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    before = table.fingerprint()
    path.write_text("[[0, 2], [5]]", encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert table.fingerprint() != before


@pytest.mark.parametrize("content", ["{}", "[[0], [9]]", "[[0, 0]]", "[[0.5]]", "nonsense", "[[0,1,2,3,4,5]]", "[[]]"])
def test_split_files_that_make_no_sense_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "splits.json").write_text(content, encoding="utf-8")
    table = Fixed("own", np.arange(6.0)[:, None], np.arange(6.0), splits=str(tmp_path / "splits.json"))
    with pytest.raises(UsageError, match=r"test row|splits\.json"):
        [table.split("paper", index) for index in range(2)]


def test_fewer_training_rows_are_nested_and_leave_the_test_rows() -> None:
    values = np.arange(100.0)
    full = Fixed("growing", values[:, None], values).split("paper", 3)
    some = [Fixed("growing", values[:, None], values, train_rows=rows).split("paper", 3) for rows in (10, 20, 40)]
    assert [len(split.train_y) for split in some] == [10, 20, 40]
    assert all(np.array_equal(split.test_y, full.test_y) for split in some)
    assert set(some[0].train_y) < set(some[1].train_y) < set(some[2].train_y) < set(full.train_y)
    with pytest.raises(DataError, match="has 80 training rows in a split, not 90"):
        Fixed("growing", values[:, None], values, train_rows=90).split("paper", 3)


def test_the_official_split_is_one_however_many_are_asked_for() -> None:
    official = registry.dataset("year[official_split=true]")
    assert {scheme: official.num_splits(scheme) for scheme in splits.SPLIT_SCHEMES} == dict.fromkeys(splits.SPLIT_SCHEMES, 1)
    assert registry.dataset("year").num_splits("large") == NUM_SPLITS


@pytest.mark.parametrize(
    ("x", "y", "columns", "sentence"),
    [
        (np.zeros(5), np.zeros(5), ("a",), r"x of a Table must have the shape \[rows, inputs\]; got \(5,\)"),
        (np.zeros((5, 2)), np.zeros((5, 1)), ("a", "b"), r"y of a Table must have the shape \[rows\]; got \(5, 1\)"),
        (np.zeros((5, 2)), np.zeros(4), ("a", "b"), "x of a Table has 5 rows and y has 4"),
        (np.zeros((5, 2)), np.zeros(5), ("a",), "names 1 columns .* but x has 2"),
        (np.array([["a"]] * 5), np.zeros(5), ("a",), "must be a numpy array of numbers; got <U1 values"),
        ([[0.0]] * 5, np.zeros(5), ("a",), "must be a numpy array of numbers; got list"),
    ],
)
def test_a_table_of_the_wrong_shape_is_one_sentence(x: Floats, y: Floats, columns: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        Table(x, y, columns, "y")


@dataclass(frozen=True)
class Given(data.TableDataset):
    """A data set that gives what it holds."""

    content: object = None

    def describe(self) -> Description:
        return Description(name=self.name, rows=5, inputs=1, target="y", source="formula", available=True)

    def table(self) -> Table:
        return self.content  # type: ignore[return-value]


def test_what_is_no_table_or_has_no_answer_is_one_sentence() -> None:
    with pytest.raises(DataError, match="`table` of mine returned an object of type tuple; it must return a Table"):
        Given("mine", content=(1, 2)).fingerprint()
    table = Table(np.zeros((5, 1)), np.array([0.0, 1.0, np.nan, 0.0, 1.0]), ("x",), "y")
    with pytest.raises(DataError, match="the target of mine is nan in row 2; leave out rows without an answer"):
        Given("mine", content=table).split("paper", 0)
