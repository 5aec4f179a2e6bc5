"""Figures for papers, made with matplotlib at print size: the pages' charts as SVG, PDF or PNG."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fsibench.errors import UsageError
from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.anytime import Anytime
from fsibench.reports.analysis.report import Report, file_stems
from fsibench.reports.analysis.results import LEVELS, Floats, direction
from fsibench.reports.styles import Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
COLUMN_WIDTH, TEXT_WIDTH = 3.4, 7.0  # inches: one and two columns of a proceedings page
MOST_DATASETS = 16  # with more, data sets get no figures of their own; the pages have all
PANEL_NAMES = {
    "quantiles": "predictive quantiles",
    "samples": "samples of y",
    "draws": "draws of f",
    "prior": "prior draws of f",
}
SETTINGS = {
    "svg.fonttype": "none",  # text stays text: searchable, and read out loud
    "svg.hashsalt": "fsibench",  # equal results, equal bytes
    "pdf.fonttype": 42,
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def check_formats(formats: Sequence[str]) -> None:
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"unknown figure format {name!r}; use {', '.join(FORMATS)} or none.")


def write(report: Report, folder: Path, formats: Sequence[str]) -> list[tuple[str, str]]:
    """Draw every figure in every format; return (file, title) of the first format."""
    if not formats or report.results.cells.empty:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[tuple[str, str]] = []
    for stem, title, draw in all_figures(report):
        figure = draw()
        for name in formats:
            (folder / f"{stem}.{name}").write_bytes(render(figure, name))
        drawn.append((f"{stem}.{formats[0]}", title))
    return drawn


def names(report: Report) -> list[str]:
    """File stems of the figures of a report."""
    return [] if report.results.cells.empty else [stem for stem, _, _ in all_figures(report)]


def all_figures(report: Report) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """(file stem, title, how to draw it) of every figure."""
    styled = styles(report.results.stored_names)
    anytime = Anytime.per_dataset(report.results, 40)
    names = file_stems(report.results.datasets)
    for dataset in report.results.datasets if len(names) <= MOST_DATASETS else ():
        title = f"Scores on {dataset} against training seconds"
        yield f"convergence-{names[dataset]}", title, partial(curves, anytime, dataset, report.results.headline, styled)
    for key in report.results.tested:
        label = report.results.metrics[key].label
        if not report.overview.blocks[key].values.empty:
            title = f"Critical-difference diagram, {label}"
            yield f"critical-difference-{key}", title, partial(critical_difference, report, key, styled)
            title = f"Mean rank in {label} against training seconds"
            yield f"rank-over-time-{key}", title, partial(rank_over_time, report, key, styled)
        title = f"Share of {label} targets reached"
        yield f"targets-{key}", title, partial(targets, report, key, styled)
    if report.calibrations:
        yield "coverage", "Coverage of central intervals", partial(coverage, report, styled)
        yield "pit", "Histograms of the probability integral transform", partial(pit, report, styled)
    for panel in (panel for panel in report.panels if "x2_range" not in panel):
        title = f"Predictive and prior on {panel['dataset']}"
        yield f"functions-{names[panel['dataset']]}", title, partial(functions, panel, styled)
        if any(column["inducing"] for column in panel["columns"]):
            title = f"Inducing inputs on {panel['dataset']} during training"
            yield f"inducing-{names[panel['dataset']]}", title, partial(inducing, panel, styled)


def render(figure: Figure, file_format: str) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    metadata: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():  # type: ignore[arg-type]
        # A name in a script that the font lacks is drawn as boxes (in SVG it stays text): no reason to disturb anybody.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format=file_format, dpi=300, metadata=metadata.get(file_format))
    return buffer.getvalue()


def new_figure(width: float, height: float, num_rows: int = 1, num_columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of its own, outside pyplot: nothing global, nothing to close."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.subplots(num_rows, num_columns, squeeze=False)
    return figure, list(axes.flat)


def panel_grid(count: int, most_columns: int, panel_height: float, extra_height: float) -> tuple[Figure, list[Axes]]:
    """A figure of text width with `count` visible panels, filled row by row."""
    columns = min(count, most_columns)
    rows = -(-count // columns)
    figure, panels = new_figure(TEXT_WIDTH, panel_height * rows + extra_height, rows, columns)
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels


def escape(text: str) -> str:
    """Names are shown as they are: matplotlib would read `$...$` as mathematics."""
    return text.replace("$", r"\$")


def legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        short = [escape(label if len(label) <= 28 else f"{label[:27]}…") for label in labels]
        figure.legend(handles, short, loc="outside lower center", ncols=5, fontsize=7, frameon=False)


def plot(axes: Axes, x: Floats, y: Floats, style: Style, label: str) -> None:
    dashes = style.dash if style.dash else (None, None)
    axes.plot(x, y, color=style.colour, dashes=dashes, lw=1.2, label=label)
    if np.isfinite(y).sum() == 1:
        axes.plot(x, y, style.marker, color=style.colour, ms=3)


def curves(anytime: Anytime, dataset: str, keys: Sequence[str], styled: Mapping[str, Style]) -> Figure:
    """One panel per metric: median over splits against training seconds, band between the quartiles."""
    figure, panels = new_figure(TEXT_WIDTH, 2.5, 1, len(keys))
    grid, metrics = anytime.grids[dataset], anytime.results.metrics
    for axes, key in zip(panels, keys, strict=True):
        for entry, style in styled.items():
            band = anytime.band(key, dataset, entry)
            if band is not None and np.isfinite(band[0]).any():
                plot(axes, grid, band[0], style, entry)
                axes.fill_between(grid, band[1], band[2], color=style.colour, alpha=0.15, lw=0)
        axes.set_xscale("log")
        axes.set_xlabel("training seconds")
        axes.set_title(f"{metrics[key].label} ({direction(metrics[key])})", fontsize=8)
    legend(figure, panels[0])
    return figure


def targets(report: Report, key: str, styled: Mapping[str, Style]) -> Figure:
    """Share of (data set, split, target) triples reached against training seconds."""
    figure, (axes,) = new_figure(COLUMN_WIDTH * 1.3, 2.8)
    shares = report.shares[key]
    grid = next(iter(report.slider.grids.values()))
    for entry, style in styled.items():
        if entry in shares:
            plot(axes, grid, shares[entry], style, entry)
    axes.set(xscale="log", xlabel="training seconds", ylim=(0, 1.02), ylabel=f"{report.results.metrics[key].label} targets reached")
    legend(figure, axes)
    return figure


def rank_over_time(report: Report, key: str, styled: Mapping[str, Style]) -> Figure:
    """Mean rank over dataset x split if training had stopped at each time."""
    figure, (axes,) = new_figure(COLUMN_WIDTH * 1.3, 2.8)
    grid, entries = next(iter(report.slider.grids.values())), report.overview.blocks[key].entries
    ranks = []
    for index in range(len(grid)):
        table = report.results.table(key, report.slider.values(key)[:, index])
        values = ranking.complete_blocks(table, entries=entries).values
        ranks.append(ranking.mean_rank(values, report.results.metrics[key].larger_is_better).to_numpy())
    for entry, column in zip(entries, np.column_stack(ranks), strict=True):
        plot(axes, grid, column, styled[entry], entry)
    axes.set(xscale="log", xlabel="training seconds", ylabel=f"mean rank, {report.results.metrics[key].label}")
    legend(figure, axes)
    return figure


def pit(report: Report, styled: Mapping[str, Style]) -> Figure:
    """One histogram per entry, data sets with equal weight; flat is calibrated."""
    entries = [entry for entry in styled if any(key[1] == entry for key in report.calibrations)]
    figure, panels = panel_grid(len(entries), most_columns=5, panel_height=1.2, extra_height=0.2)
    for axes, entry in zip(panels, entries, strict=False):
        density = np.mean([item.pit for key, item in report.calibrations.items() if key[1] == entry], axis=0)
        width = 1 / len(density)
        axes.bar((np.arange(len(density)) + 0.5) * width, density, width * 0.9, color=styled[entry].colour)
        axes.axhline(1.0, color="black", lw=0.6, ls="--")
        axes.set(xlim=(0, 1), ylim=(0, max(2.0, 1.05 * float(density.max()))))
        axes.set_title(escape(entry[:24]), fontsize=7)
        axes.tick_params(labelsize=6)
    return figure


def inducing(panel: Mapping[str, Any], styled: Mapping[str, Style]) -> Figure:
    """Where the inducing inputs lie at each evaluation; training time runs upwards."""
    columns = [column for column in panel["columns"] if column["inducing"]][:8]
    figure, panels = new_figure(2.3 * len(columns), 2.0, 1, len(columns))
    for axes, column in zip(panels, columns, strict=True):
        times = [max(look["train_seconds"], 1e-3) for look in column["inducing"]]
        count = min(len(look["z"]) for look in column["inducing"])
        paths = np.array([look["z"][:count] for look in column["inducing"]], dtype=float)  # [T, M]
        axes.plot(paths, times, color=styled[column["entry"]].colour, lw=0.6)
        axes.plot(paths[-1], np.full(count, times[-1]), ".", color=styled[column["entry"]].colour, ms=3)
        axes.set(yscale="log", ylabel="training seconds", xlabel="x")
        axes.set_title(escape(column["entry"][:30]), fontsize=8)
    return figure


def critical_difference(report: Report, key: str, styled: Mapping[str, Style]) -> Figure:
    """Demšar's diagram of the ranks of data set means."""
    blocks = report.overview.blocks[key]
    ranks = ranking.ranks_of_dataset_means(blocks.values, report.results.metrics[key].larger_is_better, blocks.constant)
    critical = statistics.nemenyi_critical_difference(max(ranks.shape[1], 2), len(ranks))
    ordered = ranks.mean().sort_values(kind="stable")
    bars = statistics.cliques(ordered, critical)
    count = len(ordered)
    half = (count + 1) // 2
    depth = 0.35 * len(bars) + half + 1.2
    figure, (axes,) = new_figure(TEXT_WIDTH, 0.18 * depth + 0.7)
    axes.set(xlim=(1 - 0.45 * count, count + 0.45 * count), ylim=(-depth, 1.6))
    axes.axis("off")
    axes.hlines(0, 1, max(count, 2), color="black", lw=0.8)
    for rank in range(1, count + 1, -(-count // 20)):
        axes.vlines(rank, 0, 0.25, color="black", lw=0.8)
        axes.text(rank, 0.4, str(rank), ha="center", fontsize=7)
    for index, group in enumerate(bars):
        axes.hlines(-0.35 * (index + 1), ordered[group[0]] - 0.03, ordered[group[-1]] + 0.03, color="black", lw=2)
    _names(axes, ordered, styled, half, 0.35 * len(bars) + 0.6)
    title = f"{report.results.metrics[key].label}: critical difference {critical:.2f} (Nemenyi, 5 %, {len(ranks)} data sets)"
    axes.set_title(title, fontsize=8)
    return figure


def _names(axes: Axes, ordered: pd.Series, styled: Mapping[str, Style], half: int, top: float) -> None:
    """Better half to the left, worse half to the right, each with a line from its rank."""
    count = len(ordered)
    for index, (entry, rank) in enumerate(ordered.items()):
        left = index < half
        y = -top - (index if left else count - 1 - index)
        end = 1 - 0.1 if left else count + 0.1
        axes.plot([rank, rank, end], [0, y, y], color=styled[str(entry)].colour, lw=0.9)
        name = str(entry) if len(str(entry)) <= 30 else f"{str(entry)[:29]}…"
        text = escape(f"{name} {rank:.2f}")
        axes.text(end - 0.05 if left else end + 0.05, y, text, ha="right" if left else "left", va="center", fontsize=7)


def coverage(report: Report, styled: Mapping[str, Style]) -> Figure:
    """Coverage against promise, one panel per data set."""
    datasets = report.results.datasets[:MOST_DATASETS]
    figure, panels = panel_grid(len(datasets), most_columns=4, panel_height=1.9, extra_height=0.5)
    for axes, dataset in zip(panels, datasets, strict=False):
        axes.plot([0, 1], [0, 1], color="grey", lw=0.6)
        for entry, style in styled.items():
            item = report.calibrations.get((dataset, entry))
            if item is not None:
                plot(axes, np.array([0, *LEVELS, 1]), np.array([0, *item.coverage, 1]), style, entry)
        axes.set_title(escape(dataset), fontsize=8)
        axes.set(xlabel="promised", ylabel="covered", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    legend(figure, panels[0])
    return figure


def functions(panel: Mapping[str, Any], styled: Mapping[str, Style]) -> Figure:
    """One column per entry: quantile fan, draws of the function, draws of the prior; the same axes in a row."""
    columns = panel["columns"][:8]
    kinds = [kind for kind in ("quantiles", "samples", "draws", "prior") if any(column[kind] for column in columns)]
    figure, panels = new_figure(1.6 * len(columns) + 0.3, 1.35 * len(kinds) + 0.2, len(kinds), len(columns))
    for index, axes in enumerate(panels):
        kind, column = kinds[index // len(columns)], columns[index % len(columns)]
        draw_panel(axes, panel, column, kind, styled[column["entry"]])
        if index < len(columns):
            axes.set_title(escape(column["entry"][:24]), fontsize=7)
        if index % len(columns) == 0:
            axes.set_ylabel(PANEL_NAMES[kind], fontsize=7)
        axes.tick_params(labelsize=6)
    return figure


def draw_panel(axes: Axes, panel: Mapping[str, Any], column: Mapping[str, Any], kind: str, style: Style) -> None:
    x = np.asarray(column["x"], dtype=float)
    if kind != "prior":
        train = np.asarray(panel["train"], dtype=float)
        axes.plot(train[:, 0], train[:, 1], ".", color="grey", ms=1, alpha=0.5)
    if kind in ("quantiles", "samples"):
        for part in panel["oracle"] or []:
            axes.fill_between(part["x"], part["low"], part["high"], color="black", alpha=0.12, lw=0)
    if kind == "quantiles":
        fan = [np.asarray(item["y"], dtype=float) for item in column["quantiles"]]
        for low, high in zip(fan[: len(fan) // 2], fan[::-1], strict=False):
            axes.fill_between(x, low, high, color=style.colour, alpha=0.25, lw=0)
        if len(fan) % 2:
            axes.plot(x, fan[len(fan) // 2], color=style.colour, lw=0.9)
    elif kind == "samples":
        for row in column["samples"]:
            axes.plot(x, row, ".", color=style.colour, ms=1, alpha=0.6)
    else:
        for row in column[kind]:
            axes.plot(x, row, color=style.colour, lw=0.6, alpha=0.7)
    axes.set(xlim=panel["x_range"], ylim=panel["prior_range"] if kind == "prior" else panel["y_range"])
