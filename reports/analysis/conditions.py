"""Which cells of a store a report compares: per data set those of one condition (split scheme, budget, clock, device).

It is the condition with the most cells unless the caller asks for another; sentences say what is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fsibench.errors import UsageError

CONDITION = ("scheme", "budget", "clock", "device")
BLOCK = ("dataset", "split", "seed")


def own_budgets(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """(entry, its own budget) -> the budget of the others, as the protocols of the runs stated it."""
    protocols = [run["protocol"] for run in runs if run["protocol"].get("seconds") is not None]
    return {
        (entry, f"{seconds:g}s"): f"{protocol['seconds']:g}s"
        for protocol in protocols
        for entry, seconds in (protocol.get("budgets") or {}).items()
    }


def select_conditions(
    cells: pd.DataFrame, where: Mapping[str, str], own: Mapping[tuple[str, str], str] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Per data set the condition with the most cells (the latest among equals), and sentences on what is left out.

    A budget that a protocol gave to one entry of its own (`own`) stands beside the budget of the others, with a note.
    """
    cells = cells.assign(own_budget=_own_budget(cells, own or {}))
    for column, wanted in where.items():
        values = _compared_budget(cells, own or {}) if column == "budget" else cells[column]
        present = sorted(values.unique())
        if wanted not in present:
            raise UsageError(f"no cell has {column} {wanted!r}; the store has {', '.join(map(repr, present))}.")
        cells = cells[values == wanted]
    if cells.empty:
        return cells.reset_index(drop=True), []
    keys = ["dataset", *CONDITION]
    grouped = cells[[*keys, "started"]].assign(budget=_compared_budget(cells, own or {})).groupby(keys, sort=False, observed=True)
    groups = grouped["started"].agg(["size", "max"]).reset_index().sort_values(["size", "max"], kind="stable")
    chosen = groups.drop_duplicates("dataset", keep="last")
    # Rows are chosen by their places, and taken once: every copy of a large table costs memory.
    places = np.flatnonzero(grouped.ngroup().isin(chosen.index))
    small = cells[["id", "own_budget", "entry", *BLOCK]].iloc[places].reset_index(drop=True)
    if (small["own_budget"] != "").any():
        small = small.sort_values("own_budget", key=lambda told: told.astype(str), kind="stable")
    small = small[~small.duplicated(["entry", *BLOCK], keep="last")]
    selected = cells.iloc[places[small["id"].sort_values().index]]
    return selected.reset_index(drop=True), _left_out(groups.drop(chosen.index))


def _own_budget(cells: pd.DataFrame, own: Mapping[tuple[str, str], str]) -> pd.Series:
    """What to say about a budget of the entry's own; empty for most cells."""
    told = pd.Series(pd.Categorical([""]).repeat(len(cells)), index=cells.index)
    for entry, budget in own:
        told = told.cat.add_categories([text for text in [f"budget {budget}"] if text not in told.cat.categories])
        told[(cells["entry"] == entry) & (cells["budget"] == budget)] = f"budget {budget}"
    return told


def _compared_budget(cells: pd.DataFrame, own: Mapping[tuple[str, str], str]) -> pd.Series:
    """The budget under which a cell is compared: that of the others where it has one of its own."""
    budgets = cells["budget"]
    for (entry, budget), others in own.items():
        here = (cells["entry"] == entry) & (cells["budget"] == budget)
        budgets = budgets.astype(object).mask(here, others) if here.any() else budgets
    return budgets


def _left_out(dropped: pd.DataFrame) -> list[str]:
    sentences = []
    for condition, rows in dropped.groupby(list(CONDITION), sort=True, observed=True):
        text = ", ".join(f"{name} {value}" for name, value in zip(CONDITION, condition, strict=True))
        names = ", ".join(sorted(rows["dataset"]))
        number = int(rows["size"].sum())
        shown = "1 cell" if number == 1 else f"{number} cells"
        sentences.append(f"{shown} with {text} (on {names}) {'is' if number == 1 else 'are'} not shown here.")
    return sentences
