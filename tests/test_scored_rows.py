"""Which test rows a cell is scored on: a function of budget and split, the same for every entry, and cheap."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fsibench import registry
from fsibench.cli import main
from fsibench.contract import Meter
from fsibench.data import prepare
from fsibench.harness import audit, export, fresh_data, hardest, runner
from fsibench.harness.events import Artifact, Evaluation, Report
from fsibench.harness.plan import Cell, load_protocol, make_plan, most_test_rows
from fsibench.harness.schedule import ROWS_PER_LOOK, Schedule, ScoredRows, chosen_rows
from fsibench.harness.store import Store
from fsibench.metrics import Prediction
from fsibench.predictive import Predictive

ODD = Path(__file__).parent / "support" / "odd_methods.py"
LARGE = "bimodal[num_train=20,num_test=3000]"


def plan(**changes: Any) -> list[Cell]:
    content = {"methods": ["constant"], "datasets": [LARGE], **changes}
    return make_plan(load_protocol("smoke", content))


def reports_of(cell: Cell) -> list[Report]:
    reports: list[Report] = []
    runner.run_cell(cell, reports.append)
    return reports


def looks_of(cell: Cell) -> list[Evaluation]:
    return [report for report in reports_of(cell) if isinstance(report, Evaluation)]


@pytest.mark.parametrize(("seconds", "rows"), [(0.5, 1000), (5.0, 1000), (20.0, 4000), (60.0, 12_000)])
def test_the_number_of_rows_follows_from_the_budget(seconds: float, rows: int) -> None:
    assert {cell.test_rows for cell in plan(seconds=seconds, methods=["constant", "linear", "bbb"])} == {rows}
    assert plan(steps=5)[0].test_rows is None
    assert plan(seconds=seconds, test_rows="all")[0].test_rows is None
    assert plan(seconds=seconds, test_rows=70)[0].test_rows == plan(steps=5, test_rows=70)[0].test_rows == 70


def test_an_entry_with_a_budget_of_its_own_is_scored_on_the_rows_of_the_others() -> None:
    protocol = dataclasses.replace(load_protocol("smoke", {"seconds": 10.0}), budgets={"linear": 300.0})
    cells = make_plan(dataclasses.replace(protocol, methods=("constant", "linear"), datasets=(LARGE,)))
    assert {cell.entry: (cell.seconds, cell.test_rows) for cell in cells} == {"constant": (10.0, 2000), "linear": (300.0, 2000)}


def test_other_rows_are_another_cell() -> None:
    assert plan(seconds=5.0, test_rows=1000)[0].id == plan(seconds=5.0)[0].id
    assert len({plan(seconds=5.0, test_rows=rows)[0].id for rows in (1000, 2000, "all")}) == 3


def test_fewer_rows_are_among_more_and_splits_have_rows_of_their_own() -> None:
    def chosen(at_most: int, split: int = 0) -> torch.Tensor:
        rows = chosen_rows(10_000, at_most, LARGE, "paper", split)
        assert rows is not None
        return rows

    assert torch.equal(chosen(4000)[:1000], chosen(1000))
    assert len(chosen(4000).unique()) == 4000
    assert not torch.equal(chosen(1000, split=1), chosen(1000))
    assert chosen_rows(1000, 1000, LARGE, "paper", 0) is None
    assert chosen_rows(1000, None, LARGE, "paper", 0) is None


def predicted_rows(seconds: float, num_test: int, seconds_per_row: float) -> int:
    """Rows that all looks of a fit predict together, where a row costs so much and time is only counted."""
    now = 0.0
    meter = Meter(seconds, clock=lambda: now)
    schedule = Schedule(meter, per_decade=4)
    total = 0
    meter.start()
    while not meter.exhausted:
        now += seconds / 2000
        if schedule.due():
            rows = min(num_test, ROWS_PER_LOOK)
            schedule.paid(rows * seconds_per_row)
            total += rows
    last = most_test_rows(load_protocol("smoke", {"seconds": seconds}))
    return total + min(num_test, last or num_test)


@pytest.mark.parametrize("seconds", [5.0, 20.0, 60.0, 600.0])
@pytest.mark.parametrize("num_test", [200, 10_000, 1_000_000])
def test_looks_predict_at_most_as_many_rows_as_a_tenth_of_the_budget_pays_for(seconds: float, num_test: int) -> None:
    # 0.2 ms a row: 500 networks of 50 units and all scores
    assert predicted_rows(seconds, num_test, 2e-4) * 2e-4 <= 0.1 * seconds


def test_the_last_look_scores_the_rows_of_the_plan_and_says_how_many() -> None:
    first, *_, last = looks_of(plan(methods=[f"{ODD}:RandomWalk"], steps=30, test_rows=1500)[0])
    assert (first.num_rows, last.num_rows, sum(last.pit)) == (ROWS_PER_LOOK, 1500, 1500)
    assert looks_of(plan(steps=3)[0])[-1].num_rows == 3000


def test_entries_are_scored_on_the_same_rows() -> None:
    spread = [looks_of(cell)[-1].scores["crps_uncertainty"] for cell in plan(methods=["constant", "linear"], steps=2, test_rows=100)]
    assert spread[0] == pytest.approx(spread[1], rel=1e-6)  # a function of the targets alone, up to its thresholds
    assert spread[0] != pytest.approx(looks_of(plan(steps=2)[0])[-1].scores["crps_uncertainty"], rel=1e-4)


def test_the_worst_rows_carry_their_numbers_among_all_test_rows() -> None:
    cell = plan(steps=2, test_rows=100)[0]
    prepared = prepare(registry.dataset(LARGE), cell.scheme, cell.split)
    (kept,) = [report.content for report in reports_of(cell) if isinstance(report, Artifact) and report.kind == "hardest"]
    standard = prepared.standardiser
    targets = prepared.test_y[kept["place"]]
    inputs = prepared.test_x[kept["place"]] * standard.x_scale + standard.x_mean
    assert targets.tolist() == pytest.approx(kept["y"], rel=1e-4)
    assert inputs[:, 0].tolist() == pytest.approx([x for (x,) in kept["x"]], rel=1e-3)
    rows = ScoredRows.of(cell, prepared, torch.device("cpu"), 100)
    assert rows.chosen is not None
    assert set(kept["place"]) <= set(rows.chosen.tolist())


def test_rows_of_a_table_keep_their_numbers_too() -> None:
    dataset = registry.dataset("yacht")
    prepared = prepare(dataset, "paper", 0)
    chosen = torch.tensor([40, 7, 3, 55])
    y = torch.from_numpy(prepared.test_y)[chosen]
    flat = Prediction(Predictive(torch.zeros(1, 4).double(), torch.ones(1, 4).double()), y)
    kept = hardest.payload(flat, prepared, chosen)
    assert sorted(kept["place"]) == sorted(chosen.tolist())
    in_units = dataset.rows().y[kept["row"]]  # type: ignore[attr-defined]
    assert in_units.tolist() == pytest.approx(prepared.test_y[kept["place"]].tolist(), rel=1e-5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two entries on 1,000 of 3,000 test rows, predictives kept."""
    path = tmp_path_factory.mktemp("thin") / "s.sqlite"
    arguments = ["--methods", "constant,linear", "--datasets", LARGE, "--budget", "0.05s", "--keep", "predictives"]
    assert main(["run", "smoke", "--store", str(path), "--executor", "inline", *arguments]) == 0
    return path


def test_store_and_exports_tell_scored_rows_and_all_rows(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.read(store) as opened:
        cells = export.frame(opened, "cells")
        looks = export.frame(opened, "evaluations")
    assert set(zip(cells["num_scored"], cells["num_test"], strict=True)) == {(1000, 3000)}
    assert set(looks["num_rows"]) == {1000}
    capsys.readouterr()
    assert main(["store", "show", str(cells["cell"][0]), "--store", str(store)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["num_test"] == 3000
    assert [look["num_rows"] for look in shown["evaluations"]] == [1000]


def test_kept_predictives_are_of_the_scored_rows(store: Path) -> None:
    from fsibench.harness.predictives import restored

    with Store.read(store) as opened:
        kept, scores = opened.artifacts("predictives"), {cell: opened.final_scores(cell) for cell in opened.artifacts("predictives")}
    assert len(kept) == 2
    for cell, content in kept.items():
        predictive, y = restored(content)
        assert len(y) == 1000
        assert float(predictive.crps(y).mean()) == pytest.approx(scores[cell]["crps"], rel=1e-3)


def test_an_audit_compares_with_the_truth_on_the_scored_rows(store: Path) -> None:
    assert audit.audit(store, sample=0, seed=0).findings == []
    part, everything = (audit._truth(LARGE, "paper", 0, rows) for rows in (1000, None))
    assert part["ll"] != everything["ll"]
    assert part["ll"][1] == pytest.approx(everything["ll"][1] * 3**0.5, rel=0.2)  # a third of the rows


def test_fresh_data_are_scored_like_the_cell_that_they_check() -> None:
    cell = plan(seconds=5.0)[0]
    assert fresh_data._like(cell, "linear", LARGE, (0,), 0, 1).test_rows == 1000
    assert most_test_rows(fresh_data._like(plan(steps=3)[0], "linear", LARGE, (0,), 0, 1)) is None


def test_the_report_says_where_fewer_rows_were_scored(store: Path, tmp_path: Path) -> None:
    from fsibench.reports.analysis.overview import Overview
    from fsibench.reports.analysis.results import load

    said = Overview(load(store)).caveats
    assert f"{LARGE}: scored on 1,000 of 3,000 test rows, the same for every entry; the budget is too short for all." in said
    assert main(["report", "--store", str(store), "--out", str(tmp_path / "report")]) == 0
    assert "1,000 of 3,000 test rows" in (tmp_path / "report" / "index.html").read_text()
    (page,) = (tmp_path / "report").glob("dataset-bimodal*.html")
    assert "1\u202f000 of them were scored" in page.read_text()


def test_the_report_says_where_entries_were_scored_on_different_rows(tmp_path: Path) -> None:
    from fsibench.reports.analysis.overview import Overview
    from fsibench.reports.analysis.results import load

    path = tmp_path / "mixed.sqlite"
    for method, rows in (("constant", "50"), ("linear", '"all"')):
        protocol = tmp_path / f"{method}.toml"
        protocol.write_text(f'methods = ["{method}"]\ndatasets = ["yacht"]\nsteps = 2\ntest_rows = {rows}\n')
        assert main(["run", str(protocol), "--store", str(path), "--executor", "inline"]) == 0
    said = Overview(load(path)).caveats
    assert "yacht: entries were scored on different numbers of test rows (50 or 62), so their differences are rough." in said
