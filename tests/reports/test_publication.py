"""Committed results and what is printed from them: nothing can go stale unseen, and a partial board says that it is."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fsibench.cli import main
from fsibench.cli.claims import judged, pages
from fsibench.errors import UsageError
from fsibench.harness.store import Store
from fsibench.reports import claims, evenness, publication, published_tables
from fsibench.reports.analysis import plausibility
from fsibench.reports.claims import Claim, citation_problems, judge
from fsibench.reports.companions import _first_kept, convergence
from fsibench.reports.numbers import number
from fsibench.reports.publication import FRAGMENTS, Publication

ROOT = Path(__file__).parents[2]
MakeStore = Callable[..., Path]
ENTRIES = ("aadm", "avb", "bbb", "constant", "ensemble", "fbnn", "gp", "sip", "sip[prior=ns]", "vip")
NOTES = '[families]\n"function space" = ["sip", "vip", "fbnn"]\n[explanations]\n"LL wine VIP" = "the noise is shared"\n'


def packed(store: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    with Store.read(store) as opened:
        opened.pack(folder / "uci.parquet")
    (folder / "board.toml").write_text(NOTES)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, fill_store: MakeStore) -> Path:
    """A small repository: packed results with every fragment in its README."""
    root = tmp_path_factory.mktemp("published")
    large = {("gp", name) for name in ("kin8nm", "naval", "power")}
    failures = {("vip", "wine", 0): "diverged"}
    fill_store(root / "run.sqlite", entries=ENTRIES, splits=5, missing=large, failures=failures)
    (root / "docs").mkdir()
    text = "".join(f"<!-- published {name} -->\nold\n<!-- /published -->\n" for name in FRAGMENTS)
    (root / "README.md").write_text(f"# Results\n{text}")
    return packed(root / "run.sqlite", root / "leaderboard")


def small_site(packed_store: Path, out: Path) -> None:
    """The site has tests of its own, and is slow."""
    out.mkdir()
    (out / "index.html").write_text(f"from {packed_store.name}")


@pytest.fixture(scope="module")
def board(folder: Path) -> Publication:
    return Publication.read(folder / "uci.parquet", folder / "board.toml")


def test_publish_fills_every_marker_and_check_notices_each_change(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsibench.reports.site.build", small_site)
    call = ["publish", "--folder", str(folder)]
    assert main(call) == 0
    assert main([*call, "--check"]) == 0
    readme = folder.parent / "README.md"
    text = readme.read_text()
    assert "\nold\n" not in text
    assert "](leaderboard/ledger.csv)" in text
    assert (folder / "site" / "index.html").is_file()
    for link in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text):
        assert (folder.parent / link).read_text().startswith("<?xml"), "pictures are drawn"
    capsys.readouterr()
    readme.write_text(text.replace("`gp`", "`sip`", 1))
    (folder / "site" / "made-from.txt").write_text("of something else")
    assert main([*call, "--check"]) == 1
    told = capsys.readouterr().err
    assert "README.md is out of date" in told
    assert "site is out of date" in told
    assert "rows.csv" not in told


def test_the_rows_are_those_of_the_store(folder: Path, board: Publication) -> None:
    rows = published_tables.rows_table(board)
    with Store.read(folder / "uci.parquet") as store:
        final = store.evaluations(only_final=True).set_index("cell")
    good = rows[rows["status"] == "ok"].set_index("cell")
    pd.testing.assert_series_equal(good["ll"], final["ll"].reindex(good.index), check_exact=True)
    assert len(rows) == 5 * (8 * len(ENTRIES) - 3)


def test_every_published_score_is_judged_once(board: Publication) -> None:
    assert len(board.judged) == 168
    assert {line.verdict for line in board.judged} <= {"reproduced", "better", "worse", "implausible as printed"}
    table = published_tables.ledger_table(board)
    worse = table[table["verdict"] == "worse"]
    told = worse[(worse["metric"] == "ll") & (worse["dataset"] == "wine") & (worse["method"] == "VIP")]["explanation"]
    assert set(told) <= {"the noise is shared"}
    assert (worse["explanation"] != "").all()


def test_an_odd_score_of_ours_stands_with_its_explanation(board: Publication) -> None:
    odd = plausibility.Doubt("wine", "vip", "ll", "cap", "LL is 2 nats above what a Gaussian with this RMSE can reach")
    for doubts, told in (({"LL wine vip": "twins"}, "reach: twins."), ({}, "reach: not explained yet.")):
        changed = dataclasses.replace(board, doubts=doubts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publication.ledger, "own_doubts", lambda _: [odd])
            text = FRAGMENTS["measures"](changed, "")
        assert "1 doubt, below" in text
        assert text.endswith(f"- LL of `vip` on wine, LL is 2 nats above what a Gaussian with this RMSE can {told}")


def test_who_wins_is_said_first_and_whether_it_is_a_function_space_method(board: Publication) -> None:
    text = FRAGMENTS["winner"](board, "")
    assert text.startswith("**aadm** is first in CRPS")
    assert "before every function-space method; the best of these is" in text
    assert "On the 5 data sets that gp can take too (boston, concrete, energy, wine, yacht): " in text


def test_a_partial_board_says_how_partial_it_is(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(entries=("bbb", "constant", "sip"), splits=2, failures={("sip", "wine", 1): "interrupted"})
    with Store.create(store) as opened:
        planned = {"cells_per_split": {str(split): 24 for split in range(20)}, "budgets": {}, "seconds": 20.0}
        opened.end_run(opened.begin_run(["fsibench"], planned, {}), "interrupted")
    where = packed(store, tmp_path / "partial")
    board = Publication.read(where / "uci.parquet", where / "board.toml")
    text = FRAGMENTS["size"](board, "")
    assert "3 entries, 8 data sets, 20 s per fit; 1 of 20 splits complete, 47 of 480 cells ended" in text
    assert "The board is partial: 19 splits to go" in text
    assert "a verdict needs at least 5 splits of 20 s" in FRAGMENTS["published"](board, "")


def test_cells_that_other_runs_added_count_as_planned(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(entries=("bbb", "constant", "sip"), splits=2)
    with Store.create(store) as opened:
        planned = {"cells_per_split": {"0": 16, "1": 16}, "budgets": {}, "seconds": 20.0}  # without sip
        opened.end_run(opened.begin_run(["fsibench"], planned, {}), "finished")
    where = packed(store, tmp_path / "added")
    board = Publication.read(where / "uci.parquet", where / "board.toml")
    assert "2 of 2 splits complete, 48 of 48 cells ended" in FRAGMENTS["size"](board, "")


def test_entries_with_fewer_splits_than_others_are_named(make_store: MakeStore, tmp_path: Path, board: Publication) -> None:
    names = board.report.results.datasets
    store = make_store(entries=("bbb", "constant", "sip"), splits=3, failures={("sip", name, 2): "interrupted" for name in names})
    where = packed(store, tmp_path / "fewer")
    assert "On fewer splits than 3: sip (2)." in FRAGMENTS["size"](Publication.read(where / "uci.parquet", where / "board.toml"), "")
    assert "fewer splits" not in FRAGMENTS["size"](board, "")


def test_entries_of_a_slower_processor_are_named(make_store: MakeStore, tmp_path: Path, board: Publication) -> None:
    where = packed(make_store(entries=("bbb", "constant", "sip"), splits=1, calibrations={"sip": 0.12, "bbb": 0.105}), tmp_path / "slower")
    text = FRAGMENTS["size"](Publication.read(where / "uci.parquet", where / "board.toml"), "")
    assert "so that their seconds hold fewer steps: sip (1.20 times)." in text
    assert "speed check" not in FRAGMENTS["size"](board, "")


def test_the_short_board_has_the_mean_ranks_of_the_long_one(board: Publication) -> None:
    short, long = FRAGMENTS["board"](board, ""), FRAGMENTS["ranks"](board, "")
    leader = board.report.standings["crps"].table.iloc[0]
    assert "CRPS rank, 5 sets" in short
    assert f"| {leader['mean_rank']:.2f} " in short
    for entry in ENTRIES:
        line = next(line for line in short.splitlines() if f"`{entry}`" in line)
        told = next(line for line in long.splitlines() if f"`{entry}`" in line)
        assert re.findall(r"\d+\.\d\d", line) == re.findall(r"\d+\.\d\d", told)


def test_what_the_protocol_has_beyond_the_board_is_said(board: Publication) -> None:
    text = FRAGMENTS["size"](board, "")
    assert "Not run, though in the protocol: 15 more splits and " in text
    assert "more entries (" in text
    assert "vip_collapsed" in text.split("more entries (")[1]
    assert "vip," not in text.split("more entries (")[1]


def test_entries_that_ran_with_other_options_than_their_names_have_today_are_named(
    board: Publication, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = dict(zip(board.report.results.cells["entry"], map(json.loads, board.report.results.cells["options"]), strict=True))
    monkeypatch.setattr(evenness, "options_today", lambda entry: ran[entry])
    assert "earlier defaults" not in FRAGMENTS["size"](board, "")
    monkeypatch.setattr(evenness, "options_today", lambda entry: {**ran[entry], **({"rate": 0.1} if entry == "vip" else {})})
    assert "Run with earlier defaults, not with today's: vip (rate)." in FRAGMENTS["size"](board, "")


def test_a_fragment_can_be_of_another_store_of_the_folder(make_store: MakeStore, tmp_path: Path) -> None:
    folder = packed(make_store(entries=("bbb", "gp"), splits=2), tmp_path / "board")
    page = tmp_path / "README.md"
    page.write_text("<!-- published against-first of depth -->\n<!-- /published -->\n")
    other = make_store(entries=("dvip[layers=1]", "dvip[layers=2]"), splits=2, name="depth")
    assert main(["publish", "--folder", str(folder), "--name", "depth", "--from", str(other)]) == 0
    assert "better than `dvip[layers=1]` in" in page.read_text()
    assert re.search(r"\| `dvip\[layers=2\]` +\| \d of 8", page.read_text())
    assert main(["publish", "--folder", str(folder), "--check"]) == 0


def test_a_fragment_of_results_to_come_is_empty_and_every_other_absence_is_an_error(
    make_store: MakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsibench.reports.site.build", small_site)
    folder = packed(make_store(entries=("bbb", "gp"), splits=2), tmp_path / "board")
    page, call = tmp_path / "README.md", ["publish", "--folder", str(folder)]
    text = "<!-- published size of depth -->\n<!-- /published -->\n"
    page.write_text(text)
    assert main(call) == 0
    assert main([*call, "--check"]) == 0
    assert page.read_text() == text
    assert "no results of depth yet" in capsys.readouterr().err
    with Store.read(make_store(entries=("dvip[layers=1]",), splits=2, name="depth")) as opened:
        opened.pack(folder / "depth.parquet")
    assert main([*call, "--check"]) == 1, "they have come, and are not shown"
    assert main(call) == 0
    assert main([*call, "--check"]) == 0
    assert "yet: their places" not in capsys.readouterr().err
    (folder / "depth.parquet").unlink()
    assert main([*call, "--check"]) == 2, "lost, while the page has them"
    page.write_text(text.replace("depth", "dpeth"))
    assert main([*call, "--check"]) == 2, "no protocol has this name"
    assert "publish --name dpeth --from STORE" in capsys.readouterr().err


def test_published_numbers_of_other_papers_stand_beside_ours(make_store: MakeStore, tmp_path: Path) -> None:
    store = packed(make_store(entries=("dropout", "bbb"), splits=5, scheme="standard", reproduces={"dropout": "dropout"}), tmp_path / "board") / "uci.parquet"
    text = FRAGMENTS["peers"](Publication.read(store, tmp_path / "none.toml"), "")
    assert "−2.46 ± 0.25 (sd)" in text
    assert "Verdicts: " in text
    assert "protein" not in text, "a set that was not run"


def test_entries_are_held_against_the_printed_means_plus_one_standard_error(make_store: MakeStore, tmp_path: Path) -> None:
    answers = {"bbb": "BBB", "sip[hyperprior=2.5]": "SIP_BNN"}
    recipe = {"entries": (*answers, "gp"), "datasets": {"boston": 9.2}, "splits": 5, "reproduces": answers}
    store = packed(make_store(**recipe, variants={"sip[hyperprior=2.5]": "a hyper-prior"}), tmp_path / "board") / "uci.parquet"
    text = FRAGMENTS["against-printed"](Publication.read(store, tmp_path / "none.toml"), "")
    first, *_ = text.splitlines()
    assert re.fullmatch(r"At least as good as printed: `bbb` \d of 3\.", first), "variants and entries without a column are not held against anything"
    assert "(−2.90)" in text, "LL of BBB on boston, −2.816 ± 0.183: −2.816 − 0.183/√5"
    assert text.count("**missed**") == 3 - int(first.split()[-3])


def test_what_chains_say_of_themselves_is_told_at_its_worst(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store("chains", entries=("hmc", "bbb"), splits=2)
    assert FRAGMENTS["convergence"](Publication.read(store, tmp_path / "none.toml"), "").startswith("| entry")
    with Store.read(store) as opened:
        lls = opened.evaluations(only_final=True).query("entry == 'hmc' and dataset == 'boston'")["ll"]
    line = next(text for text in convergence(store).splitlines() if "boston" in text)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["`hmc`", "boston", "0 of 2", "1.310"]
    assert cells[-1] == number(lls.min())


def test_how_long_the_score_of_the_end_takes_is_told(make_store: MakeStore, tmp_path: Path) -> None:
    where = packed(make_store(entries=("bbb", "constant"), splits=2), tmp_path / "until")
    board = Publication.read(where / "uci.parquet", where / "board.toml")
    lines = {line.split("`")[1]: line for line in FRAGMENTS["until"](board, "").splitlines() if "`" in line}
    assert set(lines) == {"bbb", "constant"}
    spent, _, _, near, nearer = (float(cell.replace("−", "-")) for cell in lines["bbb"].split("|")[2:-1])
    assert 0.0 < near <= nearer <= spent


@pytest.mark.parametrize(("values", "expected"), [([1.0, 2.0, 3.0], 3.0), ([3.0, 1.0, 3.0], 3.0), ([3.0, 3.0, 3.0], 1.0), ([math.nan, 3.0, 3.0], 2.0)])
def test_a_level_counts_as_reached_where_nothing_falls_below_it_again(values: list[float], expected: float) -> None:
    assert _first_kept(np.array([1.0, 2.0, 3.0]), np.array(values), 2.5) == expected


def test_a_store_without_chains_says_so(make_store: MakeStore) -> None:
    assert convergence(make_store("none", entries=("bbb",), splits=1)) == "No entry has chains."


def test_results_of_a_later_run_join_the_committed_ones(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsibench.reports.site.build", small_site)
    where = packed(make_store("first", entries=("bbb", "constant"), splits=1), tmp_path / "joined")
    later = make_store("later", entries=("bbb", "constant"), splits=2)
    assert main(["publish", "--folder", str(where), "--from", str(later)]) == 0
    with Store.read(where / "uci.parquet") as store:
        assert len(store.cells()) == 32


def test_without_results_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "--folder", str(tmp_path)]) == 2
    assert "there are no committed results" in capsys.readouterr().err


# Claims --------------------------------------------------------------------------------------------------------------


def state(board: Publication, holds: str, splits: int = 1) -> str:
    found: str = judge(Claim("c", "t", holds, splits), board)[0]
    return found


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ('better("crps", "aadm", "vip", at_least=8, of=8)', "holds"),
        ('better("crps", "vip", "aadm", at_least=1, of=8)', "fails"),
        ('better("crps", "aadm", "gp", of=5) == 5', "holds"),
        ('better("crps", "aadm", "gp", at_least=5, of=8)', "open"),
        ('better("crps", "aadm", "absent", at_least=1)', "open"),
        ('best_of("crps", "vip", "aadm", "gp") == "aadm"', "open"),
        ('together("crps", "aadm", "avb", "bbb", "constant", "vip") and not together("crps", "aadm", "constant", "avb", "bbb", "vip")', "holds"),
        ('separated("crps", "gp", "constant") == 0', "open"),
        ('separated("pinball", "aadm", "vip") == 0', "open"),
        ('better("nothing", "aadm", "vip") == 8', "open"),
        ('best_of("crps", "vip", "aadm") == "aadm"', "holds"),
        ('first("crps") == "aadm" and place("crps", "aadm") == 1', "holds"),
        ('rank("rmse", "vip") > rank("rmse", "aadm") + 1', "holds"),
        ('score("ll", "boston", "aadm") > score("ll", "boston", "constant")', "holds"),
        ('not failures("vip") > 0', "fails"),
        ('separated("crps", "aadm", "constant") >= 1 and separated("crps", "constant", "aadm") == 0', "holds"),
        ('tier("crps", "aadm") == 1 or reproduced("VIP") > 100', "holds"),
    ],
)
def test_conditions_are_evaluated_on_the_board(board: Publication, holds: str, expected: str) -> None:
    assert state(board, holds) == expected


def test_claims_can_be_about_distances_from_the_posterior(board: Publication) -> None:
    near = Publication.read(ROOT / "leaderboard" / "truth.parquet", ROOT / "leaderboard" / "board.toml")
    assert state(near, 'distance("hmc[prior=reference]") < distance("constant")') == "holds"
    assert state(near, 'distance("hmc[prior=reference]", "outside") > distance("constant", "outside")') == "fails"
    assert state(near, 'agreement("w2", "crps", "low") < agreement("w2", "crps") and agreement("w2", "crps") < 1') == "holds"
    assert state(near, 'agreement("w2", "rmse") < 1') == "open"
    assert state(board, 'distance("vip") < 1') == "open"


def test_a_claim_stays_open_until_it_has_its_splits(board: Publication) -> None:
    assert state(board, 'first("crps") == "aadm"', splits=6) == "open"


@pytest.mark.parametrize(
    "holds",
    ['__import__("os").system("true")', 'open("x")', "(lambda: 1)()", 'better("crps", *[1])', "[1 for x in (1,)]", "rank.__class__",
     'rank("crps", "vip")', 'rank("crps")', "better(", '"".join("a")', "1 < 2 < 3", "_means()"],
)  # fmt: skip
def test_anything_else_is_refused_and_never_executed(board: Publication, holds: str) -> None:
    with pytest.raises(UsageError):
        state(board, holds)


def test_a_citation_needs_the_words_of_a_claim_that_holds() -> None:
    claim = Claim("a", "sip is best.", "")
    page = "It turns out that sip\nis best. <!-- claim a -->"
    assert list(citation_problems({"README.md": page}, {"a": (claim, "holds", "")})) == []
    assert "does not hold" in next(iter(citation_problems({"README.md": page}, {"a": (claim, "fails", "x")})))
    assert "is open" in next(iter(citation_problems({"README.md": page}, {"a": (claim, "open", "x")})))
    assert "does not exist" in next(iter(citation_problems({"README.md": page}, {})))
    other = page.replace("best", "worst")
    assert "is not that of the claim" in next(iter(citation_problems({"README.md": other}, {"a": (claim, "holds", "")})))


def test_a_claims_file_with_a_mistake_is_refused(tmp_path: Path) -> None:
    for text in ("[[claim]]\nid = 'a'", "[[claim]]\nid='a'\ntext='t'\nholds='1'\nwho='x'", "= 3",
                 "[[claim]]\nid='a'\ntext='t'\nholds='f()'"):  # fmt: skip
        (tmp_path / "claims.toml").write_text(text)
        with pytest.raises(UsageError):
            claims.read(tmp_path / "claims.toml")


# What is committed ---------------------------------------------------------------------------------------------------


def test_every_cited_claim_holds_on_the_committed_results() -> None:
    leaderboard = ROOT / "leaderboard"
    assert list(citation_problems(pages(leaderboard), judged(leaderboard))) == []


@pytest.mark.skipif(not (ROOT / "leaderboard" / "uci.parquet").is_file(), reason="no results are committed yet")
def test_what_falls_short_or_looks_odd_is_explained_and_nothing_else_is() -> None:
    committed = Publication.read(ROOT / "leaderboard" / "uci.parquet", ROOT / "leaderboard" / "board.toml")
    worse = {f"{line.metric.upper()} {line.dataset} {line.method}" for line in committed.judged if line.verdict == "worse"}
    assert set(committed.explanations) == worse
    assert set(committed.doubts) == set(committed.own_doubts)


@pytest.mark.skipif(not (ROOT / "leaderboard" / "uci.parquet").is_file(), reason="no results are committed yet")
def test_readme_docs_and_site_are_made_from_the_committed_results() -> None:
    assert main(["publish", "--folder", str(ROOT / "leaderboard"), "--check"]) == 0
