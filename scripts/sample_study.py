"""How many draws does a prediction of SIP need?

    python scripts/sample_study.py [--datasets boston,concrete,yacht,bimodal] [--steps 2000] [--repetitions 20] [--lite]

One fit for each data set, split 0; then predictions from the same posterior with different numbers of draws, several times each.
Entries of a protocol would not do: every entry has a seed of its own, and two fits differ by more than two predictions. For each number of
draws the table has the mean of each score over repetitions, its standard deviation, and the CPU time for 1,000 rows.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import time

import pandas as pd
import torch

from fsibench.contract import Data, Meter
from fsibench.data import Prepared, prepare
from fsibench.methods.sip import SIP, SparseImplicitProcess
from fsibench.registry import dataset

NUMBERS = (20, 50, 100, 200, 500, 1000)
SEED = 1


def fitted(rows: Prepared, steps: int) -> SparseImplicitProcess:
    train = Data(torch.as_tensor(rows.train_x), torch.as_tensor(rows.train_y))
    *_, posterior = Meter(steps=steps).pulls(SIP(), train, torch.Generator().manual_seed(SEED))
    assert isinstance(posterior, SparseImplicitProcess)
    return posterior


def scores(posterior: SparseImplicitProcess, rows: Prepared, num_draws: int, seed: int) -> dict[str, float]:
    """LL, RMSE and CRPS of one prediction, in the target's units, and its CPU milliseconds for 1,000 rows."""
    model = copy.copy(posterior)
    model.options = dataclasses.replace(posterior.options, num_test_draws=num_draws)
    start = time.process_time()
    standardised = model.predict(torch.as_tensor(rows.test_x), torch.Generator().manual_seed(seed))
    seconds = time.process_time() - start
    predictive = standardised.double().rescale(rows.standardiser.y_scale, rows.standardiser.y_mean)
    y = torch.as_tensor(rows.test_y)
    return {
        "LL": float(predictive.log_prob(y).mean()),
        "RMSE": float((predictive.mean - y).square().mean().sqrt()),
        "CRPS": float(predictive.crps(y).mean()),
        "CPU ms for 1,000 rows": 1e6 * seconds / len(y),
    }


def study(name: str, steps: int, repetitions: int) -> pd.DataFrame:
    """Data set x number of draws: mean and standard deviation of each score over repetitions."""
    rows = prepare(dataset(name), "paper", 0)
    posterior = fitted(rows, steps)
    lines = [
        {"data set": name, "draws": number, **scores(posterior, rows, number, seed)} for number in NUMBERS for seed in range(repetitions)
    ]
    grouped = pd.DataFrame(lines).groupby(["data set", "draws"])
    table = grouped.mean()
    for score in ("LL", "RMSE", "CRPS"):
        table.insert(table.columns.get_loc(score) + 1, f"± {score}", grouped[score].std())
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="boston,concrete,yacht,bimodal")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--lite", action="store_true", help="half a minute: yacht, 300 steps, 5 repetitions")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names, steps, repetitions = (options.datasets, options.steps, options.repetitions) if not options.lite else ("yacht", 300, 5)
    tables = [study(name, steps, repetitions) for name in names.split(",")]
    print(pd.concat(tables).reset_index().to_markdown(index=False, floatfmt=".4g"))


if __name__ == "__main__":
    main()
