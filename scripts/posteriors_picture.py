"""The picture of one-dimensional posteriors in the README: six methods on two problems, ten seconds of training each.

    python scripts/posteriors_picture.py docs/_static/posteriors.png
"""

from __future__ import annotations

import argparse

import matplotlib
import numpy as np

matplotlib.use("agg")

from matplotlib import pyplot

import fsibench
from fsibench import registry

METHODS = ("gp", "ensemble", "bbb", "vip", "fbnn", "sip[alpha=1,stop=budget]")
PROBLEMS = ("bimodal", "snelson")
MOST_ROWS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    size = (2.1 * len(METHODS), 2.0 * len(PROBLEMS))
    figure, axes = pyplot.subplots(len(PROBLEMS), len(METHODS), figsize=size, sharey="row", squeeze=False, layout="constrained")
    for row, problem in zip(axes, PROBLEMS, strict=True):
        split = registry.dataset(problem).split("paper", 0)
        x, y = np.asarray(split.train_x)[:MOST_ROWS], np.asarray(split.train_y)[:MOST_ROWS]
        margin = 0.2 * np.ptp(y)
        for panel, method in zip(row, METHODS, strict=True):
            fsibench.fit(method, x, y, seconds=arguments.seconds, seed=0).plot(num_draws=6, ax=panel)
            panel.get_legend().remove()
            panel.set(xticks=[], yticks=[], ylim=(y.min() - margin, y.max() + margin))
            panel.set_title(method if problem == PROBLEMS[0] else "", fontsize=9)
        row[0].set_ylabel(problem)
    figure.savefig(arguments.out, dpi=90)


if __name__ == "__main__":
    main()
