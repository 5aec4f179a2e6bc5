"""The page of the performance history: `history/index.html`, in the style of a report, from kept results alone."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from fsibench.history.record import FOLDER, CommitRecord
from fsibench.history.trends import Point, Trend
from fsibench.reports.templates import page_template, shared_file

SHARED_SCRIPTS = ("tools.js", "tables.js", "charts.js")


def write(records: Sequence[CommitRecord], trends: Sequence[Trend], out_dir: Path, asv_site: str | None = None) -> Path:
    """Write the page below `out_dir`; `asv_site` is the address of asv's own pages, if they were made."""
    folder = out_dir / "history"
    folder.mkdir(parents=True, exist_ok=True)
    changed = [(trend, point) for trend in trends for point in trend.points]
    text = page_template(_own("page.html.j2")).render(
        title="fsibench", page_title="Performance history", navigation=[("index.html", "Performance history")],
        this_file="index.html", version=importlib.metadata.version("fsibench"), source=FOLDER.as_posix(), refresh=None,
        style=shared_file("style.css"), shared_scripts=[shared_file(name) for name in SHARED_SCRIPTS], scripts=[_own("page.js")],
        num_commits=len(records), num_series=len(trends), first=records[0], last=records[-1], asv_site=asv_site,
        rows=[_row(trend, point) for trend, point in changed], data=page_data(records, trends),
    )  # fmt: skip
    path = folder / "index.html"
    path.write_text(text, encoding="utf-8")
    return path


def page_data(records: Sequence[CommitRecord], trends: Sequence[Trend]) -> dict[str, Any]:
    """What the script draws: commits once, each series as values by the place of their commit."""
    places = {record.sha: place for place, record in enumerate(records)}
    commits = [{"sha": record.sha[:10], "date": record.date[:16].replace("T", " "), "subject": record.subject} for record in records]
    series = [
        {
            "name": trend.name,
            "entry": entry_of(trend.name),
            "unit": trend.unit,
            "places": [places[sha] for sha in trend.shas],
            "values": [float(f"{value:.4g}") for value in trend.middles],
            "repeats": [list(repeats) for repeats in trend.values],
            "points": [_point(point, places) for point in trend.points],
        }
        for trend in trends
    ]
    return {"commits": commits, "series": series}


def _point(point: Point, places: dict[str, int]) -> dict[str, Any]:
    return {
        "place": places[point.last],
        "from": point.first[:10],
        "size": point.size,
        "word": point.word,
        "votes": ", ".join(point.votes),
        "accepted": point.accepted,
    }


def entry_of(name: str) -> str:
    """The method that a series is about, `blocks` and the like where it is about none."""
    suite, _, parameters = name.partition("(")
    if suite.startswith(("steps.", "quality.", "memory.", "predict.")):
        return parameters.removesuffix(")").split("[")[0].split(",")[0]
    return suite.split(".")[0]


def _row(trend: Trend, point: Point) -> dict[str, str]:
    return {
        "entry": entry_of(trend.name),
        "series": trend.name,
        "commits": point.commits,
        "before": f"{point.before:.4g}",
        "after": f"{point.after:.4g}",
        "size": point.size,
        "word": point.word,
        "votes": ", ".join(point.votes),
        "accepted": point.accepted,
    }


def _own(name: str) -> str:
    return (resources.files("fsibench.reports.history") / name).read_text(encoding="utf-8")
