"""Data cards: what a set is, where it is from, what may be done with it, how its target is spread, what an audit finds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fsibench.data.audit import MOST_TWIN_VALUES, Twins, columns, twin_findings, twins_across
from fsibench.data.splits import NUM_SPLITS
from fsibench.data.tables import Dataset, Table, TableDataset

BINS = 20
LARGE_ROWS = 100_000  # beyond it twins are counted in one split instead of all
NOT_COUNTED = "not counted"
_BARS = "·▁▂▃▄▅▆▇█"  # a dot where there is none: Markdown would swallow spaces


def card(dataset: Dataset, *, quick: bool = False) -> dict[str, Any]:
    """The card as plain JSON-able values; the data must be on this machine.

    `quick`: the twins of a large table are those that its passport states, if it does.
    """
    found = dataclasses.asdict(dataset.describe())
    stated = found.pop("twins"), found.pop("twin_share")
    if not isinstance(dataset, TableDataset):
        return found
    table = dataset.rows()
    if quick and table.x.size > MOST_TWIN_VALUES:
        twins = None if stated[0] is None else Twins(*stated)
    else:
        few = 1 if table.keys or len(table) > LARGE_ROWS else min(NUM_SPLITS, dataset.num_splits("standard"))
        twins = twins_across(dataset, table, "standard", tuple(range(few)))
    findings = columns(table) + twin_findings(twins)
    return found | {
        "rows": len(table),
        "inputs": len(table.columns),
        "target_values": _summary(table),
        "nominal": {name: len(labels) for name, labels in table.levels.items()},
        "missing": _missing(table),
        "twins": None if twins is None else dataclasses.asdict(twins),
        "audit": [dataclasses.asdict(finding) for finding in findings],
    }


def _summary(table: Table) -> dict[str, Any]:
    y = np.asarray(table.y)
    counts, edges = np.histogram(y, bins=BINS)
    return {
        "mean": float(y.mean()),
        "sd": float(y.std()),
        "min": float(y.min()),
        "max": float(y.max()),
        "distinct": len(np.unique(y)),
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def _missing(table: Table) -> dict[str, int]:
    counts = [int(np.isnan(table.x[:, place]).sum()) for place in range(table.x.shape[1])]
    return {name: count for name, count in zip(table.columns, counts, strict=True) if count}


def text(content: dict[str, Any]) -> str:
    """A card for reading, in Markdown."""
    pairs = [
        ("size", f"{content['rows']:,} rows, {content['inputs']} inputs"),
        *((key, content[key]) for key in ("source", "licence", "citation", "note", "suite")),
        ("target", content["target"] + (f" {_spread(content['target_values'])}" if "target_values" in content else "")),
    ]
    if content.get("nominal"):
        pairs.append(("nominal", ", ".join(f"{name} ({count} labels)" for name, count in content["nominal"].items())))
    if content.get("missing"):
        pairs.append(("missing", ", ".join(f"{name} ({count} rows)" for name, count in content["missing"].items())))
    if "audit" in content:
        twins = content["twins"]
        pairs.append(("twins", NOT_COUNTED if twins is None else show_twins(**twins)))
        others = [finding for finding in content["audit"] if finding["kind"] != "twins"]
        pairs.append(("audit", "; ".join(_sentence(finding) for finding in others) or "nothing found"))
    return "\n".join([f"## {content['name']}", "", *(f"- {label}: {words}" for label, words in pairs if words)])


def show_twins(repeats: int, share: float) -> str:
    if not repeats:
        return "none"
    return f"{repeats:,} rows repeat another; {100 * share:.2g} % of test rows (90/10) have a twin in training"


def _sentence(finding: dict[str, str]) -> str:
    return f"{finding['column']}: {finding['sentence']}"


def _spread(values: dict[str, Any]) -> str:
    counts = values["histogram"]["counts"]
    bars = "".join(_BARS[-(-8 * count // max(counts))] for count in counts)
    shown = f"mean {values['mean']:.6g}, sd {values['sd']:.6g}, {values['distinct']:,} different values"
    return f"({shown}) {values['min']:.4g} |{bars}| {values['max']:.4g}"
