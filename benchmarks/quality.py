"""Quality of a fit of fixed seed and step budget, by split: scores in standardised units, CPU seconds to a target.

`track_ll` is larger where better and all others smaller; `fsibench gate` and `fsibench history` know it from the metric
list. asv takes every larger value for a worse one, so that its own comparison says nothing about scores.
"""

from __future__ import annotations

from benchmarks import common

# entry: (steps, log score to reach). The targets lie where the entry is after about half of its steps.
BUDGETS = {
    "constant": (1, -1.5),
    "linear": (1, -1.0),
    "gp": (1, -0.5),
    "svgp": (100, -0.5),
    "bbb": (300, -0.6),
    "sip": (80, -0.8),
    "sip[prior=ns]": (80, -0.8),
    "aadm": (100, -0.7),
    "avb": (100, -0.7),
    "vip": (100, -0.7),
    "vip_collapsed": (40, -0.7),
    "fbnn": (60, -0.7),
    "fbnn_moments": (60, -0.7),
    "fvi": (60, -0.7),
    "hmc": (10, -0.5),
    "hmc_wide": (60, -0.5),
    "ensemble": (300, -0.7),
    "dropout": (300, -0.7),
    "laplace": (200, -0.6),
    "tfsvi": (150, -0.7),
    "gfsvi": (150, -0.7),
    "dvip": (60, -0.7),
    "tuned[of=bbb]": (400, -0.7),
}


class Quality:
    """What a fit is worth on test rows of twenty splits."""

    params = (tuple(BUDGETS), ("boston", "yacht"), tuple(range(20)))
    param_names = ("entry", "dataset", "split")
    timeout = 1800

    def setup_cache(self) -> None:
        """asv gives all values of this class one folder, where each fit is kept."""

    def setup(self, entry: str, dataset: str, split: int) -> None:
        steps, target = BUDGETS[entry]
        self.scores = common.scores(entry, dataset, split, steps, target)

    def track_ll(self, entry: str, dataset: str, split: int) -> float:
        return self.scores["ll"]

    def track_crps(self, entry: str, dataset: str, split: int) -> float:
        return self.scores["crps"]

    def track_rmse(self, entry: str, dataset: str, split: int) -> float:
        return self.scores["rmse"]

    def track_calibration(self, entry: str, dataset: str, split: int) -> float:
        return self.scores["calibration"]

    def track_seconds_to_target(self, entry: str, dataset: str, split: int) -> float:
        return self.scores["seconds"]


for _function, _unit in (("ll", "nats"), ("crps", "sd"), ("rmse", "sd"), ("calibration", ""), ("seconds_to_target", "s")):
    getattr(Quality, f"track_{_function}").unit = _unit
