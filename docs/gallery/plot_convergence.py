"""
Convergence, calibration and ranks
==================================

A small run from Python, and three pictures from its rows. ``fsibench report`` makes the full site from the same store.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fsibench

SECONDS = float(os.environ.get("FSIBENCH_GALLERY_SECONDS", "2"))
ENTRIES = ["linear", "gp", "bbb", "sip", "ensemble"]
DATASETS = ["yacht", "boston", "energy"]

store = Path(tempfile.mkdtemp()) / "gallery.sqlite"
final = fsibench.run(  # one row per finished cell
    "quick",
    methods=ENTRIES,
    datasets=DATASETS,
    splits=2,
    budget=f"{SECONDS:g}s",
    store=store,
)
rows = fsibench.load(store, curves=True)  # one row per look at a posterior

# %%
# Scores against training time
# ----------------------------
figure, axes = plt.subplots(1, len(DATASETS), figsize=(11, 3.2))
for position, dataset in zip(axes, DATASETS, strict=True):
    for entry in ENTRIES:
        chosen = rows[(rows["dataset"] == dataset) & (rows["entry"] == entry) & (rows["split"] == 0)]
        position.plot(chosen["train_seconds"], chosen["crps"], marker="o", markersize=3, label=entry)
    position.set(xscale="log", title=dataset, xlabel="training seconds")
axes[0].set_ylabel("CRPS")
axes[-1].legend(fontsize=8)
figure.tight_layout()

# %%
# Calibration
# -----------
# Observed against nominal coverage of central intervals, from the counts of the probability integral transform.
pit = fsibench.load(store, table="pit")
figure, axes = plt.subplots(figsize=(4.2, 4.0))
for entry in ENTRIES:
    looks = final.loc[final["entry"] == entry, ["cell", "step"]]
    counts = pit.merge(looks, on=["cell", "step"]).groupby("bin")["count"].sum().to_numpy()
    inner = [counts[10 - k : 10 + k].sum() / counts.sum() for k in range(11)]
    axes.plot(np.linspace(0, 1, 11), inner, marker="o", markersize=3, label=entry)
axes.plot([0, 1], [0, 1], color="0.7", linestyle="--")
axes.set(xlabel="nominal coverage", ylabel="observed coverage")
axes.legend(fontsize=8)
figure.tight_layout()

# %%
# Ranks
# -----
# Mean rank over data sets and splits, at the end of the budget.
table = final.pivot_table(index=["dataset", "split"], columns="entry", values="crps")
ranks = table.rank(axis=1).mean().sort_values()
figure, axes = plt.subplots(figsize=(5, 2.4))
axes.barh(ranks.index[::-1], ranks.to_numpy()[::-1])
axes.set_xlabel("mean rank in CRPS (lower is better)")
figure.tight_layout()
