"""Protocols and plans: what TOML may say, and what a cell's identity depends on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fsibench import registry
from fsibench.contract import Method
from fsibench.errors import UsageError
from fsibench.harness.plan import Cell, left_out, load_protocol, make_plan, parse_budget

BASE = 'methods = ["constant", "linear"]\ndatasets = ["yacht"]\nsteps = 3\n'


def protocol_file(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def plan(folder: Path, text: str = BASE, **changes: Any) -> list[Cell]:
    return make_plan(load_protocol(protocol_file(folder, text), changes))


@pytest.mark.parametrize("name", registry.protocols().items)
def test_every_built_in_protocol_names_things_that_exist(name: str) -> None:
    protocol = load_protocol(name, {})
    for text in protocol.methods:
        registry.entry(text)
    for text in protocol.datasets:
        registry.dataset(text)


def test_a_plan_has_one_cell_per_entry_dataset_split_and_seed(tmp_path: Path) -> None:
    cells = plan(tmp_path, splits=3, seeds=[0, 1], datasets=["yacht", "boston"])
    assert len(cells) == 2 * 3 * 2 * 2
    assert len({cell.id for cell in cells}) == len(cells)


def test_an_entry_given_twice_in_other_words_is_planned_once(tmp_path: Path) -> None:
    assert len(plan(tmp_path, methods=["bbb", "bbb[]", "constant"])) == 2


def test_an_interrupted_run_has_finished_comparisons_because_splits_come_first(tmp_path: Path) -> None:
    cells = plan(tmp_path, splits=2, datasets=["yacht", "boston"])
    assert [cell.split for cell in cells] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "seconds"), [("20s", 20), ("1.5m", 90), ("2h", 7200), ("7", 7), ("250ms", 0.25), ("1e2 s", 100)]
)
def test_budgets_are_read_in_any_unit(text: str, seconds: float) -> None:
    assert parse_budget(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["-3s", "0", "soon", "", "3 parsecs", "nan", "1..2s"])
def test_impossible_budgets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


def test_a_budget_on_the_command_line_replaces_steps_in_the_file(tmp_path: Path) -> None:
    path = protocol_file(tmp_path, BASE)
    assert load_protocol(path, {"seconds": 2.0}).budget == "2s"
    path = protocol_file(tmp_path, BASE.replace("steps = 3", 'budget = "9s"'))
    assert load_protocol(path, {"steps": 4}).budget == "4 steps"
    assert load_protocol(path, {}).budget == "9s"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("methods = [", "not valid TOML"),
        ('methods = ["constant"]\nsteps = 3', "lacks the key 'datasets'"),
        (BASE + "splitz = 2", "did you mean 'splits'"),
        (BASE + "splits = 0", "must be at least 1"),
        (BASE + "splits = 2.5", "splits must be a whole number or a text"),
        (BASE.replace('["constant", "linear"]', "5"), "methods must be a list, each a text; got 5"),
        (BASE + "seeds = [123456789012345678901234]", "must be at most 9223372036854775807; got 123456789012345678901234"),
        (BASE.replace("3", "9" * 24), "must be at most 9223372036854775807"),
        (BASE.replace("steps = 3", 'seconds = "abc"'), "seconds must be a whole number or a number; got 'abc'"),
        (BASE.replace("steps = 3", "seconds = true"), "seconds must be a whole number or a number; got True"),
        (BASE.replace("steps = 3", "budget = [1]"), "budget must be a text"),
        (BASE + "steps_ = " + "9" * 5000, "not valid TOML"),
        (BASE + "seeds = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        (BASE + "device = 5", "device must be a text; got 5"),
        (BASE + "[seeds]", "seeds must be a list"),
        (BASE + 'scheme = "papr"', "did you mean 'paper'"),
        (BASE + 'clock = "sun"', "Available: cpu, reference, wall"),
        (BASE + 'budget = "1s"', "either a budget in seconds or a number of steps"),
        (BASE.replace("steps = 3", ""), "either a budget in seconds or a number of steps"),
        (BASE.replace("steps = 3", "steps = 0"), "at least 1"),
        (BASE + "test_rows = 0\n", 'test_rows must be "all" or at least 1; got 0'),
        (BASE + 'test_rows = "most"\n', "test_rows must be \"all\" or at least 1; got 'most'"),
        (BASE + "test_rows = 0.5\n", "test_rows must be a whole number or a text"),
        (BASE.replace('["yacht"]', '"yacht"'), "datasets must be a list, each a text"),
        (BASE.replace('["yacht"]', "[]"), "no datasets"),
        (BASE.replace('"constant"', '"./mine.py:Mine"'), "a protocol runs no code, give it with --methods"),
        (BASE.replace("yacht", "yatch"), "did you mean 'yacht'"),
        (BASE.replace("constant", "konstant"), "did you mean 'constant'"),
    ],
)
def test_every_mistake_in_a_protocol_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(tmp_path, text)
    assert sentence in str(caught.value)


def test_a_method_is_left_out_of_sets_that_are_too_large_for_it_and_the_plan_says_so(tmp_path: Path) -> None:
    path = protocol_file(tmp_path, BASE)
    protocol = load_protocol(path, {"methods": ["gp", "linear"], "datasets": ["yacht", "power"]})
    assert {(cell.entry, cell.dataset) for cell in make_plan(protocol)} == {
        ("gp", "yacht"),
        ("linear", "yacht"),
        ("linear", "power"),
    }
    assert left_out(protocol) == ["gp is left out of power: it is meant for at most 3000 training rows"]


def test_test_rows_of_a_synthetic_set_do_not_count_as_training_rows(tmp_path: Path) -> None:
    many = "bimodal[num_train=100,num_test=50000]"
    cells = plan(tmp_path, methods=["gp"], datasets=[many])
    assert [(cell.entry, cell.dataset) for cell in cells] == [("gp", many)]


def test_a_method_whose_package_is_absent_is_left_out_and_the_plan_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.method_class("svgp"), "requires", ("no_such_package",))
    protocol = load_protocol(protocol_file(tmp_path, BASE), {"methods": ["svgp", "linear"]})
    assert {cell.entry for cell in make_plan(protocol)} == {"linear"}
    assert left_out(protocol) == ["svgp is left out: it needs no_such_package, which is not installed"]


def test_an_absent_protocol_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        load_protocol("quik", {})
    with pytest.raises(UsageError, match="cannot be read"):
        load_protocol(str(tmp_path / "absent.toml"), {})


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": ["bbb[learning_rate=0.02]"]},
        {"datasets": ["boston"]},
        {"steps": 4},
        {"seconds": 3.0},
        {"seeds": [1]},
        {"scheme": "standard"},
    ],
)
def test_changing_what_matters_changes_the_identity(tmp_path: Path, changes: dict[str, Any]) -> None:
    text = BASE.replace('["constant", "linear"]', '["bbb"]')
    assert plan(tmp_path, text)[0].id == plan(tmp_path, text)[0].id
    assert plan(tmp_path, text)[0].id != plan(tmp_path, text, **changes)[0].id


@pytest.mark.parametrize("changes", [{"per_decade": 9}, {"keep": ["functions"]}])
def test_what_only_adds_rows_or_artifacts_keeps_the_identity(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert plan(tmp_path)[0].id == plan(tmp_path, **changes)[0].id


def test_two_files_with_one_name_are_refused_by_naming_both(tmp_path: Path) -> None:
    source = (Path(__file__).parent / "support" / "odd_methods.py").read_text()
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(source)
    with pytest.raises(UsageError, match=r"both called 'noop': .*first\.py:NoOp and .*second\.py:NoOp"):
        plan(tmp_path, methods=[f"{tmp_path}/first.py:NoOp", f"{tmp_path}/second.py:NoOp"])
    assert len(plan(tmp_path, methods=[f"{tmp_path}/first.py:NoOp"] * 2)) == 1


def test_the_code_of_an_entry_is_looked_at_once_however_many_cells_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def version_of(method: Method) -> str:
        asked.append(method.name)
        return "1"

    monkeypatch.setattr("fsibench.harness.identity.version_of", version_of)
    assert len(plan(tmp_path, splits=5, seeds=[0, 1, 2])) == 2 * 5 * 3
    assert asked == ["constant", "linear"]


def test_a_cell_names_its_method_once(tmp_path: Path) -> None:
    one = plan(tmp_path, methods=["bbb[learning_rate=0.02]"])[0]
    assert (one.entry, one.method, one.file) == ("bbb[learning_rate=0.02]", "bbb", None)


def test_the_identity_of_a_step_budget_does_not_depend_on_the_clock(tmp_path: Path) -> None:
    assert plan(tmp_path)[0].id == plan(tmp_path, clock="cpu")[0].id
    assert plan(tmp_path, seconds=1.0)[0].id != plan(tmp_path, seconds=1.0, clock="cpu")[0].id


def test_a_cell_says_which_published_column_it_answers_for_and_how_it_departs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from fsibench import Method\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Method):\n"
        "    name: ClassVar[str] = 'mine'\n"
        "    reproduces: ClassVar[str] = 'MINE'\n"
        "    cold: bool = False\n"
        "    def fit(self, train, budget, generator): yield None\n"
        "    def departure(self): return 'cold posterior' if self.cold else ''\n"
    )
    mine = f"{tmp_path / 'mine.py'}:Mine"
    told = {cell.entry: (cell.reproduces, cell.variant) for cell in plan(tmp_path, methods=[mine, f"{mine}[cold=true]"])}
    assert told == {"mine": ("MINE", ""), "mine[cold=true]": ("MINE", "cold posterior")}


def test_any_splits_can_be_planned(tmp_path: Path) -> None:
    assert {cell.split for cell in plan(tmp_path, splits="15-17,3")} == {15, 16, 17, 3}


def test_splits_that_a_set_does_not_have_are_left_out_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(BASE.replace("yacht", 'boston", "yacht') + 'scheme = "gap"\nsplits = 10', encoding="utf-8")
    protocol = load_protocol(str(path), {})
    counts = Counter(cell.dataset for cell in make_plan(protocol))
    assert counts == {"boston": 2 * 10, "yacht": 2 * 6}
    assert "yacht has 6 splits: the others asked for are left out" in left_out(protocol)


def test_a_split_that_no_set_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="split 20 does not exist: yacht has 20, numbered 0 to 19"):
        plan(tmp_path, splits=21)


@pytest.mark.parametrize("name", ["growth", "tabular"])
def test_every_entry_of_quick_is_in_the_protocols_on_data(name: str) -> None:
    assert load_protocol(name, {}).methods == load_protocol("quick", {}).methods


def test_growth_runs_each_set_at_each_number_of_training_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(BASE + "train_rows = [50, 100, 1000]", encoding="utf-8")
    protocol = load_protocol(str(path), {})
    assert {cell.dataset for cell in make_plan(protocol)} == {"yacht[train_rows=50]", "yacht[train_rows=100]"}
    assert len({cell.data_fingerprint for cell in make_plan(protocol)}) == 2
    assert "yacht is left out at 1000 training rows: it has 246" in left_out(protocol)


def test_a_protocol_names_no_code_file_as_data_set(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(BASE.replace("yacht", "./mine.py:Mine"), encoding="utf-8")
    with pytest.raises(UsageError, match="a protocol runs no code, give it with --datasets"):
        load_protocol(str(path), {})


LITE = """methods = ["constant", "linear"]
datasets = ["yacht", "boston"]
splits = 3
budget = "60s"
budgets = { linear = "90s" }
[lite]
datasets = ["yacht"]
splits = 1
budget = "2s"
"""


def test_the_short_form_of_a_protocol_replaces_some_keys_and_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(LITE)
    long, short = load_protocol(str(file), {}), load_protocol(str(file), {}, lite=True)
    assert (long.datasets, long.splits, long.seconds, long.budgets) == (("yacht", "boston"), (0, 1, 2), 60.0, {"linear": 90.0})
    assert (short.datasets, short.splits, short.seconds, short.budgets) == (("yacht",), (0,), 2.0, {})
    assert short.methods == long.methods
    assert load_protocol(str(file), {"steps": 5}, lite=True).budget == "5 steps"


def test_a_short_form_that_is_not_there_or_wrong_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    for text, lite, message in (
        (LITE.partition("[lite]")[0], True, "has no short form"),
        (LITE.partition("[lite]")[0] + "lite = 3", True, "has no short form"),
        (LITE + 'taste = "sweet"', True, "unknown key"),
        (LITE + 'methods = ["./x.py:X"]', True, "names the code file"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            load_protocol(str(file), {}, lite=lite)


EXPERIMENTS = ("figure1", "alternatives", "inducing-snelson", "inducing-composite", "forward-kl", "adaptive-contrast", "uci", "large",
               "alpha-sweep", "inducing-sweep", "noise-floor")  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_short_form_of_three_minutes_on_two_cores(name: str) -> None:
    short, long = load_protocol(name, {}, lite=True), load_protocol(name, {})
    for text in {*short.methods, *long.methods}:
        registry.entry(text)
    cells = len(short.methods) * len(short.datasets) * len(short.splits) * len(short.seeds)
    each = short.seconds if short.seconds is not None else 0.03 * (short.steps or 0)
    assert cells * each / 2 <= 100, "the rest is for looks and for starting"
