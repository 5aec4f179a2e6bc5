"""What a report writes: pages, tables, figures, terminal text, comparisons."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fsibench.cli import compare as compare_command
from fsibench.cli import report as report_command
from fsibench.errors import UsageError
from fsibench.harness.store import Store
from fsibench.reports import compare, figures, markdown, numbers, site, styles, tables, terminal
from fsibench.reports.analysis import anytime, calibration, results, statistics
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.report import file_stems

MakeStore = Callable[..., Path]
HOSTILE = ("<script>alert(1)</script>", "quote\"'`${x}\\", "名前 مرحبا Ω", "a|b_c&d#e%f~g^h", "long" * 60)
PAGES = ("index", "convergence", "calibration", "statistics", "pairs", "functions", "entries", "datasets", "ledger", "run")


def page_data(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def test_the_site_has_all_pages_and_every_link_leads_somewhere(full_site: Path) -> None:
    names = {path.name for path in full_site.glob("*.html")}
    assert {name for name in names if not name.startswith(("entry-", "dataset-"))} == {f"{name}.html" for name in PAGES}
    assert len(names) == len(PAGES) + 10 + 9
    for name in names:
        links = re.findall(r'href="([^"#]+)"', (full_site / name).read_text(encoding="utf-8"))
        assert all((full_site / link).is_file() for link in links if link != "data:,")


def test_pages_need_nothing_from_outside(full_site: Path) -> None:
    for path in full_site.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        outside = set(re.findall(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//[^"' >]+""", text))
        assert outside == set()
        assert "default-src 'none'" in text


def test_embedded_scores_are_those_of_the_store(full_store: Path, full_site: Path) -> None:
    loaded, data = results.load(full_store), page_data(full_site / "index.html")
    board = data["board"]
    values = np.frombuffer(base64.b64decode(board["values"]["crps"]), dtype="<f4")
    values = values.reshape(len(data["entries"]), board["num_blocks"], len(board["grid"]) + 1)
    names = [entry["name"] for entry in data["entries"]]
    blocks = list(zip(board["dataset_of"], board["split_of"], strict=True))
    final = loaded.final("crps")
    for cell, row in loaded.cells[loaded.finished].iterrows():
        block = blocks.index((data["datasets"].index(row["dataset"]), row["split"]))
        np.testing.assert_allclose(values[names.index(row["entry"]), block, -1], final[int(str(cell))], rtol=1e-6)


def test_failures_notes_and_warnings_are_on_the_pages(full_site: Path) -> None:
    index, run = ((full_site / name).read_text(encoding="utf-8") for name in ("index.html", "run.html"))
    assert "3 cells failed: a failed cell ranks last" in index
    assert "fvi (reconstruction)" in index
    assert "hmc ⚠ diagnostics failed" in index
    for status in ("diverged", "oom", "error", "interrupted"):
        assert f'<td class="text">{status}</td>' in run
    assert "loss is nan at step 12" in run
    assert "fsibench run uci --budget 20s" in run
    assert "rhat" in run


def test_markdown_has_ranking_scores_failures_and_commands(full_site: Path) -> None:
    text = (full_site / "report.md").read_text(encoding="utf-8")
    for part in ("## Ranking", "## RMSE", "Mean ± standard error over splits", "## Failures", "fsibench run uci"):
        assert part in text


def test_hostile_names_stay_text(make_store: MakeStore, tmp_path: Path) -> None:
    path = make_store(
        entries=("constant", *HOSTILE), datasets={"<b>set</b>": 3.0, "../../etc": 1.0}, splits=2,
        failures={(HOSTILE[0], "../../etc", 0): "error"}, message="</script><script>alert(2)</script>",
        notes={HOSTILE[0]: "<i>note</i>"},
    )  # fmt: skip
    out = tmp_path / "site"
    site.build(path, out, formats=())
    for page in out.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script>alert" not in text
        assert "<i>note</i>" not in text
        assert "<b>set</b>" not in text
    names = [entry["name"] for entry in page_data(out / "index.html")["entries"]]
    assert sorted(names) == sorted(("constant", *HOSTILE))
    assert "<script>" not in (out / "report.md").read_text(encoding="utf-8")
    assert HOSTILE[2] in terminal.render(path)


def test_file_names_are_safe_and_distinct() -> None:
    stems = file_stems(["a/b", "a b", "../x", "", "ok-1.5"])
    assert stems["ok-1.5"] == "ok-1.5"
    assert len(set(stems.values())) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", stem) for stem in stems.values())


def test_every_kind_of_figure_is_drawn(make_store: MakeStore, tmp_path: Path) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"heteroscedastic": 5.2}, splits=2, functions=True)
    folder = site.build(path, tmp_path / "site", formats=("svg",)).parent / "figures"
    kinds = {file.name.split("-")[0].split(".")[0] for file in folder.iterdir()}
    assert kinds == {"convergence", "critical", "rank", "targets", "coverage", "pit", "functions", "inducing"}
    assert all(b"<dc:date>" not in file.read_bytes() for file in folder.iterdir())


def test_equal_results_give_equal_bytes(make_store: MakeStore, tmp_path: Path) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2)
    first, second = (site.build(path, tmp_path / name, formats=()).parent for name in ("a", "b"))
    for file in sorted(first.rglob("*.*")):
        assert file.read_bytes() == (second / file.relative_to(first)).read_bytes()
    overview = Overview(results.load(path))
    styled = styles.styles(overview.results.stored_names)
    drawn = [
        figures.render(figures.curves(anytime.Anytime.per_dataset(overview.results, 9), "boston", ["ll"], styled), "svg")
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(("file_format", "magic"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_figures_come_in_every_format(file_format: str, magic: bytes) -> None:
    figure, (axes,) = figures.new_figure(figures.COLUMN_WIDTH, 2.0)
    axes.plot([0, 1], label=HOSTILE[2])
    axes.plot([0, 2], label="$\\frac{")
    figures.legend(figure, axes)
    assert figures.render(figure, file_format).startswith(magic)


# Tables --------------------------------------------------------------------------------------------------------


def test_latex_has_entries_down_data_sets_across_and_balanced_braces(full_site: Path) -> None:
    for path in (full_site / "tables").glob("scores-*.tex"):
        text = path.read_text(encoding="utf-8")
        blocks = text.split(r"\begin{tabular}")[1:]
        assert [len(re.match(r"\{(\w+)\}", block)[1]) for block in blocks] == [8, 4]  # type: ignore[index]
        for block, columns in zip(blocks, (8, 4), strict=True):
            rows = [line for line in block.splitlines() if line.endswith(r"\\")]
            assert len(rows) == 1 + 10  # heads, entries
            assert all(len(re.findall(r"(?<!\\)&", row)) == columns - 1 for row in rows)
            assert all(row.count("$") % 2 == 0 for row in rows)
        assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
        assert text.count(r"\textbf") >= 10
        assert all(ord(character) < 128 for character in text)


def test_latex_marks_the_best_and_the_second_and_no_failed_mean(make_store: MakeStore) -> None:
    failures = {("aa", "boston", 0): "diverged"}
    fixed = {"entries": ("aa", "bb", "cc", "constant"), "datasets": {"boston": 9.0, "wine": 0.8}, "splits": 5}
    overview = Overview(results.load(make_store(**fixed, failures=failures)))
    means = overview.summaries["rmse"]["mean"]["wine"].sort_values()
    lines = [line for line in tables.latex_scores(overview, "rmse").splitlines() if line.endswith(r"\\")][1:]
    cells = {line.split(" & ")[0]: line.rstrip("\\ ").split(" & ")[1:] for line in lines}
    assert cells[means.index[0]][1].startswith(r"\textbf")
    assert cells[means.index[1]][1].startswith(r"\underline")
    assert cells[means.index[2]][1].startswith("$")
    assert cells["aa"][0].startswith("$")
    assert r"\dagger" in cells["aa"][0]
    assert cells["bb"][0].startswith(r"\textbf")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_tables_fit_a_page(full_site: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(full_site / "tables", tmp_path / "tables")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull \\hbox" not in done.stdout


def test_latex_escapes_every_special_character() -> None:
    assert tables.latex_text(r"a_b&c%d#e$f{g}h~i^j\k") == (
        r"a\_b\&c\%d\#e\$f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k"
    )


def test_markdown_cells_cannot_break_the_table() -> None:
    text = markdown.table([["a|b", "x\ny"]], ["<entry>", "v"])
    assert len(text.splitlines()) == 3
    assert r"a\|b" in text
    assert "&lt;entry>" in text


def test_csv_tables_hold_full_precision(full_store: Path, full_site: Path) -> None:
    written = pd.read_csv(full_site / "tables" / "scores.csv").set_index(["metric", "dataset", "entry"])["mean"]
    overview = Overview(results.load(full_store))
    expected = overview.summaries["ll"]["mean"]
    np.testing.assert_allclose(written["ll"].loc[expected.index], expected, rtol=1e-12)
    ledger = pd.read_csv(full_site / "tables" / "ledger.csv")
    assert len(ledger) == 189


@pytest.mark.parametrize(
    ("mean", "error", "texts"),
    [
        (2.3456, 0.0512, ("2.346", "0.051")),
        (-12.3, 1.26, ("−12.3", "1.3")),
        (1234.5, 56.0, ("1234", "56")),
        (1.734e-4, 1.5e-6, ("1.734e−4", "0.015e−4")),
    ],
)
def test_means_are_printed_to_two_digits_of_their_error(mean: float, error: float, texts: tuple[str, str]) -> None:
    assert numbers.with_error(mean, error, 20) == texts


def test_the_digits_of_an_error_follow_its_own_uncertainty() -> None:
    # The error of two splits is uncertain by 71 %, that of 20 by 16 %.
    assert numbers.with_error(1.77958, 0.00089, 2) == ("1.7796", "0.0009")
    assert numbers.with_error(1.77958, 0.00089, 20) == ("1.77958", "0.00089")


def test_a_method_looks_the_same_in_every_report_and_its_variants_share_its_hue() -> None:
    names = ["gp", "sip", "sip[prior=ns]", "vip", "vip_collapsed", "mine", "mine[depth=2]"]
    alone = {name: styles.style(name) for name in names}
    assert styles.styles({name: name for name in (*names, "aaa", "zzz")}).items() >= alone.items()
    for variant, original in (("sip[prior=ns]", "sip"), ("vip_collapsed", "vip"), ("mine[depth=2]", "mine")):
        assert alone[variant].colour == alone[original].colour
        assert alone[variant].dash != alone[original].dash
    shown = [styles.style(name) for name in styles.METHODS]
    assert len({(style.colour, style.dash) for style in shown}) == len(styles.METHODS)
    # Renaming for a paper changes the name, not the style.
    assert styles.styles({"Ours": "sip"})["Ours"] == alone["sip"]


# Terminal ------------------------------------------------------------------------------------------------------


def test_the_terminal_view_shows_the_cost_of_predictions_and_names_doubtful_clocks(make_store: MakeStore) -> None:
    path = make_store()
    with Store.create(path) as store:
        store._connection.execute("UPDATE cells SET flags = 'works_while_paused' WHERE entry = 'bbb'")
    text = terminal.render(path)
    assert "predict s" in text
    assert "0.05" in text  # 0.2 s for 4,000 rows
    assert "bbb: threads or child processes worked while the clock stood still" in text


def test_the_terminal_view_ranks_and_warns(full_store: Path) -> None:
    text = terminal.render(full_store)
    lines = text.splitlines()
    assert lines[3].startswith("aadm")
    assert "* fvi: reconstruction." in text
    assert "! hmc: 27 of 27 cells failed the method's own diagnostics" in text
    assert "3 cells failed: a failed cell ranks last, and in means it is replaced by the score of `constant`" in text
    assert max(map(len, lines[:14])) <= 110


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys, argparse, fsibench.cli.report as command;"
        "command.add_parser(argparse.ArgumentParser().add_subparsers());"
        "print([name for name in ('pandas', 'matplotlib', 'torch', 'jinja2', 'scipy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    report_command.add_parser(commands)
    compare_command.add_parser(commands)
    arguments = parser.parse_args(words)
    return int(arguments.handler(arguments))


def test_the_report_command_writes_next_to_the_store(make_store: MakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=2)
    assert command("report", "--store", str(path), "--figures", "none") == 0
    assert (path.parent / "results-report" / "index.html").is_file()
    assert "results-report/index.html" in capsys.readouterr().out
    assert command("report", "--store", str(path), "--terminal") == 0
    assert "constant" in capsys.readouterr().out


def test_the_terminal_ranks_in_the_metrics_that_are_asked_for(make_store: MakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_store(entries=("bbb", "constant", "vip"), datasets={"boston": 9.0}, splits=2)
    with Store.create(path) as store:  # the worst in CRPS is the best in LL
        store._connection.execute("UPDATE evaluations SET ll = 100 WHERE cell IN (SELECT id FROM cells WHERE entry = 'constant')")
        store._connection.commit()
    assert command("report", "--store", str(path), "--terminal", "--metrics", "ll") == 0
    heads, _, _, first, *_ = capsys.readouterr().out.splitlines()
    assert heads.split()[:3] == ["entry", "LL", "LL"]
    assert first.startswith("constant")
    with pytest.raises(UsageError, match="unknown metric of this store 'lll'; did you mean 'll'"):
        command("report", "--store", str(path), "--terminal", "--metrics", "lll")
    with pytest.raises(UsageError, match="--metrics is for --terminal"):
        command("report", "--store", str(path), "--metrics", "ll")


def test_the_report_command_takes_a_subset_under_other_names(make_store: MakeStore, tmp_path: Path) -> None:
    path = make_store(entries=("bbb", "constant", "vip"), datasets={"boston": 9.0, "wine": 0.8}, splits=2)
    words = ["--entries", "vip,bbb", "--datasets", "wine", "--order", "given", "--rename", "vip=Ours,wine=Wine"]
    assert command("report", "--store", str(path), "--out", str(tmp_path / "out"), "--figures", "none", *words) == 0
    table = pd.read_csv(tmp_path / "out" / "tables" / "scores.csv")
    assert set(table["entry"]) == {"Ours", "bbb"}
    assert set(table["dataset"]) == {"Wine"}
    assert list(pd.read_csv(tmp_path / "out" / "tables" / "leaderboard.csv")["entry"]) == ["Ours", "bbb"]
    assert "--rename vip=Ours,wine=Wine --order given" in (tmp_path / "out" / "run.html").read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="cannot read 'vip' in --rename"):
        command("report", "--store", str(path), "--rename", "vip")


def test_a_watched_report_is_written_again_until_the_run_ends(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=1)
    with Store.create(path) as store:
        run = store.begin_run(["fsibench"], {}, {})
    pages = []

    def finish(_: float) -> None:
        pages.append((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
        with Store.create(path) as store:
            store.end_run(run, "finished")

    monkeypatch.setattr(report_command.time, "sleep", finish)
    assert command("report", "--store", str(path), "--out", str(tmp_path / "out"), "--figures", "none", "--watch") == 0
    assert len(pages) == 1
    assert 'http-equiv="refresh"' in pages[0]
    assert 'http-equiv="refresh"' not in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_bad_requests_are_one_sentence_and_write_nothing(make_store: MakeStore, tmp_path: Path) -> None:
    path = make_store(entries=("bbb",), datasets={"boston": 9.0}, splits=1)
    with pytest.raises(UsageError, match="unknown figure format 'gif'"):
        command("report", "--store", str(path), "--out", str(tmp_path / "out"), "--figures", "gif")
    with pytest.raises(UsageError, match="there is no store"):
        command("report", "--store", str(tmp_path / "absent.sqlite"), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        command("report", "--store", str(path), "--out", str(tmp_path / "file" / "site"))


# Calibration ---------------------------------------------------------------------------------------------------


def test_coverage_of_uniform_transforms_is_the_promise() -> None:
    np.testing.assert_allclose(calibration.coverage(np.full(20, 5.0)), calibration.LEVELS)
    assert calibration.coverage_gap(np.full(20, 5.0)) == pytest.approx(0.0)


def test_over_and_under_confidence_are_flagged() -> None:
    generator = np.random.default_rng(0)
    edges = np.concatenate([np.full(2, 6.0), np.full(16, 0.5), np.full(2, 6.0)])
    splits = generator.poisson(np.stack([edges] * 10) * 10).astype(float)
    assert calibration.calibration(splits, 1.0, 0.25).flag == "over-confident"
    middle = np.concatenate([np.full(8, 0.2), np.full(4, 6.0), np.full(8, 0.2)])
    splits = generator.poisson(np.stack([middle] * 10) * 10).astype(float)
    assert calibration.calibration(splits, 1.0, 0.25).flag == "under-confident"


def test_a_calibrated_method_is_hardly_ever_flagged() -> None:
    generator = np.random.default_rng(1)
    flags = [
        calibration.calibration(generator.multinomial(60, np.full(20, 0.05), size=size).astype(float), 1.0, 0.0).flag
        for size in (1, 5)
        for _ in range(1000)
    ]
    assert np.mean([flag != "" for flag in flags]) <= 0.02


def test_the_over_confident_entry_is_flagged(make_store: MakeStore) -> None:
    found = calibration.calibrations(Overview(results.load(make_store(splits=12, entries=("bbb", "constant", "vip"), num_test=500))))
    table = calibration.table(found)
    assert set(table.loc[table["flag"] == "over-confident", "entry"]) == {"vip"}
    assert (table["flag"] == "under-confident").sum() == 0


def test_seeds_of_a_split_are_not_further_splits(make_store: MakeStore) -> None:
    loaded = results.load(make_store(splits=5, entries=("bbb", "vip"), datasets={"boston": 9.0}, num_test=500))
    twice = np.tile(np.arange(len(loaded.cells)), 2)
    cells = loaded.cells.iloc[twice].reset_index(drop=True)
    double = Overview(dataclasses.replace(loaded.take(twice), cells=cells))
    once, again = calibration.calibrations(Overview(loaded)), calibration.calibrations(double)
    assert {key: item.p_value for key, item in again.items()} == pytest.approx({key: item.p_value for key, item in once.items()})


def test_three_splits_need_more_than_a_gap_of_two_errors() -> None:
    gaps = np.array([0.039, 0.050, 0.061])  # t = 7.9 without overlap; with it 4.6, and p 0.044 at two degrees of freedom
    seen = math.sqrt(statistics.corrected_variance(gaps, 0.25))
    expected = 2 * stats.t.sf(gaps.mean() / seen, 2)
    assert calibration.gap_p_value(gaps, 6000.0, 0.25) == pytest.approx(expected)
    assert calibration.gap_p_value(gaps[:1], 2000.0, 0.25) < expected  # one split: nothing but the calibrated error


# Comparison ----------------------------------------------------------------------------------------------------


def test_a_store_equals_itself(make_store: MakeStore) -> None:
    path = make_store(entries=("bbb", "constant"), datasets={"boston": 9.0}, splits=4)
    comparison = compare.compare(path, path)
    assert set(comparison.rows["verdict"]) == {"unchanged"}
    assert not comparison.has_regression


def test_worse_scores_are_a_regression_and_the_other_way_round_an_improvement(make_store: MakeStore) -> None:
    fixed = {"entries": ("bbb", "constant"), "datasets": {"boston": 9.0, "wine": 0.8}, "splits": 10}
    good, bad = make_store("good", **fixed), make_store("bad", shift=0.05, **fixed)
    worse = compare.compare(good, bad)
    rows = worse.rows.set_index(["entry", "dataset", "metric"])["verdict"]
    assert rows["bbb", "boston", "rmse"] == "regression"
    assert rows["constant", "boston", "rmse"] == "unchanged"
    assert worse.has_regression
    assert command("compare", str(good), str(bad), "--fail") == 1
    assert command("compare", str(good), str(bad)) == 0
    better = compare.compare(bad, good).rows.set_index(["entry", "dataset", "metric"])["verdict"]
    assert better["bbb", "wine", "ll"] == "improved"


def test_a_cell_that_fails_now_is_a_regression(make_store: MakeStore) -> None:
    fixed = {"entries": ("bbb", "constant"), "datasets": {"boston": 9.0}, "splits": 3}
    before, after = make_store("x", **fixed), make_store("y", failures={("bbb", "boston", 2): "oom"}, **fixed)
    comparison = compare.compare(before, after)
    assert comparison.newly_failing == ["bbb on boston, split 2"]
    assert comparison.has_regression
    assert "fails now" in compare.render(comparison)


def test_stores_without_common_cells_say_so(make_store: MakeStore) -> None:
    first = make_store("p", entries=("bbb",), datasets={"boston": 9.0})
    second = make_store("q", entries=("sip",), datasets={"boston": 9.0})
    comparison = compare.compare(first, second)
    assert "no finished cell in common" in compare.render(comparison)
    assert (comparison.only_before, comparison.only_after) == (3, 3)


def test_noise_is_not_called_a_change() -> None:
    # Two equal methods over overlapping splits, 24 rows compared at a time, as `compare` adjusts them.
    generator = np.random.default_rng(5)
    wrong = 0
    for _ in range(300):
        shared, own = generator.normal(size=(24, 1)), generator.normal(size=(24, 10))
        gains = np.sqrt(0.2) * shared + np.sqrt(0.8) * own
        p_values = [statistics.corrected_paired_test(row, 0.25).p_value for row in gains]
        wrong += bool((statistics.holm(p_values) < compare.LEVEL).any())
    assert wrong <= 0.08 * 300
