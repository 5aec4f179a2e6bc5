"""A data source is one file: found in the folder, by entry point, or named by the user; or a table from Python."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas
import pytest

import fsibench
from fsibench import registry
from fsibench.data import TableDataset
from fsibench.errors import UsageError
from fsibench.harness.plan import load_protocol

# What a package of someone else would hold: scikit-learn's tables under `sk:`.
PLUGIN = '''
from dataclasses import dataclass
import numpy as np
from fsibench.data import Description, Table, TableDataset

PREFIX = "sk:"

@dataclass(frozen=True)
class Bundled(TableDataset):
    def describe(self):
        return Description(self.name, 0, 0, "target", "scikit-learn", True)

    def table(self):
        from sklearn import datasets
        bunch = getattr(datasets, f"load_{self.name.removeprefix(PREFIX)}")()
        return Table(bunch.data.astype(float), bunch.target.astype(float), tuple(bunch.feature_names), "target")

def resolve(reference):
    return Bundled(reference)
'''

OWN = '''
from dataclasses import dataclass
import numpy as np
from fsibench.data import Description, Table, TableDataset

@dataclass(frozen=True)
class Wave(TableDataset):
    rows_: int = 50

    def describe(self):
        return Description(self.name, self.rows_, 1, "y", "formula", True)

    def table(self):
        x = np.linspace(0, 6, self.rows_)
        return Table(x[:, None], np.sin(x), ("x",), "y")
'''


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    for cached in (registry.datasets, registry.sources):
        cached.cache_clear()
    yield
    for cached in (registry.datasets, registry.sources):
        cached.cache_clear()


def install(folder: Path, module: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip leaves behind for a package with an entry point."""
    (folder / f"{module}.py").write_text(content, encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[fsibench.datasets]\n{module} = {module}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.usefixtures("fresh_registry")
def test_an_installed_package_adds_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "sk_tables", PLUGIN, monkeypatch)
    dataset = registry.dataset("sk:diabetes")
    assert isinstance(dataset, TableDataset)
    assert len(dataset.table()) == 442
    assert len(dataset.split("paper", 0).test_y) == 88
    assert len(dataset.fingerprint()) == 64


@pytest.mark.usefixtures("fresh_registry")
def test_a_prefix_offered_twice_is_an_error_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "other_openml", PLUGIN.replace("sk:", "openml:"), monkeypatch)
    with pytest.raises(UsageError, match=r"'openml:' is offered twice: by .*openml\.py and by the installed package"):
        registry.dataset("openml:5")
    assert registry.dataset("boston").name == "boston"


def test_a_file_of_the_user_adds_a_data_set_with_options(tmp_path: Path) -> None:
    (tmp_path / "wave.py").write_text(OWN, encoding="utf-8")
    dataset = registry.dataset(f"{tmp_path}/wave.py:Wave[rows_=30,train_rows=10]")
    assert len(dataset.split("paper", 0).train_y) == 10
    assert dataset.fingerprint() != registry.dataset(f"{tmp_path}/wave.py:Wave[rows_=30]").fingerprint()
    with pytest.raises(UsageError, match="did you mean 'Wave'"):
        registry.dataset(f"{tmp_path}/wave.py:Waves")
    with pytest.raises(UsageError, match="TableDataset is no complete data set"):
        registry.dataset(f"{tmp_path}/wave.py:TableDataset")
    with pytest.raises(UsageError, match="there is no file"):
        registry.dataset("./absent.py:Wave")


def test_a_protocol_may_be_given_a_file_on_the_command_line_only(tmp_path: Path) -> None:
    (tmp_path / "wave.py").write_text(OWN, encoding="utf-8")
    own = f"{tmp_path}/wave.py:Wave"
    assert load_protocol("smoke", {"datasets": [own]}).datasets == (own,)


def test_a_question_mark_brings_options_to_bundled_sets_too() -> None:
    assert registry.dataset("wine?dedupe=true&train_rows=50") == registry.dataset("wine[dedupe=true,train_rows=50]")
    assert registry.with_option("wine?dedupe=true", "train_rows", 50) == "wine?dedupe=true&train_rows=50"


# --- from Python --------------------------------------------------------------------------------------------------


def test_a_data_frame_becomes_a_data_set() -> None:
    frame = pandas.DataFrame({"a": np.arange(30.0), "c": ["u", "v"] * 15, "day": range(30), "y": np.arange(30.0)})
    text = fsibench.add_table(frame, "y", name="mine", categories="onehot", time="day")
    dataset = registry.dataset(text)
    assert isinstance(dataset, TableDataset)
    assert dataset.table().columns == ("a", "c")
    assert sorted(dataset.split("paper", 0).test_y) == [24.0, 25.0, 26.0, 27.0, 28.0, 29.0]
    assert fsibench.add_table(frame, "y", name="mine", categories="onehot", time="day") == text
    changed = frame.assign(a=frame["a"] + 1)
    assert fsibench.add_table(changed, "y", name="mine") != fsibench.add_table(frame, "y", name="mine")


def test_arrays_become_a_data_set() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    dataset = registry.dataset(fsibench.add_table((x, x.sum(1)), drop=["x2"]))
    assert isinstance(dataset, TableDataset)
    assert dataset.table().columns == ("x1", "x3")
    assert np.array_equal(dataset.table().y, x.sum(1))


@pytest.mark.parametrize("data", [(np.zeros((3, 2)), np.zeros(4)), np.zeros(3), "text", (np.zeros(3), np.zeros(3))])
def test_what_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(UsageError, match=r"x \[N, D\]|x should be"):
        fsibench.add_table(data)


def test_columns_of_objects_are_read_as_their_texts() -> None:
    mixed = pandas.DataFrame({"a": [1, "x", None] * 10, "b": [Decimal("1.5")] * 29 + [Decimal(2)], "y": np.arange(30.0)})
    dataset = registry.dataset(fsibench.add_table(mixed, categories="onehot", missing="impute"))
    assert isinstance(dataset, TableDataset)
    table = dataset.table()
    assert table.levels == {"a": ("1", "x")}
    assert np.isnan(table.x[2, 0])
    assert set(table.x[:, 1]) == {1.5, 2.0}
    assert mixed["a"][0] == 1, "the frame is left alone"


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (pandas.DataFrame(np.zeros((5, 3)), columns=["a", "a", "y"]), "more than one column of the same name"),
        (pandas.DataFrame({"a": [1j] * 5, "y": range(5)}), r"cannot be stored .*; convert .*first"),
        (pandas.DataFrame({"a": pandas.arrays.SparseArray([0, 1] * 3), "y": range(6)}), r"convert a \(Sparse"),
    ],
)
def test_a_frame_that_cannot_be_stored_is_refused(frame: pandas.DataFrame, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        fsibench.add_table(frame)


def test_a_target_named_like_an_input_is_refused() -> None:
    with pytest.raises(UsageError, match="the target cannot be called 'x1'"):
        fsibench.add_table((np.zeros((5, 2)), np.arange(5.0)), target="x1")


def test_a_table_from_python_runs_like_any_other(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    text = fsibench.add_table((x, x.sum(1)), name="sum")
    scores = fsibench.run(
        "smoke", methods=["linear"], datasets=[text, "yacht"], executor="inline", store=tmp_path / "s.sqlite"
    )
    assert set(scores["dataset"]) == {text, "yacht"}
