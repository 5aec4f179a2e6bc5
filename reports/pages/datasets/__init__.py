"""A page per data set: what it is, curves, ranking, how hard its splits are, panels of functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fsibench.reports.analysis import hardest, plausibility, ranking
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import LEVELS
from fsibench.reports.numbers import number
from fsibench.reports.pages import Page, Sheets, common
from fsibench.reports.pages.calibration import calibration_item
from fsibench.reports.pages.convergence import curves
from fsibench.reports.texts import score_text


def sheets(report: Report) -> Sheets:
    results, shared = report.results, common(report)
    listing: dict[str, Any] = {
        "page_title": "Data sets",
        "listing": [{"dataset": name, "page": report.dataset_files[name], **passport(report, name)} for name in results.datasets],
        "dataset": None,
        "data": {},
    }
    pages: dict[str, dict[str, Any]] = {
        report.dataset_files[name]: {
            "page_title": name,
            "listing": [],
            "dataset": name,
            "facts": facts(report, name),
            "heads": [metric.label for metric in results.metrics.values()],
            "ranking": ranking_rows(report, name),
            "order": results.metrics[report.overview.main_metric].label,
            "uneven": any(dataset == name for dataset, _ in report.overview.fewer_splits),
            "hardest": hardest_rows(report, name),
            "points": point_rows(report, name),
            "main": results.metrics[report.overview.main_metric].label,
            "data": {
                **shared,
                "headline": results.headline,
                "levels": LEVELS.tolist(),
                "name": name,
                "curves": curves(report, [name]),
                "calibration": [calibration_item(report.calibrations.get((name, entry))) for entry in results.entries],
                "panels": [panel for panel in report.panels if panel["dataset"] == name],
            },
        }
        for name in results.datasets
    }
    return {"datasets.html": listing, **pages}


def passport(report: Report, dataset: str) -> dict[str, str]:
    """Sizes and conditions of a data set, as the store has them."""
    cells = report.results.cells
    part = cells[cells["dataset"] == dataset]
    sizes = {name: part[name].dropna().max() for name in ("num_train", "num_test", "num_inputs")}
    texts = {name: "–" if pd.isna(size) else f"{int(size):,}".replace(",", "\u202f") for name, size in sizes.items()}
    each = part.groupby("entry", observed=True)["split"].nunique()
    return {**texts, "splits": f"{each.max()}" if each.min() == each.max() else f"{each.min()} to {each.max()}"}


def thinned(report: Report, dataset: str) -> str:
    rows = report.overview.thinned.get(dataset)
    if rows is None:
        return ""
    shown = " or ".join(f"{number:,}".replace(",", "\u202f") for number in rows.scored)
    return f"; {shown} of them were scored" + (", the same for every entry" if rows.alike else "")


def facts(report: Report, dataset: str) -> list[tuple[str, str]]:
    results, known = report.results, passport(report, dataset)
    part = results.cells[results.cells["dataset"] == dataset]
    oracle = plausibility.oracles().get(plausibility.base_name(dataset))
    scale = part["target_scale"].dropna()
    card = results.data_cards.get(plausibility.base_name(dataset), {})
    named = {
        "training rows": known["num_train"],
        "test rows": known["num_test"] + thinned(report, dataset),
        "inputs": known["num_inputs"],
        "splits": f"{known['splits']}, scheme {', '.join(sorted(part['scheme'].unique()))}",
        "budget": f"{', '.join(sorted(part['budget'].unique()))}, clock {', '.join(sorted(part['clock'].unique()))}",
        "standard deviation of the target": number(float(scale.mean())) if len(scale) else "",
        **{name: str(card.get(name) or "") for name in ("target", "source", "citation", "licence", "note")},
        "audit": "; ".join(finding["sentence"] for finding in card.get("audit", ())),
        "fingerprint": ", ".join(sorted({str(text)[:16] for text in part["data_fingerprint"]})),
        "scores of the true conditional": ", ".join(f"{key} {number(value, 4)}" for key, value in (oracle or {}).items()),
    }
    return [(name, value) for name, value in named.items() if value]


def ranking_rows(report: Report, dataset: str) -> list[dict[str, Any]]:
    """Entries by their mean in the main metric on this data set, those without one last."""
    overview, results = report.overview, report.results
    means = overview.means(overview.main_metric, dataset)
    larger = results.metrics[overview.main_metric].larger_is_better
    order = sorted(means, key=lambda entry: means[entry], reverse=larger)
    order += [entry for entry in results.entries if entry not in means]
    return [
        {
            "entry": entry,
            "page": report.entry_files[entry],
            "note": results.notes.get(entry, ""),
            "distrusted": entry in overview.distrusted,
            "cells": [score_text(overview, key, dataset, entry) for key in results.metrics],
        }
        for entry in order
    ]


def hardest_rows(report: Report, dataset: str) -> list[list[str]]:
    """Splits by how much worse than on the other splits the ranked entries do, the hardest first."""
    overview = report.overview
    blocks = overview.blocks[overview.main_metric]
    if dataset not in blocks.datasets:
        return []
    values = ranking.impute(blocks.values, blocks.constant).loc[dataset].groupby(level="split", observed=True).mean()
    sign = -1.0 if report.results.metrics[overview.main_metric].larger_is_better else 1.0
    excess = (sign * (values - values.mean())).median(axis=1).sort_values(ascending=False)
    worst = (sign * values).idxmax(axis=1)
    return [[str(split), number(float(values.loc[split].median()), 4), number(float(gap), 3), str(worst[split])]
            for split, gap in excess.items() if np.isfinite(gap)]  # fmt: skip


def point_rows(report: Report, dataset: str) -> list[list[str]]:
    """Rows that are among the worst of many entries: which, target, how many, CRPS, what was predicted, inputs."""
    table = hardest.hardest_points(report.worst_rows, dataset)
    return [
        [str(point), number(row["y"]), str(row["entries"]), str(row["cells"]), number(row["crps"], 3),
         f"{number(row['low'], 3)} to {number(row['high'], 3)}", row["inputs"]]
        for point, row in table.iterrows()
    ]  # fmt: skip


PAGE = Page("Data sets", 54, sheets, __name__)
