"""Figures for paper and page, made with matplotlib: the same curve goes to SVG, PDF and PNG at print size."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fsibench.reports.anytime import Anytime
from fsibench.reports.looks import Look
from fsibench.reports.results import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH, TEXT_WIDTH = 3.4, 7.0  # inches: one and two columns of a proceedings page
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


def render(figure: Figure, file_format: str) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format)
    with matplotlib.rc_context(SETTINGS):  # type: ignore[arg-type]
        figure.savefig(buffer, format=file_format, dpi=300, metadata=metadata)
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


def curves(anytime: Anytime, dataset: str, metrics: Sequence[str], looks: Mapping[str, Look]) -> Figure:
    """One panel per metric: median over splits against training seconds, band between the quartiles."""
    figure, panels = new_figure(TEXT_WIDTH, 2.3, 1, len(metrics))
    for axes, metric in zip(panels, metrics, strict=True):
        for entry, look in looks.items():
            middle, low, high = anytime.band(metric, dataset, entry)
            if np.isfinite(middle).any():
                axes.plot(anytime.seconds, middle, color=look.colour, dashes=look.dash or (None, None), lw=1.2, label=entry)
                axes.fill_between(anytime.seconds, low, high, color=look.colour, alpha=0.15, lw=0)
        axes.set_xscale("log")
        axes.set_xlabel("training seconds")
        axes.set_title(f"{METRICS[metric].label} ({METRICS[metric].direction})", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, [escape(label) for label in labels], loc="outside lower center", ncols=5, fontsize=7)
    return figure


def escape(text: str) -> str:
    """Names are shown as they are: matplotlib would read `$...$` as mathematics."""
    return text.replace("$", r"\$")
