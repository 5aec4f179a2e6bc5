"""The tables people have: row names, labels, gaps, dates, formats, odd paths, splits of their own."""

from __future__ import annotations

import bz2
import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from fsibench import options, registry
from fsibench.data import Table, TableDataset, prepare
from fsibench.errors import DataError, UsageError


def dataset(path: Path, query: str = "target=y") -> TableDataset:
    found = registry.dataset(f"file:{path}?{query}")
    assert isinstance(found, TableDataset)
    return found


def load(path: Path, query: str = "target=y") -> Table:
    return dataset(path, query).table()


def text(folder: Path, content: str, name: str = "table.csv") -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


@pytest.fixture
def frame() -> pandas.DataFrame:
    rows = np.arange(40)
    return pandas.DataFrame({"a": rows * 0.5, "y": rows**2 * 1.0})


# --- row names --------------------------------------------------------------------------------------------------


def test_a_column_without_a_name_is_refused(frame: Any, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"column without a name.*index=False, or leave the column out with drop="):
        load(tmp_path / "t.csv")
    assert load(tmp_path / "t.csv", "target=y&drop=").columns == ("a",)
    pandas.read_csv(tmp_path / "t.csv").to_csv(tmp_path / "again.csv", index=False)  # it is called "Unnamed: 0" now
    with pytest.raises(DataError, match="column without a name"):
        load(tmp_path / "again.csv")


@pytest.mark.parametrize("name", [None, "row"])
def test_the_row_names_of_a_parquet_file_are_refused(frame: Any, name: str | None, tmp_path: Path) -> None:
    frame.sample(frac=1, random_state=0).rename_axis(name).to_parquet(tmp_path / "t.parquet")
    column = name or "__index_level_0__"
    with pytest.raises(DataError, match=f"column '{column}' holds the row names of a data frame"):
        load(tmp_path / "t.parquet")
    assert load(tmp_path / "t.parquet", f"target=y&drop={column}").columns == ("a",)


# --- labels, gaps, dates ------------------------------------------------------------------------------------------

COLOURS = "colour,size,y\n" + "".join(f"{'red' if row % 3 else 'blue'},{row},{row * row}\n" for row in range(30))


def test_text_columns_are_refused_until_they_are_asked_for(tmp_path: Path) -> None:
    path = text(tmp_path, COLOURS)
    with pytest.raises(DataError, match="row 1, column 'colour': 'blue' is not a number; categories=onehot"):
        load(path)
    assert load(path, "target=y&categories=onehot").levels == {"colour": ("blue", "red")}
    assert dataset(path, "target=y&categories=onehot").describe().note == "nominal: colour"


def test_a_text_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the target 'colour' has labels \\(blue, red\\), not numbers"):
        load(text(tmp_path, COLOURS), "target=colour&categories=onehot")


def test_encodings_are_learned_on_training_rows_only(tmp_path: Path) -> None:
    """The canary: other labels and gaps in test rows leave every training value as it was."""
    rows = [f"{'red' if row % 3 else 'blue'},{'' if row % 7 == 0 else row},{row * row}" for row in range(30)]
    query = "target=y&categories=onehot&missing=impute"
    before = dataset(text(tmp_path, "\n".join(["c,a,y", *rows])), query)
    _, test = before.split_rows(before.table(), "paper", 0)
    for row in test:
        rows[row] = f"violet,,{row}"
    after = dataset(text(tmp_path, "\n".join(["c,a,y", *rows]), "other.csv"), query)
    old, new = prepare(before, "paper", 0), prepare(after, "paper", 0)
    assert np.array_equal(old.train_x, new.train_x)
    raw = after.split("paper", 0)
    assert raw.train_x.shape[1] == 2 + 2  # blue, red; the number and where it is missing
    assert raw.test_x[:, :2].tolist() == [[0.0, 0.0]] * len(test), "an unknown label is none of the known ones"
    known = raw.train_x[raw.train_x[:, 3] == 0, 2]
    assert np.allclose(raw.test_x[:, 2], known.mean()), "a missing value becomes the training mean"
    assert set(raw.test_x[:, 3]) == {1.0}


def test_labels_as_places_know_the_mean_place_of_unknown_ones(tmp_path: Path) -> None:
    path = text(tmp_path, COLOURS)
    split = dataset(path, "target=y&categories=ordinal").split("paper", 0)
    assert set(split.train_x[:, 0]) == {0.0, 1.0}
    onehot = dataset(path, "target=y&categories=onehot")
    assert onehot.fingerprint() != dataset(path, "target=y&categories=ordinal").fingerprint()


def test_large_tables_are_encoded_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsibench.data import standardise

    chosen = dataset(text(tmp_path, COLOURS), "target=y&categories=onehot")
    small = prepare(chosen, "paper", 0)
    monkeypatch.setattr(standardise, "LARGE_TABLE_VALUES", 0)
    large = prepare(chosen, "paper", 0)
    assert np.array_equal(small.train_x, large.train_x)
    assert np.array_equal(small.test_x, large.test_x)
    assert large.standardiser.x_constant == small.standardiser.x_constant


def test_a_missing_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 2: the target 'y' is missing; remove the rows"):
        load(text(tmp_path, "a,y\n1,2\n3,?\n4,5\n"), "target=y&missing=impute")


def test_a_column_of_many_labels_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = text(tmp_path, "name,y\n" + "".join(f"n{row},{row}\n" for row in range(2000)))
    with pytest.raises(DataError, match=r"1600 labels, too many.*drop=name or number them with categories=ordinal"):
        dataset(path, "target=y&categories=onehot").split("paper", 0)


def test_dates_are_days_on_request(tmp_path: Path) -> None:
    path = text(tmp_path, "day,y\n1970-01-02,1\n1970-01-03T12:00:00,2\n2000-01-01,3\n")
    assert load(path, "target=y&date=day").x[:, 0].tolist() == [1.0, 2.5, 10957.0]
    with pytest.raises(DataError, match="row 1, column 'day'"):
        load(path)
    with pytest.raises(DataError, match="row 1, column 'y': '1' is not a date such as 2024-05-31"):
        load(path, "target=y&date=y&date=day")


# --- formats ----------------------------------------------------------------------------------------------------

PLAIN = "a,y\n1.5,2\n3,4\n-1,0\n"
ARFF = "% made up\n@RELATION r\n@ATTRIBUTE 'a' REAL\n@attribute y numeric\n@DATA\n1.5,2\n% note\n3,4\n-1,0\n"


def zipped(content: str, member: str, folder: Path, name: str) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr(member, content)
    return folder / name


def written(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".zip"):
        return zipped(PLAIN, "inside.csv", folder, name)
    content = (ARFF if ".arff" in name else PLAIN).replace(",", "\t" if ".tsv" in name.lower() else ",").encode()
    packed = gzip.compress(content) if name.lower().endswith(".gz") else content
    path.write_bytes(bz2.compress(content) if name.endswith(".bz2") else packed)
    return path


@pytest.mark.parametrize(
    "name", ["t.csv.bz2", "t.tsv.gz", "T.CSV", "T.CSV.GZ", "t.zip", "t.csv.zip", "t.arff", "t.arff.gz", "t.data"]
)
def test_every_format_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    table = load(written(tmp_path, name))
    assert table.columns == ("a",)
    assert table.x[:, 0].tolist() == [1.5, 3.0, -1.0]
    assert table.y.tolist() == [2.0, 4.0, 0.0]


def test_nominal_and_missing_values_of_arff_files(tmp_path: Path) -> None:
    content = "@relation r\n@attribute c {'a b',c}\n@attribute a real\n@attribute y real\n@data\n'a b',?,1\nc,2,2\n"
    table = load(text(tmp_path, content, "t.arff"), "target=y&categories=onehot&missing=impute")
    assert table.levels == {"c": ("a b", "c")}
    assert np.isnan(table.x[0, 1])


@pytest.mark.parametrize("content", ["1,2\n", "@attribute a real\n", "@attribute\n@data\n", "@relation r\n@data\n1\n"])
def test_files_that_are_no_arff_are_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.arff"):
        load(text(tmp_path, content, "t.arff"))


def test_an_archive_of_several_files_asks_which(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
        archive.writestr("data.csv", PLAIN)
    with pytest.raises(DataError, match=r"holds 2 files; choose one with member=NAME: readme\.txt, data\.csv"):
        load(tmp_path / "t.zip")
    assert len(load(tmp_path / "t.zip", "target=y&member=data.csv")) == 3


@pytest.mark.parametrize(
    ("content", "assumed"),
    [
        ("a;y\n1,5;2\n3,25;4\n", "read with delimiter ';' and a decimal comma"),
        ("a\ty\n1.5\t2\n3.25\t4\n", "read with delimiter '\\t'"),
        ("a   y\n1.5 2\n3.25   4\n", "read with columns divided by white space"),
        ("a|y\n1.5|2\n3.25|4\n", "read with delimiter '|'"),
    ],
)
def test_delimiter_and_decimal_comma_are_found_out_with_a_sentence(
    content: str, assumed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(text(tmp_path, content)).x[:, 0].tolist() == [1.5, 3.25]
    assert assumed in caplog.text


def test_a_usual_file_is_read_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(text(tmp_path, PLAIN))
    assert caplog.text == ""


def test_a_file_without_names_has_numbered_columns(tmp_path: Path) -> None:
    table = load(text(tmp_path, "1,2,3\n4,5,6\n"), "target=c3&header=false")
    assert table.columns == ("c1", "c2")
    assert table.y.tolist() == [3.0, 6.0]


@pytest.mark.parametrize("name", ["a,b.csv", "what?.csv", "50%.csv", "a%2Cb.csv", "x?target=z.csv", "a b&c.csv"])
def test_odd_paths_are_found(name: str, tmp_path: Path) -> None:
    path = text(tmp_path, PLAIN, name)
    assert len(load(path)) == 3
    listed = options.split_list(f"boston,file:{path}?target=y,bimodal[num_train=5,num_test=5],file:{path}?target=y")
    assert listed == ["boston", f"file:{path}?target=y", "bimodal[num_train=5,num_test=5]", f"file:{path}?target=y"]


def test_odd_paths_can_be_written_with_percent_signs(tmp_path: Path) -> None:
    text(tmp_path, PLAIN, "a,b?.csv")
    found = registry.dataset(f"file:{tmp_path}/a%2Cb%3F.csv?target=y")
    assert isinstance(found, TableDataset)
    assert len(found.table()) == 3


# --- splits of their own ------------------------------------------------------------------------------------------


def grid(**columns: list[Any]) -> str:
    names = ["a", *columns, "y"]
    rows = zip(*[range(20), *columns.values(), range(20)], strict=True)
    return "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n"


def test_a_fold_column_gives_the_splits(tmp_path: Path) -> None:
    own = dataset(text(tmp_path, grid(fold=[row % 4 for row in range(20)])), "target=y&split=fold")
    assert own.table().columns == ("a",)
    assert own.num_splits("paper") == 4
    assert own.split("paper", 1).test_y.tolist() == [1.0, 5.0, 9.0, 13.0, 17.0]


def test_a_column_of_train_and_test_is_one_split(tmp_path: Path) -> None:
    words = ["test" if row > 16 else "train" for row in range(20)]
    own = dataset(text(tmp_path, grid(part=words)), "target=y&split=part")
    assert own.num_splits("paper") == 1
    assert own.split("paper", 0).test_y.tolist() == [17.0, 18.0, 19.0]
    with pytest.raises(UsageError, match="split 1 does not exist"):
        own.split("paper", 1)


def test_a_group_column_is_kept_together(tmp_path: Path) -> None:
    own = dataset(text(tmp_path, grid(who=[f"p{row // 2}" for row in range(20)])), "target=y&group=who")
    split = own.split("paper", 0)
    assert not {value // 2 for value in split.train_y} & {value // 2 for value in split.test_y}


def test_a_time_column_puts_the_past_into_training(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02d}" for day in range(20, 0, -1)]
    own = dataset(text(tmp_path, grid(day=days)), "target=y&time=day")
    assert own.num_splits("paper") == 4
    assert sorted(own.split("paper", 0).test_y) == [0.0, 1.0, 2.0, 3.0]


def test_bundled_tables_take_the_same_options(tmp_path: Path) -> None:
    path = text(tmp_path, "[[0, 1, 2]]", "splits.json")
    own = registry.dataset(f"boston[splits={path}]")
    assert own.num_splits("paper") == 1
    assert len(own.split("paper", 0).test_y) == 3
    assert len(registry.dataset("wine[dedupe=true]").split("paper", 0).train_y) == round(0.8 * (1599 - 240))


# --- words that contradict the table or each other ------------------------------------------------------------------


@pytest.fixture
def classes() -> pandas.DataFrame:
    rows = np.arange(30)
    return pandas.DataFrame({"a": rows * 0.5, "y": pandas.Categorical(rows % 3), "b": rows % 2 == 0})


@pytest.mark.parametrize("more", ["", "&categories=onehot"])
@pytest.mark.parametrize("target", ["y", "b"])
def test_classes_stored_as_numbers_or_truth_values_are_not_regressed(
    classes: Any, target: str, more: str, tmp_path: Path
) -> None:
    """Parquet stores a category of numbers as numbers; only the note that pandas leaves says what they are."""
    classes.to_parquet(tmp_path / "t.parquet", index=False)
    with pytest.raises(DataError, match=f"the target '{target}' is nominal.*number={target}"):
        load(tmp_path / "t.parquet", f"target={target}{more}")
    table = load(tmp_path / "t.parquet", f"target={target}&number={target}{more}")
    assert table.y.tolist() == classes[target].astype(float).tolist()


def test_a_nominal_target_of_an_arff_file_is_not_regressed(tmp_path: Path) -> None:
    rows = "\n".join(f"{row},{row % 3}" for row in range(9))
    path = text(tmp_path, f"@relation r\n@attribute a real\n@attribute y {{0,1,2}}\n@data\n{rows}\n", "t.arff")
    with pytest.raises(DataError, match="the target 'y' is nominal"):
        load(path)
    assert load(path, "target=y&number=y").y[:3].tolist() == [0.0, 1.0, 2.0]


def test_a_dropped_column_may_hold_anything(tmp_path: Path) -> None:
    path = text(tmp_path, "name,a,y\nx,1,2\n,3,4\n7,5,6\n")
    assert load(path, "target=y&drop=name").x.tolist() == [[1.0], [3.0], [5.0]]
    pandas.read_csv(path).to_parquet(tmp_path / "t.parquet", index=False)
    assert load(tmp_path / "t.parquet", "target=y&drop=name").x.tolist() == [[1.0], [3.0], [5.0]]
    with pytest.raises(DataError, match="row 2: 2 fields instead of 3"):
        load(text(tmp_path, "name,a,y\nx,1,2\n3,4\n", "ragged.csv"), "target=y&drop=name")


def test_one_text_does_not_make_a_column_of_measurements_nominal(tmp_path: Path) -> None:
    rows = [f"{row / 7:.3f},{row}" for row in range(40)]
    path = text(tmp_path, "\n".join(["a,y", *rows, "1.o5,3"]))
    with pytest.raises(DataError, match=r"row 41, column 'a': '1\.o5' stands among 40 different numbers.*drop=a.*label=a"):
        load(path, "target=y&categories=onehot")
    assert len(load(path, "target=y&label=a").levels["a"]) == 41


def test_numbers_can_be_labels_ordered_by_size(tmp_path: Path) -> None:
    path = text(tmp_path, "zip,y\n" + "".join(f"{code},{row}\n" for row, code in enumerate([10, 9, 100] * 4)))
    table = load(path, "target=y&label=zip")
    assert table.levels == {"zip": ("9", "10", "100")}
    assert table.x[:3, 0].tolist() == [1.0, 0.0, 2.0]
    pandas.read_csv(path).astype(float).to_parquet(tmp_path / "t.parquet", index=False)
    assert load(tmp_path / "t.parquet", "target=y&label=zip").levels == table.levels
    assert dataset(path, "target=y&label=zip").split("paper", 0).train_x.shape[1] == 3


@pytest.mark.parametrize("word", ["drop", "date", "number", "label", "time", "group", "split"])
def test_a_column_that_is_not_there_is_refused_by_every_word(word: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"table\.csv has no column 'aa'; it has 'a', 'y'"):
        load(text(tmp_path, PLAIN), f"target=y&{word}=aa")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("drop=y", "'y' is named by more than one of target="),
        ("time=y", "'y' is named by more than one of target="),
        ("time=a&drop=a", "'a' is named by more than one of target="),
        ("time=a&group=b", "choose one of time=, group="),
        ("split=a&splits=s.json", "choose one of split=, splits="),
        ("label=a&number=a", "'a' is named by label= and by"),
    ],
)
def test_words_that_contradict_each_other_are_refused(query: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        load(text(tmp_path, PLAIN), f"target=y&{query}")


def test_rows_without_a_time_or_group_are_refused_and_rows_without_a_fold_train(tmp_path: Path) -> None:
    path = text(tmp_path, grid(key=["" if row == 4 else "b" if row % 2 else "a" for row in range(20)]))
    with pytest.raises(DataError, match="row 5: the group 'key' is missing; remove the rows without a group"):
        load(path, "target=y&group=key&missing=impute")
    own = dataset(path, "target=y&split=key&missing=impute")
    assert own.num_splits("paper") == 2
    assert all(4.0 in own.split("paper", index).train_y for index in (0, 1))


@pytest.mark.parametrize("row", ["3,4\r5", "x" * 200_000 + ",2"])
def test_rows_of_arff_files_that_cannot_be_divided_are_refused(row: str, tmp_path: Path) -> None:
    (tmp_path / "t.arff").write_bytes(f"@attribute a real\n@attribute y real\n@data\n1,2\n{row}\n".encode())
    with pytest.raises(DataError, match=r"t\.arff, row 2"):
        load(tmp_path / "t.arff")
