"""
Posteriors in one dimension
===========================

Every method on three problems with one input: two modes, noise that changes with the input, and Snelson's data. The band
holds 90 % of the predictive distribution, the line is its median, and the thin lines are draws of the function.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np

import fsibench
from fsibench import registry

SECONDS = float(os.environ.get("FSIBENCH_GALLERY_SECONDS", "2"))
METHODS = [name for name in sorted(registry.methods().items) if name != "constant"]


def panel(axes, name, x, y):
    """One method on one problem."""
    grid = np.linspace(x.min(), x.max(), 150)[:, None]
    model = fsibench.fit(name, x, y, seconds=SECONDS, seed=0, progress=False)
    low, median, high = model.quantile(grid, [0.05, 0.5, 0.95]).T
    axes.scatter(x[::5], y[::5], s=2, color="0.6")
    axes.fill_between(grid[:, 0], low, high, color="C0", alpha=0.25, linewidth=0)
    axes.plot(grid[:, 0], model.draw(grid, 8).T, color="C0", linewidth=0.4, alpha=0.6)
    axes.plot(grid[:, 0], median, color="C0")
    axes.set_title(name, fontsize=9)
    axes.set(xticks=[], yticks=[])


def figure(dataset):
    """All methods on one problem; every panel has the same range."""
    split = registry.dataset(dataset).split("paper", 0)
    x, y = np.asarray(split.train_x)[:400], np.asarray(split.train_y)[:400]
    columns = 5
    rows = -(-len(METHODS) // columns)
    drawing, axes = plt.subplots(rows, columns, figsize=(11, 2.1 * rows), sharex=True, sharey=True)
    for position, name in zip(axes.flat, METHODS, strict=False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            panel(position, name, x, y)
    for position in axes.flat[len(METHODS) :]:
        position.axis("off")
    margin = 0.2 * (y.max() - y.min())
    axes.flat[0].set_ylim(y.min() - margin, y.max() + margin)
    drawing.suptitle(f"{dataset}, {SECONDS:g} s of training each")
    drawing.tight_layout()


# %%
# Two modes
# ---------
figure("bimodal")

# %%
# Noise that changes with the input
# ---------------------------------
figure("heteroscedastic")

# %%
# Snelson's data
# --------------
figure("snelson")
