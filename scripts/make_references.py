"""The ruler of `fsibench tune`: scores of `constant` and of the best entry on the development suite.

    python scripts/make_mirror.py PACKAGES MIRROR
    fsibench run dev --mirror MIRROR --methods constant,linear,gp,ensemble,bbb,hmc --splits 2 --store references.sqlite
    python scripts/make_references.py references.sqlite

Best is the best final score among the entries of the store, for each data set, split and metric by itself. Lines of data sets that
the store does not have stay as they are.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from fsibench.harness.plan import load_protocol
from fsibench.harness.store import Store
from fsibench.tuning.objective import METRICS

TARGET = Path(__file__).parents[1] / "src" / "fsibench" / "tuning" / "references.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description="write references.csv from a store of the protocol dev")
    parser.add_argument("store", type=Path)
    with Store.read(parser.parse_args().store) as store:
        looks = store.evaluations(only_final=True)
    looks = looks[looks["status"] == "ok"]
    with TARGET.open(encoding="utf-8", newline="") as file:
        before = list(csv.reader(file))
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["dataset", "split", "metric", "constant", "best", "by"])
        for dataset in load_protocol("dev", {}).datasets:
            if dataset not in set(looks["dataset"]):
                writer.writerows(row for row in before if row[0] == dataset)
            for split in sorted(looks["split"].unique()):
                part = looks[(looks["dataset"] == dataset) & (looks["split"] == split)].set_index("entry")
                for metric in METRICS if "constant" in part.index else ():
                    best = part[metric].idxmax() if metric == "ll" else part[metric].idxmin()
                    ends = (part.loc["constant", metric], part.loc[best, metric])
                    writer.writerow([dataset, split, metric, *(f"{value:.6g}" for value in ends), best])


if __name__ == "__main__":
    main()
