"""What every entry ran with: option, value, and whose value it is."""

from __future__ import annotations

import json

import pandas as pd

from fsibench.errors import UsageError
from fsibench.options import parse_entry, show
from fsibench.reports.analysis.results import Results

COLUMNS = ["entry", "option", "value", "changed", "whose"]


def option_table(results: Results) -> pd.DataFrame:
    """One row per entry and option. The name of an entry holds the options that differ from the method's defaults."""
    rows = []
    latest = results.cells.sort_values("started").drop_duplicates("entry", keep="last").set_index("entry")
    for entry in results.entries:
        changed = _given(results.stored_names[entry])
        for option, value in json.loads(latest.loc[entry, "options"]).items():
            is_changed = option in changed
            whose = "changed in the run" if is_changed else "default of the method"
            rows.append([entry, option, _text(value), is_changed, whose])
    return pd.DataFrame(rows, columns=COLUMNS)


def _text(value: object) -> str:
    return show(tuple(value) if isinstance(value, list) else value)


def _given(name: str) -> set[str]:
    try:
        return set(parse_entry(name)[1])
    except UsageError:  # an entry name that another program wrote
        return set()
