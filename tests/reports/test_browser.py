"""The site in a real browser: headless Chromium, driven by playwright. Skipped where either is missing.

Chromium is taken from the variable FSIBENCH_CHROMIUM or found on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsibench.reports import site
from fsibench.reports.analysis import anytime, ranking, results
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.report import Report
from fsibench.reports.looks import looks

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("FSIBENCH_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it or set FSIBENCH_CHROMIUM")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")
# The first is the best entry, so that the longest name appears in every sentence and chart.
HOSTILE = ("long" * 60, "<script>window.hurt=1</script>", "<img src=x onerror=window.hurt=2>", "quote\"'`${x}\\", "名前 مرحبا Ω")
PAGES = ("index", "convergence", "calibration", "statistics", "functions", "ledger", "run")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any, full_site: Path) -> Iterator[Open]:
    """Open a page and wait until its script is done; no error, no request to anywhere may have happened by the end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    problems: list[str] = []

    def watch(page: Any) -> None:
        page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _note_request(request.url, problems))

    def open_one(name: str, folder: Path = full_site, **changes: Any) -> Any:
        page = context.new_page()
        watch(page)
        if changes:
            page.set_viewport_size(changes)
        page.goto((folder / f"{name}.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        return page

    yield open_one
    context.close()
    assert problems == []


def _note_request(url: str, problems: list[str]) -> None:
    if not url.startswith(("file:", "data:")):
        problems.append(f"request: {url}")


def column(page: Any, table: str, number: int) -> list[str]:
    texts: list[str] = page.locator(f"#{table} tbody tr:not([hidden]) td:nth-child({number})").all_inner_texts()
    return [text.strip() for text in texts]


def board_ranks(page: Any) -> dict[str, float]:
    rows = page.locator("#board tbody tr")
    names = [row.get_attribute("data-entry") for row in rows.all()]
    values = page.locator("#board tbody td:nth-child(3)").all_inner_texts()
    return {str(name): float(value) for name, value in zip(names, values, strict=True) if value != "–"}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_without_an_error(open_page: Open, name: str) -> None:
    page = open_page(name)
    assert page.locator("h1").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")


@pytest.mark.parametrize("name", ["index", "convergence", "statistics", "functions", "ledger"])
def test_pages_fit_a_phone(open_page: Open, name: str) -> None:
    page = open_page(name, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")


def test_ranks_on_the_page_are_those_of_the_store(open_page: Open, full_store: Path) -> None:
    page, overview = open_page("index"), Overview(results.load(full_store))
    for metric in ("rmse", "ll", "crps", "calibration"):
        page.check(f"input[name=metric][value={metric}]", force=True)
        shown = board_ranks(page)
        expected = overview.board[f"mean_rank_{metric}"].dropna()
        assert shown == pytest.approx(expected.round(2).to_dict(), abs=0.0051)
        of_means = dict(zip(shown, map(float, column(page, "board", 5)), strict=True))
        assert of_means == pytest.approx(overview.board[f"rank_of_means_{metric}"].round(2).to_dict(), abs=0.0051)


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


def test_the_budget_slider_ranks_at_that_time(open_page: Open, full_store: Path) -> None:
    page, overview = open_page("index"), Overview(results.load(full_store))
    overview_site = Report(overview, full_store, {})
    grid: anytime.Anytime = overview_site.slider
    page.check("input[name=metric][value=rmse]", force=True)
    texts = []
    for position in (5, 20):
        page.evaluate(
            "(value) => { const slider = document.getElementById('budget'); slider.value = value;"
            " slider.dispatchEvent(new Event('input', { bubbles: true })); }",
            position,
        )
        table = overview.results.table(grid.values("rmse")[:, position])
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
    ascending = [float(text) for text in column(page, "board", 3)]
    assert ascending == sorted(ascending)
    button.focus()
    page.keyboard.press("Enter")
    descending = [float(text) for text in column(page, "board", 3)]
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
    table = overview.results.table(overview.results.final("crps"))
    blocks = ranking.complete_blocks(table[table["dataset"] != "boston"], entries=kept)
    expected = ranking.mean_rank(blocks.values, larger_is_better=False)
    assert board_ranks(page) == pytest.approx(expected.round(2).to_dict(), abs=0.0051)


def test_legend_toggles_curves_and_colours_stay_with_entries(open_page: Open, full_store: Path) -> None:
    page = open_page("convergence")
    style = looks(results.load(full_store).entries)
    curve = page.locator('#panels path.series[data-entry="vip"]').first
    assert curve.get_attribute("stroke") == style["vip"].colour
    page.locator("#legend button", has_text="vip").click()
    assert page.locator('#panels path.series[data-entry="vip"]').count() == 0
    assert page.locator('#panels path.series[data-entry="hmc"]').count() > 0
    page.locator("#legend button", has_text="vip").click()
    assert page.locator('#panels path.series[data-entry="vip"]').count() > 0


def test_values_appear_under_the_pointer_and_with_arrow_keys(open_page: Open) -> None:
    page = open_page("convergence")
    chart = page.locator("#panels svg.chart").first
    chart.hover()
    assert "aadm" in page.locator(".tip").inner_text()
    chart.focus()
    page.keyboard.press("End")
    last = page.locator(".tip strong").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".tip strong").inner_text() != last


def test_every_chart_has_a_title_and_a_description(open_page: Open) -> None:
    for name in ("index", "convergence", "calibration", "statistics", "functions"):
        charts = open_page(name).locator("svg.chart").all()
        assert charts
        for chart in charts:
            assert chart.get_attribute("role") == "img"
            assert chart.locator("title").first.text_content()


def test_functions_have_one_column_per_entry(open_page: Open) -> None:
    page = open_page("functions")
    assert page.locator("#functions .columns").count() == 5
    assert page.locator("#functions .columns").first.locator("svg.chart").count() == 10
    widths = page.evaluate("[...document.querySelectorAll('#functions .columns svg.chart')].map((s) => s.viewBox.baseVal.width)")
    assert max(widths) - min(widths) < 2


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
