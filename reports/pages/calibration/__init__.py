"""PIT histograms, coverage, over- and under-confidence."""

from __future__ import annotations

from typing import Any

import numpy as np

from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import LEVELS
from fsibench.reports.numbers import signed
from fsibench.reports.pages import Page, common, plain, single
from fsibench.reports.texts import entry_name

# Class and sign of a flag: the two directions must not look alike.
TONES = {"": "", "over-confident": "over", "under-confident": "under"}


def calibration_page(report: Report) -> dict[str, Any]:
    results, found = report.results, report.calibrations
    style_rows = [
        {
            "entry": entry_name(str(entry), row),
            "page": report.entry_files[str(entry)],
            "cells": [confidence(found.get((d, entry))) for d in results.datasets],
        }
        for entry, row in report.overview.board.iterrows()
    ]
    per_dataset = [
        [calibration_item(found.get((dataset, entry))) for entry in results.entries] for dataset in results.datasets
    ]
    pooled = [pooled_item([found[d, entry] for d in results.datasets if (d, entry) in found]) for entry in results.entries]
    return {
        "page_title": "Calibration",
        "datasets": [(name, report.dataset_files[name]) for name in results.datasets],
        "confidence": style_rows,
        "data": {
            **common(report),
            "levels": LEVELS.tolist(),
            "calibration": [pooled, *per_dataset],
        },
    }


def confidence(item: Any) -> dict[str, str]:
    if item is None:
        return {"text": "–", "flag": "", "tone": ""}
    return {"text": signed(100 * item.gap, 1), "flag": item.flag, "tone": TONES[item.flag]}


def calibration_item(item: Any) -> dict[str, Any] | None:
    if item is None:
        return None
    numbers = {"pit": plain(item.pit), "coverage": plain(item.coverage)}
    return {**numbers, "error": float(f"{item.error:.4g}"), "sharpness": float(f"{item.sharpness:.4g}")}


def pooled_item(items: list[Any]) -> dict[str, Any] | None:
    """All data sets with equal weight; sharpness has no common unit."""
    if not items:
        return None
    pit = np.mean([item.pit for item in items], axis=0)
    coverage = np.mean([item.coverage for item in items], axis=0)
    error = float(np.mean([item.error for item in items]))
    return {"pit": plain(pit), "coverage": plain(coverage), "error": float(f"{error:.4g}"), "sharpness": None}


PAGE = Page("Calibration", 30, single("calibration.html", calibration_page), __name__)
