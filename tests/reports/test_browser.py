"""The site in a real browser: headless Chromium, driven by playwright. Skipped where either is missing."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from fsibench.reports import site
from fsibench.reports.analysis import anytime, ranking, results
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.standing import Standing
from fsibench.reports.numbers import number
from fsibench.reports.styles import styles

# The first is the best entry, so that the longest name appears in every sentence and chart.
HOSTILE = ("long" * 60, "<script>window.hurt=1</script>", "<img src=x onerror=window.hurt=2>", "quote\"'`${x}\\", "名前 مرحبا Ω")
PAGES = ("index", "convergence", "calibration", "statistics", "pairs", "functions", "entries", "datasets", "ledger", "run")

Open = Callable[..., Any]
Download = Callable[[Any, Any], str]


def column(page: Any, table: str, number: int) -> list[str]:
    texts: list[str] = page.locator(f"#{table} tbody tr:not([hidden]) td:nth-child({number})").all_inner_texts()
    return [text.strip() for text in texts]


def board_ranks(page: Any) -> dict[str, float]:
    rows = page.locator("#board tbody tr")
    names = [row.get_attribute("data-entry") for row in rows.all()]
    values = page.locator("#board tbody td:nth-child(3)").all_inner_texts()
    return {str(name): float(value) for name, value in zip(names, values, strict=True) if value != "–"}


KINDS_OF_PAGES = (*PAGES, "entry-vip", "dataset-heteroscedastic")
FITS = "document.documentElement.scrollWidth <= window.innerWidth + 1"


@pytest.mark.parametrize("name", KINDS_OF_PAGES)
def test_every_page_opens_without_an_error_and_fits(open_page: Open, name: str) -> None:
    page = open_page(name)
    assert page.locator("h1").inner_text()
    assert page.title() == f"{page.locator('h1').inner_text()} · fsibench results"
    assert page.evaluate(FITS)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(250)  # charts are drawn again for the new width
    assert page.evaluate(FITS)
    levels = [int(heading.evaluate("h => h.tagName[1]")) for heading in page.locator("h1, h2, h3, h4").all()]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser: Any, full_site: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    found = []
    for name in KINDS_OF_PAGES:
        page.goto((full_site / f"{name}.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        result = axe.Axe().run(page)
        found += [(name, item["id"], item["nodes"][0]["html"][:120]) for item in result.response["violations"]]
    context.close()
    assert found == []


def test_ranks_on_the_page_are_those_of_the_store(open_page: Open, full_store: Path) -> None:
    page, overview = open_page("index"), Overview(results.load(full_store))
    for metric in overview.results.tested:
        page.check(f"input[name=metric][value={metric}]", force=True)
        shown = board_ranks(page)
        expected = overview.board[f"mean_rank_{metric}"].dropna()
        assert shown == pytest.approx(expected.round(2).to_dict(), abs=0.0051)
        of_means = {name: float(value) for name, value in zip(shown, column(page, "board", 5), strict=False)}
        means = overview.board[f"rank_of_means_{metric}"].dropna()
        assert of_means == pytest.approx(means.round(2).to_dict(), abs=0.0051)


def test_means_on_the_page_are_those_of_the_store(open_page: Open, full_store: Path) -> None:
    page, overview = open_page("index"), Overview(results.load(full_store))
    page.check("input[name=metric][value=ll]", force=True)
    heads = [text.strip() for text in page.locator("#scores thead th").all_inner_texts()][1:]
    blocks = overview.blocks["ll"]
    means = ranking.dataset_means(blocks.values, blocks.constant)
    for row in page.locator("#scores tbody tr").all():
        values = [cell.get_attribute("data-value") for cell in row.locator("td").all()[1:]]
        entry = row.get_attribute("data-entry")
        for dataset, value in zip(heads, values, strict=True):
            assert float(value) == pytest.approx(means.loc[dataset, entry], rel=1e-5)


def slide(page: Any, position: int) -> None:
    page.evaluate(
        "(value) => { const slider = document.getElementById('budget'); slider.value = value;"
        " slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        position,
    )


def intervals(page: Any) -> dict[str, list[float]]:
    names = [str(row.get_attribute("data-entry")) for row in page.locator("#board tbody tr").all()]
    texts = zip(names, column(page, "board", 4), strict=True)
    return {name: [float(part) for part in text.split(" to ")] for name, text in texts if text != "–"}


def assert_intervals(page: Any, standing: Standing) -> None:
    shown, expected = intervals(page), standing.table[["low", "high"]].T.to_dict("list")
    assert shown.keys() == expected.keys()
    for entry, values in shown.items():
        assert values == pytest.approx(expected[entry], abs=0.0051), entry


def test_intervals_are_pythons_and_those_after_a_filter_are_the_same_bootstrap(open_page: Open, full_store: Path) -> None:
    page, report = open_page("index"), Report.read(full_store)
    standing = report.standings["crps"]
    assert_intervals(page, standing)
    tiers = dict(zip(intervals(page), column(page, "board", 2), strict=False))
    assert tiers == standing.table["tier"].astype(str).to_dict()
    page.locator("#datasets button", has_text="boston").click()
    page.locator('#board tr[data-entry="aadm"] input').uncheck()
    kept = [entry for entry in report.overview.ranked if entry != "aadm"]
    table = report.results.table("crps")
    blocks = ranking.complete_blocks(table[table["dataset"] != "boston"], entries=kept)
    assert_intervals(page, Standing(report.results.metrics["crps"], blocks))


def test_marks_never_go_to_imputed_means_and_ties_share_them(open_page: Open) -> None:
    page = open_page("index")
    assert page.locator("#scores td", has_text="†").count() == 3  # one failed split each
    assert page.locator("#scores td.imputed").count() == 3
    marks = page.evaluate("[marksOf([1, 1, 2], [false, false, false], false), marksOf([3, 2, 2], [false, false, false], true),"
                          " marksOf([1, 2, 2, NaN], [true, false, false, false], false)]")  # fmt: skip
    assert marks == [["best", "best", None], ["best", "second", "second"], [None, "best", "best", None]]
    assert "whole budget" in page.locator("#board thead th", has_text="CPU seconds").inner_text()


def test_an_entry_that_distrusts_itself_is_greyed_until_it_is_ticked(open_page: Open) -> None:
    page = open_page("index")
    row = page.locator('#board tr[data-entry="hmc"]')
    assert row.get_attribute("class") == "off"
    assert "hmc" not in board_ranks(page)
    assert page.locator("#board thead").inner_text().count("CPU s per 1,000 rows") == 1
    row.locator("input").check()
    assert "hmc" in board_ranks(page)


def test_the_address_shows_somebody_else_the_same(open_page: Open, full_site: Path) -> None:
    page = open_page("index")
    page.check("input[name=metric][value=ll]", force=True)
    page.locator("#datasets button", has_text="boston").click()
    page.locator('#board tr[data-entry="aadm"] input').uncheck()
    page.fill("#time", "2 s")
    page.keyboard.press("Enter")
    page.locator("#board thead th:nth-child(5) button").click()
    told, table = page.url, page.locator("#board tbody").inner_text()
    other = page.context.new_page()
    other.goto(told)
    other.wait_for_selector("body[data-ready=yes]")
    assert other.locator("#board tbody").inner_text() == table
    assert other.locator("#budget-text").inner_text() == page.locator("#budget-text").inner_text() != "full budget"
    assert other.locator("#board-caption").inner_text() == page.locator("#board-caption").inner_text()


def test_the_budget_slider_ranks_at_that_time(open_page: Open, full_store: Path) -> None:
    page, overview = open_page("index"), Overview(results.load(full_store))
    overview_site = Report(overview, full_store, {})
    grid: anytime.Anytime = overview_site.slider
    page.check("input[name=metric][value=rmse]", force=True)
    texts = []
    for position in (5, 20):
        slide(page, position)
        table = overview.results.table("rmse", grid.values("rmse")[:, position])
        blocks = ranking.complete_blocks(table, entries=overview.ranked)
        expected = ranking.mean_rank(blocks.values, larger_is_better=False)
        assert board_ranks(page) == pytest.approx(expected.round(2).to_dict(), abs=0.0051)
        texts.append(page.locator("#budget-text").inner_text())
    assert texts[0] != texts[1]
    page.focus("#budget")
    page.keyboard.press("End")
    assert page.locator("#budget-text").inner_text() == "full budget"


def test_the_front_names_who_leads_when(open_page: Open) -> None:
    text = open_page("index").locator("#front-caption").inner_text()
    assert "gp from" in text  # exact, so it leads as soon as it is there
    assert text.rstrip(".").split(", ")[-1].startswith("aadm from")  # the best at the end


def test_columns_sort_by_mouse_and_by_keyboard(open_page: Open) -> None:
    page = open_page("index")
    button = page.locator("#board thead th:nth-child(3) button")
    button.click()
    ascending = [float(text) for text in column(page, "board", 3) if text != "–"]
    assert ascending == sorted(ascending)
    button.focus()
    page.keyboard.press("Enter")
    descending = [float(text) for text in column(page, "board", 3) if text != "–"]
    assert descending == sorted(descending, reverse=True)
    assert page.locator("#board thead th:nth-child(3)").get_attribute("aria-sort") == "descending"


def test_filters_hide_entries_and_change_what_counts(open_page: Open, full_store: Path) -> None:
    page = open_page("index")
    page.fill("#filter", "SIP")
    assert [row.get_attribute("data-entry") for row in page.locator("#board tbody tr:visible").all()] == ["sip[prior=bnn]"]
    page.fill("#filter", "")
    page.locator("#datasets button", has_text="boston").click()
    assert "8 data sets" in page.locator("#board-caption").inner_text()
    page.locator('#board tr[data-entry="aadm"] input').uncheck()
    overview = Overview(results.load(full_store))
    kept = [entry for entry in overview.ranked if entry != "aadm"]
    table = overview.results.table("crps")
    blocks = ranking.complete_blocks(table[table["dataset"] != "boston"], entries=kept)
    expected = ranking.mean_rank(blocks.values, larger_is_better=False)
    assert board_ranks(page) == pytest.approx(expected.round(2).to_dict(), abs=0.0051)


def test_curves_toggle_highlight_zoom_and_show_values(open_page: Open, full_store: Path) -> None:
    page = open_page("convergence")
    styled = styles(results.load(full_store).stored_names)
    curve = page.locator('#panels path.series[data-entry="vip"]').first
    assert curve.get_attribute("stroke") == styled["vip"].colour
    chart = page.locator("#panels svg.chart").first
    chart.hover()
    assert "aadm" in page.locator(".tip").inner_text()
    chart.focus()
    page.keyboard.press("End")
    last = page.locator(".tip strong").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".tip strong").inner_text() != last
    # One curve in full, the others faded.
    page.locator("#panels .key").first.locator("li", has_text="vip").hover()
    assert "faded" not in (curve.get_attribute("class") or "")
    assert "faded" in (page.locator('#panels path.series[data-entry="gp"]').first.get_attribute("class") or "")
    # Zoom by dragging, and back.
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 60, steps=3)
    page.mouse.up()
    page.wait_for_url(lambda url: "zoom-rmse-boston" in url)
    page.locator(".unzoom").click()
    page.wait_for_url(lambda url: "zoom" not in url)
    page.locator(".legend button", has_text="vip").first.click()
    assert page.locator('#panels path.series[data-entry="vip"]').count() == 0
    assert page.locator('#panels path.series[data-entry="hmc"]').count() > 0
    page.wait_for_url(lambda url: "hidden=vip" in url)


def test_the_tip_says_when_it_is_cut(open_page: Open) -> None:
    page = open_page("index")
    text = page.evaluate(
        "() => { const box = find('rank-chart'); const series = Array.from({ length: 20 }, (_, i) => ({ entry: { ...data.entries[0], name: `e${i}` }, y: [i, i] }));"
        " lineChart(box, { series, x: [1, 2], title: 'many', larger: false }); const chart = box.querySelector('svg.chart'); chart.focus();"
        " chart.dispatchEvent(new KeyboardEvent('keydown', { key: 'End' })); return document.querySelector('.tip').textContent; }"
    )
    assert text.endswith("and 6 more")


def test_a_tap_shows_values_on_a_phone_and_names_are_not_cut(browser: Any, full_site: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto((full_site / "convergence.html").as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    page.locator("#panels svg.chart").first.tap()
    assert "aadm" in page.locator(".tip").inner_text()
    assert page.locator(".legend").first.evaluate("e => getComputedStyle(e).position") == "static"
    page.goto((full_site / "index.html").as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    cut = page.evaluate("[...document.querySelectorAll('#board td.entry')].filter((c) => c.scrollWidth > c.clientWidth + 1).length")
    context.close()
    assert cut == 0


def test_tables_and_figures_can_be_taken_away(open_page: Open, download: Download) -> None:
    page = open_page("index")
    buttons = page.locator(".downloads").first.locator("button")
    csv = pd.read_csv(io.StringIO(download(page, buttons.nth(0))))
    assert csv.columns[0] == "entry"
    assert len(csv) == 10
    latex = download(page, buttons.nth(1))
    assert latex.count(r"\\") == 11
    assert r"\toprule" in latex
    assert download(page, buttons.nth(2)).startswith("| entry | tier")
    figure = page.locator("#rank-chart .downloads button")
    assert ElementTree.fromstring(download(page, figure.nth(0))).tag.endswith("svg")
    curves = pd.read_csv(io.StringIO(download(page, figure.nth(2))))
    assert set(curves["entry"]) == {name.split()[0] for name in csv["entry"]} - {"hmc"}


def test_two_entries_are_compared_as_python_does(open_page: Open, full_store: Path) -> None:
    page, report = open_page("pairs"), Report.read(full_store)
    page.select_option("#a", label="vip")
    page.select_option("#b", label="bbb")
    duel = report.duels["crps"]["bbb", "vip"]
    won, tied, lost = duel.record
    assert f"Data sets: {lost} won, {tied} tied, {won} lost by vip." in page.locator("#verdict").inner_text()
    page.locator("details summary").click()
    shown = dict(zip(column(page, "sets", 1), column(page, "sets", 2), strict=True))
    assert shown == {name: number(-row["difference"], 3) for name, row in duel.sets.iterrows()}
    assert page.locator("#matrix tbody tr").count() == 9  # hmc is not ranked
    page.locator("#matrix .pick").first.click()
    assert page.locator("#a option:checked").inner_text() in page.locator("#pair-title").inner_text()
    page.wait_for_url(lambda url: "a=" in url)


def test_every_name_leads_to_its_page(open_page: Open, full_site: Path) -> None:
    page = open_page("index")
    page.locator('#board tr[data-entry="vip"] a').click()
    page.wait_for_selector("body[data-ready=yes]")
    assert page.locator("h1").inner_text() == "vip"
    assert page.locator("table[data-name=options]").inner_text().count("default of the method") == 1
    assert page.locator("#curves svg.chart").count() == 9
    page.locator("table[data-name=scores] a", has_text="heteroscedastic").click()
    page.wait_for_selector("body[data-ready=yes]")
    assert page.locator("h1").inner_text() == "heteroscedastic"
    assert page.locator("table[data-name=ranking] tbody tr").count() == 10
    assert page.locator("table[data-name=ranking] tr.off").inner_text().startswith("hmc")


def test_statistics_say_what_the_run_can_resolve(open_page: Open) -> None:
    page = open_page("statistics")
    text = page.locator("#crps .resolution").inner_text()
    assert "cannot reject anything here: 9 data sets and 36 pairs; after Holm's adjustment 11 data sets would be needed" in text
    assert "of resamples of data sets and splits" in text
    assert "mean over 1.80 s to 18.0 s" in page.locator("#crps thead").first.inner_text()
    assert page.evaluate("document.documentElement.scrollHeight") < 10_000


def test_the_two_directions_of_miscalibration_look_different(open_page: Open, make_store: Callable[..., Path], tmp_path: Path) -> None:
    store = make_store(entries=("bbb", "constant", "vip"), splits=12, datasets={"boston": 9.0}, num_test=500)
    page = open_page("calibration", site.build(store, tmp_path / "flags", formats=()).parent)
    colours = page.evaluate("['over', 'under'].map((name) => getComputedStyle(document.querySelector(`span.${name}`)).color)")
    assert colours[0] != colours[1]
    assert page.locator("td.over").count() > 0


def test_every_chart_has_a_title_and_a_description(open_page: Open) -> None:
    for name in ("index", "convergence", "calibration", "statistics", "functions"):
        charts = open_page(name).locator("svg.chart").all()
        assert charts
        for chart in charts:
            assert chart.get_attribute("role") == "img"
            assert chart.locator("title").first.text_content()


def test_functions_are_a_gallery_that_names_split_and_seed(open_page: Open) -> None:
    page = open_page("functions")
    assert page.locator(".gallery figure").count() == 10
    assert page.locator(".gallery path.median").count() == 10
    assert page.locator(".gallery figcaption").first.inner_text() == "split 0, seed 0"
    page.select_option("#kind", "inducing")
    assert page.locator(".gallery svg.chart text").first.text_content() == "100 ms"
    page.select_option("#kind", "all")
    assert page.locator(".gallery").count() == 5
    widths = page.evaluate("[...document.querySelectorAll('.gallery svg.chart')].map((s) => s.viewBox.baseVal.width)")
    assert max(widths) - min(widths) < 2


def test_a_set_with_two_inputs_is_a_heat_map(open_page: Open, plane_site: Path) -> None:
    page = open_page("functions", plane_site)
    assert page.locator(".gallery").first.locator("rect[fill^=rgb]").count() == 2 * 9
    assert "dark" in page.locator(".gallery figcaption").first.inner_text()


def test_the_ledger_filters_by_verdict(open_page: Open) -> None:
    page = open_page("ledger")
    page.select_option("#verdict", "implausible as printed")
    shown = page.locator("#lines tbody tr:visible")
    assert shown.count() == 10
    assert {row.locator("td").first.inner_text() for row in shown.all()} == {"naval"}


def test_dark_mode_changes_the_paper(browser: Any, full_site: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto((full_site / "index.html").as_uri())
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        context.close()
    assert colours[0] == "rgb(255, 255, 255)"
    assert colours[1] != colours[0]


def test_hostile_names_do_no_harm(open_page: Open, make_store: Callable[..., Path], tmp_path: Path) -> None:
    store = make_store(
        entries=(*HOSTILE, "constant"), splits=2,
        datasets={"<b>set</b>": 3.0, "'\"><svg onload=window.hurt=3>": 1.0, "wide" * 30: 1.0},
        failures={(HOSTILE[1], "<b>set</b>", 0): "error"}, message="</script><script>window.hurt=4</script>",
        notes={HOSTILE[2]: "<i onmouseover=window.hurt=5>note</i>"},
    )  # fmt: skip
    folder = site.build(store, tmp_path / "hostile", formats=()).parent
    for file in folder.glob("*.html"):
        page = open_page(file.stem, folder)
        assert page.evaluate("window.hurt") is None
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    page = open_page("index", folder)
    names = {row.get_attribute("data-entry") for row in page.locator("#board tbody tr").all()}
    assert names == {"constant", *HOSTILE}
    assert HOSTILE[4] in page.locator("#board tbody").inner_text()
