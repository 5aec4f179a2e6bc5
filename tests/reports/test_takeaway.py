"""What a reader takes away for a paper: every table and figure, as files that LaTeX and Python accept."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Open = Callable[..., Any]
Download = Callable[[Any, Any], str]
LATEX = shutil.which("pdflatex")
needs_latex = pytest.mark.skipif(LATEX is None, reason="pdflatex is not installed")
PAGES = ("index", "convergence", "calibration", "statistics", "pairs", "functions", "entry-vip", "dataset-heteroscedastic", "ledger", "run")


def compiled(folder: Path, name: str) -> str:
    """The log of pdflatex; it must have made a PDF without an error or an overfull line."""
    command = [str(LATEX), "-interaction=nonstopmode", "-halt-on-error", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / name).with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    return done.stdout


@needs_latex
def test_the_tables_compile_and_fit_the_page(full_site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    shutil.copytree(full_site / "tables", folder)
    log = compiled(folder, "all.tex")
    too_wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", log)]
    assert max(too_wide, default=0.0) < 5.0


@needs_latex
def test_tables_and_figures_of_the_pages_compile(open_page: Open, download: Download, tmp_path: Path) -> None:
    page = open_page("index")
    figure = page.locator("#rank-chart .downloads button", has_text="PDF")
    (tmp_path / "figure.pdf").write_text(download(page, figure), encoding="latin-1")
    table = download(page, page.locator(".downloads button", has_text="LaTeX").first)
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs,graphicx}\n"
        f"\\begin{{document}}\n\\tiny {table}\n\\includegraphics{{figure.pdf}}\n\\end{{document}}\n",
        encoding="utf-8",
    )
    compiled(tmp_path, "paper.tex")


def test_every_figure_and_table_has_its_downloads(open_page: Open) -> None:
    for name in PAGES:
        page = open_page(name)
        figures = page.evaluate(
            "[...document.querySelectorAll('svg.chart')].map((chart) => [...chart.closest('.plot').querySelectorAll('.downloads button')].map((b) => b.textContent).join())"
        )
        assert set(figures) <= {"SVG,PDF,CSV,Python"}, name
        tables = page.evaluate(
            "[...document.querySelectorAll('main table')].map((table) => (table.closest('.scroll') || table).previousElementSibling)"
            ".map((box) => (box && box.className === 'downloads' ? [...box.querySelectorAll('button')].map((b) => b.textContent).join() : null))"
        )
        assert set(tables) <= {"CSV,LaTeX,Markdown"}, name
        assert figures or tables
        page.close()


def pdf_faults(text: str) -> list[str]:
    """What a strict reader would complain about: offsets of the objects, length of the stream."""
    faults = [] if text.startswith("%PDF-1.4\n") and text.endswith("%%EOF\n") else ["frame"]
    table = int(re.findall(r"startxref\n(\d+)", text)[0])
    offsets = [int(offset) for offset in re.findall(r"(\d{10}) 00000 n ", text[table:])]
    faults += [f"object {i + 1}" for i, offset in enumerate(offsets) if not text[offset:].startswith(f"{i + 1} 0 obj\n")]
    length = int(re.findall(r"/Length (\d+)", text)[0])
    start = text.index("stream\n") + len("stream\n")
    return faults if text[start + length :].startswith("\nendstream") else [*faults, "length"]


def test_a_figure_is_saved_as_a_pdf_with_its_legend_in_the_colours_of_paper(browser: Any, full_site: Path, download: Download) -> None:
    saved = []
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.goto((full_site / "index.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]")
        button = page.locator("#rank-chart .downloads button", has_text="PDF")
        saved.append(download(page, button))
        context.close()
    assert pdf_faults(saved[0]) == []
    assert "(fbnn[prior=gp]) Tj" in saved[0]
    assert "(training seconds) Tj" in saved[0]
    assert saved[0] == saved[1]


def programs(open_page: Open, download: Download, plane: Path) -> dict[str, str]:
    """The Python of one figure of each kind."""
    found = {}
    kinds = {"index": "#rank-chart", "calibration": "#cards figure:first-child .plot:nth-of-type(1)", "statistics": "[data-diagram=crps]", "pairs": "#forest"}
    for name, place in kinds.items():
        page = open_page(name)
        found[name] = download(page, page.locator(f"{place} .downloads button", has_text="Python").first)
    page = open_page("functions")
    for kind in ("fan", "samples", "draws", "inducing"):
        page.select_option("#kind", kind)
        found[kind] = download(page, page.locator(".gallery .downloads button", has_text="Python").first)
    page = open_page("functions", plane)
    found["plane"] = download(page, page.locator(".gallery .downloads button", has_text="Python").first)
    return found


def test_the_python_of_every_kind_of_figure_draws_it(
    open_page: Open, download: Download, plane_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    import matplotlib.pyplot

    for kind, program in programs(open_page, download, plane_site).items():
        names: dict[str, Any] = {}
        exec(compile(program, f"{kind}.py", "exec"), names)  # noqa: S102 (what a reader would run)
        assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF"), kind
        (tmp_path / "figure.pdf").unlink()
        assert len(names["table"]) > 1
        assert names["axes"].lines or names["axes"].patches or names["axes"].collections, kind
        matplotlib.pyplot.close(names["figure"])


def test_panels_of_functions_zoom_together_and_the_address_keeps_it(open_page: Open) -> None:
    page = open_page("functions")
    chart = page.locator(".gallery svg.chart").first
    chart.scroll_into_view_if_needed()
    before = page.locator(".gallery path.median").nth(3).get_attribute("d")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 60, steps=3)
    page.mouse.up()
    zoomed = page.locator(".gallery path.median").nth(3).get_attribute("d")
    assert zoomed != before  # the fourth panel follows the first
    page.wait_for_url(lambda url: "zoom-functions-heteroscedastic" in url)
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector("body[data-ready=yes]")
    assert other.locator(".gallery path.median").nth(3).get_attribute("d") == zoomed
    page.locator(".unzoom").first.click()
    assert page.locator(".gallery path.median").nth(3).get_attribute("d") == before
    page.wait_for_url(lambda url: "zoom" not in url)
    chart = page.locator(".gallery svg.chart").first
    chart.focus()
    page.keyboard.press("ArrowLeft")
    tip = page.locator(".tip").inner_text()
    assert "x = " in tip
    assert "50 %" in tip
    page.keyboard.press("+")
    page.wait_for_url(lambda url: "zoom-functions" in url)


def test_the_address_keeps_sorting_and_what_is_unfolded(open_page: Open) -> None:
    page = open_page("dataset-boston")
    page.locator("table[data-name=hardest-points] thead th:nth-child(5) button").click()
    sorted_points = page.locator("table[data-name=hardest-points] tbody").inner_text()
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector("body[data-ready=yes]")
    assert other.locator("table[data-name=hardest-points] tbody").inner_text() == sorted_points
    pairs = open_page("pairs")
    pairs.locator("#by-data-set summary").click()
    pairs.wait_for_url(lambda url: "open=by-data-set" in url)
    other.goto(pairs.url)
    other.wait_for_selector("body[data-ready=yes]")
    assert other.locator("#by-data-set").evaluate("d => d.open")


def test_a_page_of_a_data_set_names_its_hardest_points(open_page: Open) -> None:
    page = open_page("dataset-boston")
    first = page.locator("table[data-name=hardest-points] tbody tr").first
    assert first.inner_text().startswith("row 7")
    assert first.locator("td").nth(2).inner_text() == "10"
    fresh = open_page("dataset-heteroscedastic")
    assert "inputs" in fresh.locator("table[data-name=hardest-points] thead").inner_text()


def test_the_ledger_shows_other_papers(open_page: Open) -> None:
    page = open_page("ledger")
    assert page.locator("#peers tbody tr").count() == 105
    assert "Gal and Ghahramani (2016)" in page.locator("#peers").inner_text()
