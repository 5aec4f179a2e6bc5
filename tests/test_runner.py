"""One cell: seeds, schedule, clocks, failures."""

from __future__ import annotations

import dataclasses
import io
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fsibench import registry
from fsibench.contract import Budget, Data, Meter
from fsibench.errors import UsageError
from fsibench.executors.base import Event
from fsibench.harness import driver, runner
from fsibench.harness.events import Artifact, Evaluation, Finished, Report, Started
from fsibench.harness.plan import Cell, load_protocol, make_plan

ODD = Path(__file__).parent / "support" / "odd_methods.py"


def line_of(text: str) -> int:
    """The line of the odd methods in which a text stands first."""
    return next(number for number, line in enumerate(ODD.read_text().splitlines(), 1) if text in line)


def cell(method: str, **changes: Any) -> Cell:
    content = {"methods": [method], "datasets": ["yacht"], "steps": 20, **changes}
    if "seconds" in changes:
        del content["steps"]
    return make_plan(load_protocol("smoke", content))[0]


def run(one: Cell) -> tuple[list[Evaluation], Finished]:
    """Evaluations and the closing report of a cell."""
    reports: list[Report] = []
    runner.run_cell(one, reports.append)
    (end,) = [report for report in reports if isinstance(report, Finished)]
    assert reports[-1] is end
    return [report for report in reports if isinstance(report, Evaluation)], end


def scores(rows: list[Evaluation]) -> dict[int, tuple[float, float, float]]:
    return {row.step: (row.scores["rmse"], row.scores["ll"], row.scores["crps"]) for row in rows}


def test_evaluations_are_log_spaced_in_steps_and_end_with_the_budget() -> None:
    rows, end = run(cell(f"{ODD}:NoOp", steps=1000, per_decade=2))
    assert [row.step for row in rows] == [1, 4, 10, 32, 100, 317, 1000]
    assert end.status == "ok"


def test_evaluations_are_log_spaced_in_seconds() -> None:
    rows, _ = run(cell(f"{ODD}:Sleeper[seconds=0.01]", seconds=0.8, per_decade=3))
    instants = [row.train_seconds for row in rows]
    # Each look comes after its instant; how soon after is up to the machine.
    assert len(instants) <= 4
    assert instants[0] >= 0.1
    assert instants[-1] >= 0.8
    assert all(later / earlier > 1.2 for earlier, later in itertools.pairwise(instants))


def test_equal_seeds_give_equal_bits_under_any_evaluation_schedule() -> None:
    dense, _ = run(cell(f"{ODD}:RandomWalk", steps=50, per_decade=20))
    sparse, _ = run(cell(f"{ODD}:RandomWalk", steps=50, per_decade=1))
    assert len(dense) > len(sparse)
    assert {step: scores(dense)[step] for step in scores(sparse)} == scores(sparse)


def test_bbb_is_bit_identical_under_any_evaluation_schedule() -> None:
    dense, _ = run(cell("bbb", steps=30, per_decade=20))
    sparse, _ = run(cell("bbb", steps=30, per_decade=1))
    assert scores(dense)[30] == scores(sparse)[30]


def test_seed_split_and_entry_have_streams_of_their_own() -> None:
    base = cell(f"{ODD}:RandomWalk")
    seeds = {runner._Run(one, lambda _: None).generator("fit").initial_seed() for one in (
        base,
        dataclasses.replace(base, seed=1),
        dataclasses.replace(base, split=1),
        dataclasses.replace(base, entry="walk[size=2]"),
    )}
    assert len(seeds) == 4


def test_the_global_seed_does_not_matter() -> None:
    torch.manual_seed(1)
    first, _ = run(cell(f"{ODD}:RandomWalk"))
    torch.manual_seed(2)
    second, _ = run(cell(f"{ODD}:RandomWalk"))
    assert scores(first) == scores(second)


def test_an_exact_method_that_yields_once_is_evaluated_once() -> None:
    rows, end = run(cell("linear", seconds=5.0))
    assert {row.step for row in rows} == {1}
    assert end.status == "ok"
    assert end.clocks["train_seconds"] < 5.0
    assert end.clocks["predict_rows"] == rows[-1].num_rows, "the last look uses what the first one predicted"
    assert set(rows[-1].scores) > set(rows[0].scores)


def test_a_prediction_without_density_has_all_scores_but_the_log_likelihood() -> None:
    rows, end = run(cell(f"{ODD}:TrainingTargets"))
    assert end.status == "ok"
    assert "ll" not in rows[-1].scores
    assert rows[-1].scores["crps"] > 0.0


def test_scores_are_in_the_units_of_the_target() -> None:
    rows, _ = run(cell("constant"))
    # The sd of yacht's target is 15.1; a constant prediction cannot be better or much worse.
    assert rows[-1].scores["rmse"] == pytest.approx(15.1, rel=0.2)
    assert rows[-1].scores["sharpness"] == pytest.approx(15.1, rel=0.1)
    assert sum(rows[-1].pit) == 62  # 20 % of 308 rows


def test_evaluating_costs_no_training_second(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_score(*arguments: Any) -> dict[str, float]:
        time.sleep(0.3)
        return {"rmse": 1.0, "ll": -1.0, "crps": 1.0, "sharpness": 1.0}

    monkeypatch.setattr(runner, "score", slow_score)
    rows, end = run(cell(f"{ODD}:NoOp", steps=100, per_decade=2))
    assert len(rows) >= 4
    assert rows[-1].train_seconds < 0.3
    assert end.clocks["evaluate_seconds"] > 0.3 * len(rows) * 0.9


def test_a_budget_in_cpu_seconds_does_not_count_sleep() -> None:
    _, wall = run(cell(f"{ODD}:Sleeper[seconds=0.02]", seconds=0.2))
    assert wall.clocks["wall_seconds"] >= 0.2
    assert wall.clocks["cpu_seconds"] < 0.5 * wall.clocks["wall_seconds"]
    meter = Meter(seconds=0.05, clock=time.process_time)
    meter.start()
    time.sleep(0.1)
    assert not meter.exhausted


def test_pulling_one_step_costs_the_harness_at_most_20_microseconds() -> None:
    run(cell(f"{ODD}:NoOp", steps=2))  # warm
    _, end = run(cell(f"{ODD}:NoOp", steps=100_000, per_decade=1))
    assert end.clocks["cpu_seconds"] / 100_000 < 20e-6


@pytest.mark.parametrize(
    ("method", "status", "message", "num_evaluations"),
    [
        ("Raises[after=30]", "ok", None, 7),
        ("Raises[after=3]", "error", f"RuntimeError: the method failed on purpose (fit, line {line_of('the method failed')} of odd_methods.py)", 2),
        ("RaisesInPredict", "error", f"RuntimeError: predict failed on purpose (predict, line {line_of('predict failed')} of odd_methods.py)", 0),
        ("Explodes", "diverged", "Diverged: the loss is nan at step 2", 1),
        ("NotANumber", "diverged", "Diverged: the predictive distribution is not finite", 1),
        (
            "NegativeScale",
            "diverged",
            "Diverged: the predictive distribution has a negative scale; it must be positive",
            0,
        ),
        (
            "ReturnsPosterior",
            "error",
            "`fit` of returns-posterior returned an object of type Gaussian; it must `yield` posteriors, also if there is only one.",
            0,
        ),
        ("YieldsNothing", "error", "yields-nothing ended without a posterior; `fit` must yield at least once.", 0),
        (
            "YieldsNone",
            "error",
            "`fit` of yields-none yielded None; a posterior has `predict` and `draw`.",
            0,
        ),
    ],
)
def test_failures_become_statuses_and_earlier_points_stay(
    method: str, status: str, message: str | None, num_evaluations: int
) -> None:
    rows, end = run(cell(f"{ODD}:{method}", per_decade=4))
    assert (end.status, end.message) == (status, message)
    assert len(rows) == num_evaluations


def test_a_method_that_writes_into_its_rows_changes_no_other_cell() -> None:
    clean, _ = run(cell("linear"))
    run(cell(f"{ODD}:ScribblesOnItsRows"))
    after, _ = run(cell("linear"))
    assert scores(after) == scores(clean)


def test_an_edited_table_is_read_anew_and_an_edit_since_the_plan_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{i},{2 * i + i % 3}" for i in range(40)]
    table.write_text("\n".join(["x,y", *rows]))
    one = cell("linear", datasets=[f"file:{table}?target=y"])
    first, _ = run(one)
    table.write_text("\n".join(["x,y", *(f"{row}0" for row in rows)]))
    nothing, end = run(one)
    assert (nothing, end.status) == ([], "lost")
    assert "are not the planned ones" in str(end.message)
    second, _ = run(cell("linear", datasets=[f"file:{table}?target=y"]))
    assert scores(second) != scores(first)


def test_code_that_was_edited_since_the_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(ODD.read_text())
    one = cell(f"{path}:NoOp")
    assert run(one)[1].status == "ok"
    path.write_text(ODD.read_text().replace("loc: float = 0.0", "loc: float = 0.5"))
    nothing, end = run(one)
    assert (nothing, end.status) == ([], "lost")
    assert "is not the planned one" in str(end.message)


def test_looks_before_the_end_use_fewer_rows_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    full, _ = run(cell("linear"))
    monkeypatch.setattr("fsibench.harness.schedule.ROWS_PER_LOOK", 20)
    thin, end = run(cell(f"{ODD}:RandomWalk", steps=30, per_decade=1))
    assert [(row.step, row.num_rows) for row in thin] == [(1, 20), (10, 20), (30, 62)]
    assert end.clocks["predict_rows"] == 20 + 20 + 62
    again, _ = run(cell("linear"))
    assert scores(again[-1:]) == scores(full)  # the last look, at the same step as the first, uses every row


def test_looks_of_a_time_budget_cost_about_a_tenth_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_score(*arguments: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return {"rmse": 1.0, "ll": -1.0, "crps": 1.0, "sharpness": 1.0}

    monkeypatch.setattr(runner, "score", slow_score)
    rows, _ = run(cell(f"{ODD}:Sleeper[seconds=0.01]", seconds=1.5, per_decade=10))
    # 0.075 s for looks before the end: one or two of them, where twelve instants pass; and the last one.
    assert 2 <= len(rows) <= 4
    assert rows[-1].train_seconds >= 1.5


def test_work_while_paused_is_measured_and_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_score(*arguments: Any) -> dict[str, Any]:
        time.sleep(0.3)
        return {"rmse": 1.0, "ll": -1.0, "crps": 1.0, "sharpness": 1.0}

    monkeypatch.setattr(runner, "score", slow_score)
    _, thread = run(cell(f"{ODD}:WorksInAThread", steps=3))
    assert thread.clocks["flags"] == "works_while_paused"
    assert thread.clocks["paused_cpu_seconds"] > 0.05
    _, child = run(cell(f"{ODD}:WorksInAChild", steps=3))
    assert child.clocks["flags"] == "works_while_paused"
    _, honest = run(cell(f"{ODD}:RandomWalk", steps=3))
    assert honest.clocks["flags"] == ""


def test_work_that_is_left_to_predict_is_flagged() -> None:
    _, lazy = run(cell(f"{ODD}:WorksInPredict", steps=3))
    assert lazy.clocks["flags"] == "costly_predict"


def test_a_budget_in_cpu_seconds_counts_child_processes() -> None:
    _, end = run(cell(f"{ODD}:WorksInAChild", seconds=0.3, clock="cpu"))
    assert end.clocks["wall_seconds"] < 5.0  # the parent sleeps: without its child the budget would hardly be touched


def test_an_error_keeps_its_traceback() -> None:
    _, end = run(cell(f"{ODD}:Raises"))
    assert "in fit" in str(end.traceback)
    assert 'raise RuntimeError("the method failed on purpose")' in str(end.traceback)


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_an_absent_device_is_a_clear_error(name: str) -> None:
    present = torch.cuda.is_available() if name == "cuda" else torch.backends.mps.is_available()
    if present:
        pytest.skip(f"this machine has {name}")
    with pytest.raises(UsageError, match=f"no {name} device; use cpu"):
        runner.device_named(name)
    with pytest.raises(UsageError, match="choose cpu, cuda or mps"):
        runner.device_named("abacus")


def test_budgets_must_be_one_of_two_kinds_and_positive() -> None:
    for arguments in ({}, {"seconds": 1.0, "steps": 1}, {"seconds": 0.0}, {"steps": -1}, {"seconds": float("nan")}):
        with pytest.raises(ValueError, match="budget"):
            Budget(**arguments)


def test_a_method_cannot_move_its_budget() -> None:
    _, end = run(cell(f"{ODD}:ExtendsItsBudget", seconds=0.2))
    assert end.status == "error"
    assert "a budget is read-only" in str(end.message)
    assert end.clocks["train_seconds"] < 1.0
    meter = Meter(seconds=1.0)
    for name, value in (("seconds", 8.0), ("steps_done", 0), ("_spent", lambda: (0.0, 0))):
        with pytest.raises(AttributeError, match="read-only"):
            setattr(meter.budget, name, value)


def test_a_budget_that_was_tampered_with_does_not_move_the_end() -> None:
    meter = Meter(steps=2)
    object.__setattr__(meter.budget, "steps", 100)
    meter.steps_done = 2
    assert meter.exhausted


def test_a_budget_made_by_hand_ends() -> None:
    budget = Budget(seconds=0.05)
    time.sleep(0.06)
    assert budget.exhausted


def test_the_clock_stands_still_between_pulls() -> None:
    meter = Meter(seconds=0.2)
    pulls = meter.pulls(registry.entry(f"{ODD}:NoOp").method, Data(torch.zeros(3, 1), torch.zeros(3)), torch.Generator())
    next(pulls)
    time.sleep(0.3)
    assert meter.elapsed < 0.1


def test_a_fraction_runs_from_zero_to_one() -> None:
    meter = Meter(steps=4)
    seen = []
    for _ in range(6):
        seen.append(meter.budget.fraction)
        meter.steps_done += 1
    assert seen == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


def test_an_epoch_visits_every_row_once_and_keeps_the_short_batch() -> None:
    data = Data(torch.arange(23.0)[:, None], torch.arange(23.0))
    batches = data.batches(10, torch.Generator().manual_seed(0))
    epoch = [next(batches) for _ in range(3)]
    assert [len(batch) for batch in epoch] == [10, 10, 3]
    assert sorted(torch.cat([batch.y for batch in epoch]).tolist()) == list(range(23))
    assert all(torch.equal(batch.x[:, 0], batch.y) for batch in epoch)


@pytest.mark.parametrize(("rows", "at_most", "held"), [(150, None, 30), (150, 10, 10), (11, None, 2), (2, None, 1)])
def test_held_out_rows_and_the_others_are_all_rows(rows: int, at_most: int | None, held: int) -> None:
    data = Data(torch.arange(rows, dtype=torch.float32)[:, None], torch.arange(rows, dtype=torch.float32))
    choosing, learning = data.held_out(torch.Generator().manual_seed(0), at_most=at_most)
    assert (len(choosing), len(learning)) == (held, rows - held)
    assert sorted([*choosing.y.tolist(), *learning.y.tolist()]) == list(range(rows))
    assert torch.equal(choosing.x[:, 0], choosing.y)


def test_a_single_row_is_held_out_and_learned_from() -> None:
    data = Data(torch.zeros(1, 2), torch.zeros(1))
    assert data.held_out(torch.Generator()) == (data, data)


def test_large_data_are_drawn_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsibench.contract.LARGEST_PERMUTATION", 10)
    data = Data(torch.arange(1000.0)[:, None], torch.arange(1000.0))
    batches = data.batches(50, torch.Generator().manual_seed(0))
    rows = torch.cat([next(batches).y for _ in range(200)])
    assert rows.numel() == 10_000
    assert rows.mean() == pytest.approx(499.5, abs=15)  # standard error 2.9


def functions_of(one: Cell) -> dict[str, Any] | None:
    reports: list[Report] = []
    runner.run_cell(one, reports.append)
    kept = [dict(report.content) for report in reports if isinstance(report, Artifact) and report.kind == "functions"]
    return kept[0] if kept else None


def test_a_set_with_one_input_keeps_a_small_payload_of_its_first_split() -> None:
    cells = make_plan(load_protocol("smoke", {"methods": ["linear"], "datasets": ["snelson"], "splits": 2}))
    small, none = (functions_of(one) for one in cells)
    assert none is None
    assert small is not None
    assert len(small["draws"]) == 10
    whole = functions_of(dataclasses.replace(cells[0], keep=("functions",)))
    assert whole is not None
    assert len(whole["draws"]) == 20
    assert functions_of(cell("linear")) is None  # six inputs cannot be drawn


def test_a_set_with_two_inputs_keeps_mean_and_sd_on_a_plane(tmp_path: Path) -> None:
    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
    y = 3.0 + x[:, 0] - 2.0 * x[:, 1]
    lines = [f"{a:.5f},{b:.5f},{c:.5f}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]
    (tmp_path / "plane.csv").write_text("\n".join(["a,b,y", *lines]))
    kept = functions_of(cell("linear", datasets=[f"file:{tmp_path / 'plane.csv'}?target=y"]))
    assert kept is not None
    mean = torch.tensor(kept["mean"])
    expected = 3.0 + torch.tensor(kept["x"])[None, :] - 2.0 * torch.tensor(kept["x2"])[:, None]
    torch.testing.assert_close(mean, expected, atol=0.05, rtol=0.01)


def test_the_time_left_begins_from_the_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    todo = make_plan(load_protocol("smoke", {"methods": ["constant", "bbb"], "datasets": ["yacht"], "splits": 3, "seconds": 30.0}))
    progress = driver.Progress(todo, 2, io.StringIO())
    assert progress.seconds_left() == pytest.approx(6 * 30.0 / 2)
    now = [0.0]
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
    first = next(one for one in todo if one.entry == "constant")
    progress.update(Event(first, Started()), {})
    now[0] = 0.5
    progress.update(Event(first, Finished("ok", None, None, {})), {})
    assert progress.seconds_left() == pytest.approx((2 * 0.5 + 3 * 30.0) / 2)  # not 5 cells of half a second


def test_what_a_good_cell_says_is_shown_once_on_a_terminal() -> None:
    todo = make_plan(load_protocol("smoke", {"methods": ["constant"], "datasets": ["yacht"], "splits": 3, "seconds": 30.0}))
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    progress = driver.Progress(todo, 1, stream)
    for one in todo:
        progress.update(Event(one, Started()), {})
        progress.update(Event(one, Finished("ok", "the metric odd is left out: it is inf", None, {})), {})
    assert stream.getvalue().count("the metric odd is left out") == 1
