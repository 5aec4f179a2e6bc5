"""What entries lack at small budgets: seconds before the first step, cost of a step, quality at two budgets.

    python scripts/small_budgets.py                                     # the table of docs/small-budgets.md
    python scripts/small_budgets.py --entries sip,gp --budgets 1,60     # others

Each fit sees four fifths of the training rows of split 0 of `paper`, of tables from the development suite; its CRPS, of
standardised targets, is that of the other fifth. No test row is used. Clock: CPU seconds of this process, one thread.
A longer budget is a fit of its own, because schedules follow the budget.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
from tabulate import tabulate

from fsibench import registry
from fsibench.blocks.allocator import keep_freed_memory
from fsibench.contract import Data, Meter
from fsibench.data import prepare
from fsibench.options import split_list

ENTRIES = "linear,ensemble,bbb,sip,vip,fbnn,fvi"


@dataclass(frozen=True)
class Fit:
    first: float  # CPU seconds until the first posterior
    steps: int
    crps: float


def held_out(dataset: str) -> tuple[Data, Data]:
    """Four fifths of the training rows of split 0, and the others."""
    prepared = prepare(registry.dataset(dataset), "paper", 0)
    x, y = torch.from_numpy(prepared.train_x), torch.from_numpy(prepared.train_y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    held, kept = order.tensor_split([len(y) // 5])
    return Data(x[kept], y[kept]), Data(x[held], y[held])


def fit(entry: str, dataset: str, seconds: float) -> Fit:
    train, test = held_out(dataset)
    meter, first = Meter(seconds, clock=time.process_time), 0.0
    for pulled in meter.pulls(registry.entry(entry).method, train, torch.Generator().manual_seed(0)):
        first, posterior = first or meter.elapsed, pulled
    crps = posterior.predict(test.x, torch.Generator().manual_seed(0)).crps(test.y).mean().item()
    return Fit(first, meter.steps_done, crps)


def row(entry: str, datasets: list[str], budgets: list[float]) -> dict[str, object]:
    """One line of the table: means over the data sets."""
    fits = {budget: [fit(entry, dataset, budget) for dataset in datasets] for budget in budgets}
    count, longest = len(datasets), max(budgets)
    cells: dict[str, object] = {"entry": entry}
    for budget in budgets:
        cells[f"s before step 1 ({budget:g} s)"] = round(sum(each.first for each in fits[budget]) / count, 2)
    spent = sum(longest - each.first for each in fits[longest])
    steps = sum(each.steps - 1 for each in fits[longest])
    cells["ms per step"] = round(1e3 * spent / steps, 1) if steps else None
    for budget in budgets:
        cells[f"steps ({budget:g} s)"] = round(sum(each.steps for each in fits[budget]) / count)
        cells[f"CRPS ({budget:g} s)"] = round(sum(each.crps for each in fits[budget]) / count, 3)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", default=ENTRIES)
    parser.add_argument("--datasets", default="autompg,fish-toxicity")
    parser.add_argument("--budgets", default="1,5", help="CPU seconds, with commas")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    budgets = [float(text) for text in arguments.budgets.split(",")]
    rows = []
    for entry in split_list(arguments.entries):
        rows.append(row(entry, arguments.datasets.split(","), budgets))
        print(rows[-1], flush=True)
    print(tabulate(rows, headers="keys", tablefmt="github"))


if __name__ == "__main__":
    main()
