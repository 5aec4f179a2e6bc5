"""The audit names what would make scores mean less than they seem to, and is silent about ordinary columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from fsibench import registry
from fsibench.cli import main
from fsibench.data import Description, Floats, Table, TableDataset, prepare
from fsibench.data.audit import Finding, audit, in_short
from fsibench.data.card import card, text
from fsibench.data.sources.passport import passports
from fsibench.datasets.tables import DATA
from fsibench.harness.plan import load_protocol
from fsibench.harness.store import Store

ROWS = 200


@dataclass(frozen=True)
class Fixed(TableDataset):
    content: Table | None = None

    def describe(self) -> Description:
        return Description(self.name, len(self.table()), self.table().x.shape[1], "y", "made up", True)

    def table(self) -> Table:
        assert self.content is not None
        return self.content


def noise(seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=ROWS)


def found(column: Floats, y: Floats | None = None) -> list[tuple[str, str]]:
    y = noise(1) if y is None else y
    table = Table(np.column_stack([noise(2), column]), y, ("plain", "odd"), "y")
    return [(finding.kind, finding.column) for finding in audit(Fixed("fixed", table))]


ODD = {
    "index": np.arange(ROWS) * 1.0,
    "index downwards": -2.0 * np.arange(ROWS),
    "id": np.random.default_rng(3).permutation(10 * ROWS)[:ROWS] * 1.0,
    "target": 3 * noise(1) - 5,
    "target cubed": noise(1) ** 3,
    "sentinel": np.where(np.arange(ROWS) % 9 == 0, -999.0, noise(4)),
    "digits": 2.0**53 + 2 * np.random.default_rng(5).integers(0, 50, ROWS),
    "constant": np.full(ROWS, 7.0),
    "copy": noise(2),
    "outlier": np.where(np.arange(ROWS) == 5, 1e9, noise(6)),
}


@pytest.mark.parametrize("case", ODD)
def test_each_oddity_is_named_with_its_column(case: str) -> None:
    assert found(ODD[case]) == [(case.split()[0], "odd")]


@pytest.mark.parametrize(
    "column",
    [noise(7), np.round(noise(8)), np.random.default_rng(9).integers(0, 100, ROWS) * 1.0, noise(1) + 0.5 * noise(9)],
    ids=["normal", "rounded", "counts", "a good predictor"],
)
def test_ordinary_columns_are_passed(column: Floats) -> None:
    assert found(column) == []


@pytest.mark.parametrize(("values", "sentence"), [(2, "binary"), (6, "one of 6 values")])
def test_targets_of_few_values_are_named(values: int, sentence: str) -> None:
    y = np.random.default_rng(0).integers(0, values, ROWS) * 1.0
    table = Table(np.column_stack([noise(2), noise(3)]), y, ("a", "b"), "y")
    [finding] = audit(Fixed("fixed", table))
    assert (finding.kind, finding.column) == ("classes", "y")
    assert sentence in finding.sentence


def test_bundled_tables_give_no_reason_to_worry_but_the_known_ones() -> None:
    known = {"wine": {"classes", "twins"}, "skillcraft": {"classes", "twins"}, "concrete": {"twins"}, "power": {"twins"}}
    known["fish-toxicity"] = {"twins"}
    for name in load_protocol("tabular", {}).datasets:
        dataset = registry.dataset(name)
        assert isinstance(dataset, TableDataset)
        kinds = {finding.kind for finding in audit(dataset, splits=tuple(range(20)))}
        assert kinds == known.get(name, set()), name


def test_published_twins_are_counted_ones() -> None:
    for name, passport in passports(DATA).items():
        if (DATA / f"{name}.csv.gz").exists():
            twins = card(registry.dataset(name))["twins"]
            assert twins["repeats"] == passport.twins
            assert twins["share"] == pytest.approx(passport.twin_share, abs=1e-3)


def test_a_run_takes_the_twins_of_a_large_table_from_its_passport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsibench.data.card.MOST_TWIN_VALUES", 0)
    monkeypatch.setattr("fsibench.data.card.twins_across", lambda *_: pytest.fail("counted"))
    assert card(registry.dataset("wine"), quick=True)["twins"] == {"repeats": 240, "share": 0.266}


def test_twins_flatter_the_nearest_neighbour_on_wine() -> None:
    """0.73 with the twins, 0.86 without: what the card's 27 % mean."""

    def rmse(name: str, index: int) -> float:
        rows = prepare(registry.dataset(name), "standard", index)
        guess = KNeighborsRegressor(1).fit(rows.train_x, rows.train_y).predict(rows.test_x)
        guess = guess * rows.standardiser.y_scale + rows.standardiser.y_mean
        return float(np.sqrt(np.mean((guess - rows.test_y) ** 2)))

    assert np.mean([rmse("wine", index) for index in range(20)]) == pytest.approx(0.73, abs=0.015)
    assert np.mean([rmse("wine[dedupe=true]", index) for index in range(20)]) == pytest.approx(0.86, abs=0.015)


def test_a_card_says_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "card", "wine"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "# wine", "1,599 rows, 11 inputs", "CC BY 4.0", "Cortez", "240 rows repeat another; 27 % of test rows",
        "mean 5.63602, sd 0.807317", "█", "the target is one of 6 values",
    ):
        assert part in shown
    assert main(["data", "card", "wine", "bimodal", "--json"]) == 0
    wine, bimodal = json.loads(capsys.readouterr().out)
    assert sum(wine["target_values"]["histogram"]["counts"]) == 1599
    assert bimodal["source"] == "formula"
    assert "- size: 2,000 rows, 1 inputs" in text(bimodal)


def test_a_card_counts_labels_and_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{'u' if row % 2 else 'v'},{'' if row == 3 else row * 0.3},{row**2}\n" for row in range(30))
    path.write_text("c,a,y\n" + rows, encoding="utf-8")
    content = card(registry.dataset(f"file:{path}?target=y&categories=onehot&missing=impute"))
    assert content["nominal"] == {"c": 2}
    assert content["missing"] == {"a": 1}
    assert "- nominal: c (2 labels)" in text(content)


def test_the_cards_in_the_docs_are_those_of_the_bundled_sets() -> None:
    """After a change: fsibench data card NAME ... (in the order of the page), below its first lines."""
    page = (Path(__file__).parents[2] / "docs" / "cards.md").read_text(encoding="utf-8")
    _, *sections = page.rstrip().split("\n## ")
    names = [section.partition("\n")[0] for section in sections]
    assert set(names) == {*load_protocol("tabular", {}).datasets, "bimodal", "heteroscedastic", "composite"}
    for name, section in zip(names, sections, strict=True):
        assert f"## {section}".rstrip() == text(card(registry.dataset(name)))


def test_the_audit_command_prints_one_line_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "audit", "wine", "boston", "bimodal"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in shown] == ["wine", "wine", "boston", "bimodal"]
    assert shown[0] == "wine: classes: quality: the target is one of 6 values; densities and intervals mean little for it"
    assert shown[2] == "boston: nothing found"


def test_a_run_says_what_to_mind_in_one_line_and_stores_the_cards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.sqlite"
    arguments = ["--methods", "constant", "--datasets", "wine,boston", "--executor", "inline", "--store", str(store)]
    assert main(["run", "smoke", *arguments]) == 0
    assert "audit of the data: wine (few-valued target, 27 % twins)." in capsys.readouterr().err
    with Store.read(store) as opened:
        [run] = opened.runs()
    cards = run["environment"]["data"]
    assert cards["wine"]["twins"]["repeats"] == 240
    assert cards["boston"]["audit"] == []


def test_findings_are_shortened_for_one_line() -> None:
    kinds = [Finding("constant", "a", ""), Finding("constant", "b", ""), Finding("twins", "", "3.4 % of the test rows")]
    assert in_short([{"kind": f.kind, "column": f.column, "sentence": f.sentence} for f in kinds]) == "2 constant, 3.4 % twins"


def test_the_tabular_protocol_has_every_bundled_table() -> None:
    bundled = {path.name.removesuffix(".csv.gz") for path in DATA.glob("*.csv.gz")}
    assert set(load_protocol("tabular", {}).datasets) == bundled


def test_dev_has_the_development_suite_and_protein_as_its_large_end() -> None:
    suite = {name for name, passport in passports(DATA).items() if passport.suite == "development"}
    dev, larger = (set(load_protocol(name, {}).datasets) for name in ("dev", "larger"))
    assert suite <= dev
    assert dev - suite == {"protein"}
    assert dev & larger == {"protein"}, "reported on, where no other table of dev is"


# --- cleaning up ------------------------------------------------------------------------------------------------


def test_clean_removes_prepared_splits_and_with_all_the_tables(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fsibench.data import standardise

    monkeypatch.setattr(standardise, "LARGE_TABLE_VALUES", 0)
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{row * 0.5},{row * row}\n" for row in range(50)), encoding="utf-8")
    dataset = registry.dataset(f"file:{path}?target=y")
    rows = prepare(dataset, "paper", 0)
    before = rows.train_x.copy()
    assert main(["data", "clean"]) == 0
    assert "removed 0.0 MB" in capsys.readouterr().out
    assert not list((cache_folder / "prepared").iterdir())
    assert list((cache_folder / "tables").iterdir())
    assert np.array_equal(rows.train_x, before), "a map that is in use stays readable"
    assert main(["data", "clean", "--all"]) == 0
    assert not list((cache_folder / "tables").iterdir())
    assert np.array_equal(prepare(dataset, "paper", 0).train_x, before)
