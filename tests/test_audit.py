"""The audit: twenty planted cheats and slips are named, honest entries are not, and what is claimed can be repeated."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fsibench import checks, registry
from fsibench.checks import problems
from fsibench.cli import main
from fsibench.data import prepare
from fsibench.harness import audit, fresh_data, plausibility, tampering
from fsibench.harness.events import Evaluation, Finished
from fsibench.harness.identity import derive_seed
from fsibench.harness.store import Store
from fsibench.harness.witness import Account

SUPPORT = Path(__file__).parent / "support"
CHEATS = SUPPORT / "cheats.py"

# Found when their cells run again under watch, or in the rows that they left.
CAUGHT_IN_THE_ACT = {
    "rereads": "RereadsTheSplit",
    "memorises": "MemorisesRows",
    "frames": "LooksAtFrames",
    "searches": "SearchesMemory",
    "patches": "PatchesTheScorer",
    "clock": "PatchesTheClock",
    "forges": "ForgesEvents",
    "budget": "MovesTheBudget",
    "thread": "WorksInAThread",
    "child": "WorksInAChild",
    "global-random": "GlobalRandom",
    "lazy": "LazyPredict",
}
# Found by the contract checks.
CAUGHT_BY_CHECK = {
    "WrongUnitsMethod": "beats_the_constant",
    "VarianceForScaleMethod": "beats_the_constant",
    "LearnsFromLooksMethod": "looking_changes_nothing",
    "IncoherentMethod": "draws_are_coherent_functions",
    "WritesIntoRows": "inputs_are_left_alone",
}
# Found on fresh data: `prepared` and `lucky`. Found by running again: a store edited by hand. Twenty in all.
HONEST = ("linear", "constant", "bbb", f"{CHEATS}:HonestMethod")


def run(store: Path, methods: list[str], *arguments: str) -> None:
    protocol = store.with_suffix(".toml")
    protocol.write_text('methods = ["linear"]\ndatasets = ["yacht"]\nsteps = 3\n')
    chosen = ["--methods", ",".join(methods), "--store", str(store), "--workers", "2"]
    assert main(["run", str(protocol), *chosen, *arguments]) == 0


def named(result: audit.Audit) -> set[str]:
    return {finding.entry for finding in result.findings}


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> audit.Audit:
    store = tmp_path_factory.mktemp("audit") / "s.sqlite"
    code = [f"{CHEATS}:{cheat}" for cheat in CAUGHT_IN_THE_ACT.values()]
    run(store, [*code, *HONEST])
    with sqlite3.connect(store) as connection:  # a nicer number, by hand
        connection.execute("UPDATE evaluations SET ll = ll + 0.01 WHERE cell IN (SELECT id FROM cells WHERE entry = 'bbb')")
    connection.close()
    return audit.audit(store, sample=50, seed=0, code=[*code, *HONEST])


@pytest.mark.parametrize("entry", list(CAUGHT_IN_THE_ACT))
def test_a_cheat_is_named(caught: audit.Audit, entry: str) -> None:
    assert entry in named(caught)


def test_what_a_cheat_did_is_said(caught: audit.Audit) -> None:
    told = {entry: " ".join(f.explanation for f in caught.findings if f.entry == entry) for entry in named(caught)}
    assert "calls data.standardise.prepare" in told["rereads"]
    assert "calls data.tables.table" in told["memorises"] or "registry.dataset" in told["memorises"]
    assert "sys._getframe" in told["frames"]
    assert "gc.get_objects" in told["searches"]
    assert "replaces fsibench.predictive.mixture.Predictive.log_prob" in told["patches"]
    assert "replaces time.perf_counter" in told["clock"]
    assert "beyond the budget of 3" in told["budget"]
    assert "starts a thread" in told["thread"]
    assert "starts a process" in told["child"]
    assert "costly_predict" in told["lazy"]


def test_an_edited_store_is_named_and_honest_entries_are_not(caught: audit.Audit) -> None:
    edited = [finding for finding in caught.findings if finding.entry == "bbb"]
    assert [finding.check for finding in edited] == ["rerun"]
    assert "ll" in edited[0].explanation
    assert not named(caught) & {"linear", "constant", "honest"}


@pytest.mark.parametrize(("cheat", "check"), list(CAUGHT_BY_CHECK.items()))
def test_a_slip_fails_its_check_and_an_honest_fit_does_not(
    cheat: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "TRAINING_SECONDS", 0.1)
    outcomes = [checks.run(check, registry.entry(f"{CHEATS}:{name}").method) for name in (cheat, "HonestMethod")]
    assert [outcome.status for outcome in outcomes] == ["failed", "ok"]


def prepared_at_home(path: Path) -> None:
    """A copy of the prepared cheats with the answers to the published splits in it."""
    answers: dict[float, list[float]] = {}
    for split in range(3):
        rows = prepare(registry.dataset("yacht"), "paper", split)
        standard = rows.standardiser
        key = round(float(torch.from_numpy(np.array(rows.train_y[:5])).double().sum()), 3)
        answers[key] = ((rows.test_y - standard.y_mean) / standard.y_scale).tolist()
    seeds = [derive_seed("lucky", "yacht", "paper", split, 0, "fit") for split in range(3)]
    source = (SUPPORT / "prepared.py").read_text()
    source = source.replace("ANSWERS: dict[float, list[float]] = {}", f"ANSWERS: dict[float, list[float]] = {answers}")
    path.write_text(source.replace("SEEDS: list[int] = []", f"SEEDS: list[int] = {seeds}"))


def test_an_advantage_that_was_prepared_is_gone_on_fresh_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared_at_home(tmp_path / "mine.py")
    code = f"{tmp_path / 'mine.py'}:PreparedForTheSplits,{tmp_path / 'mine.py'}:LuckySeed"
    run(tmp_path / "s.sqlite", [*code.split(","), "gp"], "--splits", "3")
    capsys.readouterr()
    arguments = ["audit", str(tmp_path / "s.sqlite"), "--sample", "3", "--seed", "1", "--methods", code]
    assert main([*arguments, "--fresh", "--splits", "3"]) == 1
    *told, last = capsys.readouterr().out.splitlines()
    assert {line.split(":")[0] for line in told} == {"prepared", "lucky"}
    assert all(": fresh: " in line for line in told)  # nothing was to be seen in the rows or in the act
    assert last.startswith("2 entries have something to explain")


def test_code_files_run_again_only_when_they_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "s.sqlite", [f"{CHEATS}:HonestMethod", "constant"])
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "s.sqlite")]) == 0
    assert f"note: {CHEATS}:HonestMethod was not run again: it is a file of code" in capsys.readouterr().out


# Rows ----------------------------------------------------------------------------------------------------------------


def test_scores_that_cannot_stand_together_are_found_and_a_perfect_gaussian_is_not() -> None:
    ll = -plausibility.HALF_LOG_2_PI_E - np.log(0.3)
    assert list(plausibility.too_good(0.3, ll, 0.3 / np.sqrt(np.pi))) == []
    assert "nats above" in next(plausibility.too_good(0.3, ll + 2, 0.17))
    assert "of RMSE" in next(plausibility.too_good(0.3, ll, 0.03))


def test_the_truth_is_the_oracle_and_more_than_the_truth_is_named(tmp_path: Path) -> None:
    truth = audit._truth("bimodal", "paper", 0)
    row = {"entry": "a", "dataset": "bimodal", "scheme": "paper", "split": 0, "final": 1, "num_rows": None}
    exact = pd.DataFrame([{**row, **{key: value for key, (value, _) in truth.items()}}])
    result = audit.Audit()
    audit.check_oracles(pd.DataFrame(), exact, result)
    assert result.findings == []
    audit.check_oracles(pd.DataFrame(), exact.assign(ll=exact["ll"] + 0.5, rmse=0.8 * exact["rmse"]), result)
    assert {finding.explanation.split(":")[1].split()[0] for finding in result.findings} == {"ll", "rmse"}
    # The expected scores of the true density, by quadrature, are shipped with the reports.
    expected = {"rmse": 5.34805, "ll": -2.05738, "crps": 2.70059}
    assert all(abs(truth[key][0] - value) < 4 * truth[key][1] for key, value in expected.items())


def test_a_rerun_is_compared_bit_for_bit_or_within_rounding_of_another_machine() -> None:
    stored = pd.DataFrame([{"step": 1, "rmse": 1.0, "ll": None}])
    look = Evaluation(1, 0.1, 0.1, 0.1, {"rmse": 1.0 + 1e-15, "ll": float("nan")}, (), {})
    again = Account((look, Finished("ok")), ())
    assert "rmse 1.0 is stored" in audit.compare(stored, again, 0.0)
    assert audit.compare(stored, again, 1e-9) == ""
    assert "ended as error" in audit.compare(stored, Account((look, Finished("error", "no")), ()), 0.0)
    assert "looks at steps" in audit.compare(stored.assign(step=2), again, 0.0)


def test_an_advantage_is_lost_only_when_chance_cannot_explain_it() -> None:
    reference = {"ll": 0.0, "rmse": 1.0}

    def pairs(*values: float) -> list[tuple[dict[str, float], dict[str, float]]]:
        return [({"ll": value, "rmse": float(np.exp(-value))}, reference) for value in values]

    assert fresh_data.lost_advantage(pairs(2.0, 2.1, 1.9), pairs(2.0, 1.8, 2.2, 1.9)) == ""
    assert fresh_data.lost_advantage(pairs(2.0, 2.1, 1.9), pairs(1.9, -3.0, 2.0, 2.1)) == ""  # one bad split
    assert "is 0.025 on fresh" in fresh_data.lost_advantage(pairs(2.0, 2.1, 1.9), pairs(0.0, 0.1, -0.1, 0.1))
    assert fresh_data.lost_advantage(pairs(0.05, 0.05), pairs(-1.0, -1.0, -1.0)) == ""  # there was none to lose


def test_fresh_rows_are_the_same_inputs_in_other_hands_with_another_target() -> None:
    first, second = (registry.dataset(f"fresh:{key}:yacht").split("paper", 0) for key in ("1", "2"))
    published = registry.dataset("yacht").split("paper", 0)
    assert first.train_x.shape == published.train_x.shape
    pool = [np.sort(np.concatenate([split.train_x, split.test_x]).ravel()) for split in (first, published)]
    np.testing.assert_array_equal(*pool)
    assert not np.array_equal(first.test_x, second.test_x)
    added = {tuple(x): y for x, y in zip(first.train_x, first.train_y, strict=True)}
    was = {tuple(x): y for x, y in zip(published.train_x, published.train_y, strict=True)}
    both = [x for x in added if x in was]
    line, residual, *_ = np.linalg.lstsq(
        np.column_stack([np.array(both), np.ones(len(both))]), np.array([added[x] - was[x] for x in both]), rcond=None
    )
    assert np.abs(line[:-1]).max() > 0.1
    assert residual.sum() < 1e-12 * len(both)


def test_the_harness_on_disk_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tampering.replaced() == []
    monkeypatch.setattr("fsibench.metrics.score", lambda *_: {})
    assert tampering.replaced() == ["fsibench.metrics.score"]


def test_a_store_that_names_nothing_known_is_audited_as_far_as_it_goes(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s.sqlite") as store:
        store.begin_run(["fsibench"], {"name": "p", "methods": ["gone"], "datasets": ["yacht"], "steps": 2}, {})
    result = audit.audit(tmp_path / "s.sqlite", sample=3, seed=0)
    assert result.findings == []
    assert any("unknown method 'gone'" in note for note in result.notes)


@pytest.mark.slow
def test_none_of_our_entries_is_accused(tmp_path: Path) -> None:
    """Every built-in, on a table and on a problem with a known truth: rows, oracle, rerun and conduct."""
    entries = sorted(registry.methods().items)
    run(tmp_path / "s.sqlite", entries, "--datasets", "yacht,bimodal[num_train=100,num_test=200]")
    result = audit.audit(tmp_path / "s.sqlite", sample=len(entries), seed=0)
    assert result.findings == []


@pytest.mark.slow
def test_the_advantage_of_our_entries_holds_on_fresh_data(tmp_path: Path) -> None:
    run(tmp_path / "s.sqlite", ["gp", "bbb"], "--steps", "100", "--splits", "2")
    result = audit.audit(tmp_path / "s.sqlite", sample=0, seed=0, fresh=3)
    assert result.findings == []
