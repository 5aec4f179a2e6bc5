"""Published numbers of methods outside the SIP paper beside ours, with a verdict only where it would be fair.

The table is shipped with its sources (`data/published_peers.csv`). A number is compared with ours only if our entry
names that column (`reproduces`), optimises its objective, ran on splits of the same kind and with enough of them, and
if the source gives a spread. Otherwise the two stand beside each other, with the reason.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

import pandas as pd

from fsibench.metrics import known
from fsibench.options import parse_entry
from fsibench.reports.analysis.ledger import Line, compare, shortfall, survivors
from fsibench.reports.analysis.overview import Overview
from fsibench.reports.analysis.results import Results
from fsibench.reports.numbers import with_error

SOURCES = {
    "gal2016": "Gal and Ghahramani (2016), as their repository repeats it",
    "lakshminarayanan2017": "Lakshminarayanan, Pritzel and Blundell (2017), table 1: five networks of one hidden layer, 40 epochs",
    "ortega2023": "Ortega et al. (2023), layers chosen on the test rows",
    "cinquin2025": "Cinquin and Bamler (2025)",
}
UNNAMED = "shown beside"


def published() -> pd.DataFrame:
    """The shipped table; `printed` has the digits of the source."""
    text = (resources.files("fsibench.reports") / "data" / "published_peers.csv").read_text(encoding="utf-8")
    texts = pd.read_csv(io.StringIO(text), dtype={"mean": str, "spread": str})
    spread = " ± " + texts["spread"] + " (" + texts["spread_is"] + ")"
    printed = (texts["mean"] + spread.fillna("")).str.replace("-", "−").str.replace("e−", "e-")
    return texts.assign(printed=printed, mean=texts["mean"].astype(float), spread=texts["spread"].astype(float))


def lines(overview: Overview) -> list[Line]:
    """One line per published number and entry of ours that is nearest to it."""
    found: list[Line] = []
    for row in published().to_dict("records"):
        entries: list[str | None] = [*matching(overview.results, str(row["entry"]))]
        found += (_line(row, entry, overview) for entry in entries or [None])
    return found


def matching(results: Results, text: str) -> list[str]:
    """Our entries of the method that `text` names, with at least its options."""
    method, wanted = parse_entry(text)
    rows = results.cells[results.cells["method"] == method][["entry", "options"]].drop_duplicates()
    return [
        str(entry)
        for entry, options in rows.itertuples(index=False)
        if all(str(json.loads(options).get(name)) == value for name, value in wanted.items())
    ]


def _line(row: Mapping[str, Any], entry: str | None, overview: Overview) -> Line:
    key, dataset = str(row["metric"]).lower(), str(row["dataset"])
    summary = overview.summaries.get(key)
    ours = summary.loc[(dataset, entry)] if summary is not None and (dataset, entry) in summary.index else None
    mean = math.nan if ours is None else float(ours["mean"])
    text = "–" if ours is None or math.isnan(mean) else " ± ".join(with_error(mean, float(ours["standard_deviation"])))
    cells = overview.results.cells
    verdict, why = _verdict(row, ours, cells[(cells["dataset"] == dataset) & (cells["entry"] == entry)])
    return Line(dataset, key, row["column"], row["printed"], row["mean"], entry, mean, text, verdict, why, SOURCES[row["source"]])


def _verdict(row: Mapping[str, Any], ours: pd.Series | None, cells: pd.DataFrame) -> tuple[str, str]:
    metric = str(row["metric"]).lower()
    if metric not in known() or row["units"] != "target":
        return "not comparable", f"{row['metric']} in {row['units']} units is another score than ours"
    if ours is None or ours["cells"] == 0:
        return "not run", "no finished cell"
    variants = sorted({text for text in cells["variant"] if text})
    if variants:
        return "variant", ", ".join(variants)
    if set(cells["scheme"]) != {row["splits"]}:
        return "not comparable", f"ours are of the split scheme {', '.join(sorted(set(cells['scheme'])))}, published {row['splits']}"
    if scarce := shortfall(cells):
        return "not comparable", scarce
    if math.isnan(row["spread"]):
        return "not comparable", "no spread is published"
    if set(cells["reproduces"]) != {row["column"]}:
        return UNNAMED, "our entry does not claim to reproduce this column"
    if math.isnan(float(ours["mean"])):
        return "worse", f"all {int(ours['failed'])} cells failed"
    if few := survivors(ours):
        return "not comparable", few
    spread = row["spread"] * (math.sqrt(row["num_splits"]) if row["spread_is"] == "se" else 1.0)
    verdict, why = compare({**row, "metric": metric, "spread": spread}, ours)
    return verdict, why
