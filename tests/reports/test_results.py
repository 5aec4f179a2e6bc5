"""Reading a store: conditions, outcomes, curves."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fsibench.errors import UsageError
from fsibench.harness.store import Store
from fsibench.reports.analysis import results, statistics
from fsibench.reports.analysis.anytime import (
    NUM_TARGETS,
    Anytime,
    area,
    area_range,
    quartiles,
    shares_of_targets,
    time_grid,
)
from fsibench.reports.analysis.overview import Overview

MakeStore = Callable[..., Path]


def test_final_scores_are_those_of_the_store(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0})
    loaded = results.load(path)
    with Store.read(path) as store:
        finals = store.evaluations(only_final=True).set_index("cell").loc[loaded.cells["id"]]
    for metric in ("rmse", "ll", "crps", "sharpness"):
        np.testing.assert_array_equal(loaded.final(metric), finals[metric])


def test_failed_cells_have_no_final_score_and_unfinished_ones_are_not_in_the_table(make_store: MakeStore) -> None:
    failures = {("bbb", "boston", 0): "diverged", ("bbb", "boston", 1): "interrupted"}
    loaded = results.load(make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, failures=failures))
    table = loaded.table("rmse").set_index(["entry", "split"])["value"]
    assert np.isnan(table["bbb", 0])
    assert ("bbb", 1) not in table.index
    assert np.isfinite(table["bbb", 2])


def test_a_report_shows_one_condition_per_data_set_and_names_the_others(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=3)
    make_store(entries=("bbb",), datasets={"boston": 9.0}, splits=2, budget="60s")  # the same file
    loaded = results.load(path)
    assert set(loaded.cells["budget"]) == {"20s"}
    assert len(loaded.left_out) == 1
    assert "2 cells with scheme paper, budget 60s" in loaded.left_out[0]
    assert set(results.load(path, {"budget": "60s"}).cells["budget"]) == {"60s"}
    with pytest.raises(UsageError, match="no cell has budget '7s'"):
        results.load(path, {"budget": "7s"})


def test_score_at_a_time_is_that_of_the_last_evaluation_before_it(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=1)
    loaded = results.load(path)
    anytime = Anytime.shared(loaded, 30)
    with Store.read(path) as store:
        rows = store.evaluations()
    for index, cell in enumerate(loaded.cells["id"]):
        curve = rows[rows["cell"] == cell]
        for column, seconds in enumerate(anytime.seconds[index]):
            before = curve[curve["train_seconds"] <= seconds * (1 + 1e-9)]
            expected = before["crps"].iloc[-1] if len(before) else np.nan
            np.testing.assert_equal(anytime.values("crps")[index, column], expected)


def test_drawn_curves_pass_through_the_evaluations_and_are_straight_in_log_time(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb",), datasets={"boston": 9.0}, splits=1)
    loaded = results.load(path)
    drawn = Anytime.per_dataset(loaded, 33)
    with Store.read(path) as store:
        curve = store.evaluations()
    expected = np.interp(np.log(drawn.seconds[0]), np.log(curve["train_seconds"]), curve["ll"])
    np.testing.assert_allclose(drawn.values("ll")[0], expected, rtol=1e-6)


def test_a_failed_cell_has_scores_until_it_fails(make_store: MakeStore) -> None:
    failures = {("bbb", "boston", 0): "diverged"}
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=1, failures=failures)
    loaded = results.load(path)
    anytime = Anytime.shared(loaded, 30)
    row = int(np.flatnonzero(loaded.failed)[0])
    values, end = anytime.values("rmse")[row], loaded.end_seconds[row]
    before = anytime.seconds[row] < end
    assert np.isfinite(values[before]).any()
    assert np.isnan(values[~before]).all()


def test_the_grid_ends_at_the_last_evaluation_and_spans_four_decades_at_most() -> None:
    grid = time_grid(1e-6, 20.0, 10)
    assert grid[-1] == pytest.approx(20.0)
    assert grid[0] == pytest.approx(2e-3)
    assert time_grid(np.inf, 0.0, 5).tolist() == [1.0]


def test_quartiles_are_numpys_where_at_least_half_are_present() -> None:
    values = np.array([[1.0, np.nan, np.nan], [2.0, 5.0, np.nan], [4.0, 6.0, np.nan], [9.0, 7.0, 1.0]])
    middle, low, high = quartiles(values)
    np.testing.assert_allclose(middle, [3.0, 6.0, np.nan])
    np.testing.assert_allclose(low, [np.quantile(values[:, 0], 0.25), 5.5, np.nan])
    np.testing.assert_allclose(high, [np.quantile(values[:, 0], 0.75), 6.5, np.nan])


def test_share_of_targets_grows_and_the_best_entry_ends_high(full_store: Path) -> None:
    overview = Overview(results.load(full_store))
    shares = shares_of_targets(overview, Anytime.shared(overview.results, 20), "rmse")
    assert all((np.diff(share) >= 0).all() for share in shares.values())
    final = {entry: share[-1] for entry, share in shares.items()}
    assert max(final, key=lambda entry: final[entry]) == "aadm"
    assert final["constant"] < 0.2


def test_share_of_targets_is_the_distribution_of_times_to_target(make_store: MakeStore) -> None:
    overview = Overview(results.load(make_store(entries=("bbb", "constant", "vip"), datasets={"boston": 9.0, "wine": 0.8})))
    grid = Anytime.shared(overview.results, 15)
    shares = shares_of_targets(overview, grid, "ll")
    times = []
    for (dataset, entry), rows in grid.groups.items():
        if entry == "bbb":
            means = overview.summaries["ll"]["mean"][dataset]
            goals = statistics.targets(means["constant"], means.max(), NUM_TARGETS)
            times += [statistics.time_to_targets(grid.grids[dataset], grid.values("ll")[row], goals, True) for row in rows]
    expected = statistics.reached_share(np.concatenate(times), grid.grids["boston"])
    np.testing.assert_allclose(shares["bbb"], expected)


def test_calibration_error_of_uniform_counts_is_zero_and_of_a_point_mass_a_half() -> None:
    point = np.zeros(20)
    point[0] = 50.0  # no central interval holds it: mean of 0.1, 0.2, ... 0.9
    assert results.calibration_error(np.full(20, 7.0)) == pytest.approx(0.0, abs=1e-12)
    assert results.calibration_error(point) == pytest.approx(0.5)


def test_calibration_error_from_counts_is_the_metric_of_that_name() -> None:
    import torch

    from fsibench import metrics
    from fsibench.predictive import Predictive

    generator = torch.Generator().manual_seed(0)
    y = torch.randn(500, generator=generator).double()
    predictive = Predictive(torch.zeros(1, 500).double(), torch.full((1, 500), 0.6).double())
    expected = metrics.known()["calibration"].compute(metrics.Prediction(predictive, y))
    counts = np.bincount((predictive.cdf(y) * 20).long().clamp(0, 19).numpy(), minlength=20)
    assert results.calibration_error(counts.astype(float)) == pytest.approx(expected, abs=1e-9)


def test_a_metric_that_does_not_exist_for_an_entry_is_not_a_failure(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant", "samples"), datasets={"boston": 9.0, "wine": 0.8}, without_ll={"samples"})
    overview = Overview(results.load(path))
    assert overview.blocks["ll"].entries == ["bbb", "constant"]
    assert overview.blocks["crps"].entries == ["bbb", "constant", "samples"]
    assert len(overview.blocks["ll"].values) == 6
    assert np.isnan(overview.board.loc["samples", "mean_rank_ll"])
    assert "Not ranked in LL, which they do not have: samples." in overview.caveats
    assert not overview.results.failed.any()


@pytest.mark.parametrize(("clock", "is_told"), [("wall", True), ("cpu", True), ("reference", False)])
def test_seconds_of_unequal_machines_are_marked_unless_the_clock_makes_them_equal(
    make_store: MakeStore, clock: str, is_told: bool
) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0, "wine": 0.8})
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET clock = ?, calibration_seconds = 0.10", (clock,))
    assert not any("machines" in sentence for sentence in Overview(results.load(path)).caveats)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET calibration_seconds = 0.25 WHERE dataset = 'wine'")
    overview = Overview(results.load(path))
    told = [text for text in overview.caveats if "machines" in text]
    assert len(told) == is_told, "once, where seconds do not compare"
    assert all("speeds differ by a factor of 2.5" in text for text in told)
    assert overview.board["train_seconds"].isna().all() == is_told


def test_an_entry_that_distrusts_itself_is_shown_and_not_ranked(full_store: Path) -> None:
    overview = Overview(results.load(full_store))
    assert overview.distrusted == ["hmc"]
    assert "hmc" not in overview.ranked
    assert "hmc" in overview.board.index
    assert "Not ranked, because the method's own diagnostics failed: hmc (27 of 27 cells)." in overview.caveats


def test_a_subset_keeps_order_and_names(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant", "vip"), datasets={"boston": 9.0, "wine": 0.8})
    subset = results.Subset(entries=("vip", "bbb"), datasets=("wine",), names={"vip": "VIP (ours)"})
    loaded = results.load(path, subset=subset)
    assert loaded.entries == ["VIP (ours)", "bbb"]
    assert loaded.datasets == ["wine"]
    assert loaded.stored_names == {"VIP (ours)": "vip", "bbb": "bbb"}
    assert subset.words() == ["--entries", "vip,bbb", "--datasets", "wine", "--rename", "vip=VIP (ours)"]
    for wrong, message in (
        (results.Subset(entries=("viq",)), "the store has no entry 'viq'; it has bbb, constant, vip"),
        (results.Subset(names={"x": "y"}), "--rename names 'x'"),
        (results.Subset(names={"bbb": "vip"}), "the same name"),
    ):
        with pytest.raises(UsageError, match=message):
            results.load(path, subset=wrong)


def test_the_area_of_targets_counts_the_last_decade_only() -> None:
    grid = np.geomspace(0.002, 20.0, 41)
    early = np.where(grid < 1.9, 1.0, 0.4)  # all targets at once, then worse than a slow one
    late = np.where(grid < 2.1, 0.0, 1.0)
    assert area_range(grid) == (2.0, 20.0)
    assert area(grid, early) == pytest.approx(0.4)
    assert area(grid, late) == pytest.approx(0.9)  # reached after a tenth of the decade, in log time


def test_an_empty_store_is_reported_without_a_crash(tmp_path: Path) -> None:
    from fsibench.reports import site, terminal

    path = tmp_path / "empty.sqlite"
    with Store.create(path):
        pass
    assert "no results" in terminal.render(path)
    assert site.build(path, tmp_path / "site").is_file()


def test_a_store_with_only_unfinished_cells_is_reported_without_a_crash(make_store: MakeStore, tmp_path: Path) -> None:
    from fsibench.reports import site, terminal

    failures = {("bbb", "boston", split): "running" for split in range(3)}
    path = make_store(entries=("bbb",), datasets={"boston": 9.0}, failures=failures)
    assert "No dataset × split" in terminal.render(path)
    assert site.build(path, tmp_path / "site").is_file()


def test_a_store_of_one_cell_is_reported(make_store: MakeStore, tmp_path: Path) -> None:
    from fsibench.reports import site, terminal

    path = make_store(entries=("bbb",), datasets={"boston": 9.0}, splits=1)
    assert "bbb" in terminal.render(path)
    page = site.build(path, tmp_path / "site", formats=()).read_text(encoding="utf-8")
    assert json.dumps("bbb") in page
