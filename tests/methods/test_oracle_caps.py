"""No method may know more than the truth: log-likelihoods on the synthetic problems against their true conditionals.

A score above the oracle means a leak of test rows or missing noise. Methods with one Gaussian per input are bound by
the true mean and variance, methods with constant noise by the best constant variance around the true mean.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fsibench import registry
from fsibench.checks import problems
from fsibench.contract import Data
from fsibench.data import prepare
from fsibench.predictive import Predictive

# entry -> pulls of its fit: enough to be far above a constant predictor
STEPS = {
    "vip": 300,
    "vip_collapsed": 100,
    "fbnn": 250,
    "fbnn_moments": 150,
    "fvi[prior=bnn]": 400,
    "hmc[max_leapfrog=16]": 50,
    "linear": 1,
    "svgp": 60,
}
CONSTANT_NOISE = ("fbnn", "fbnn_moments", "hmc[max_leapfrog=16]", "linear")


def per_point(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
    return Predictive(loc.double(), scale.double()).log_prob(y.double())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bimodal", "heteroscedastic"])
@pytest.mark.parametrize("entry", list(STEPS))
def test_no_method_beats_the_truth_or_the_ceiling_of_its_family(entry: str, name: str) -> None:
    dataset: Any = registry.dataset(name)
    prepared = prepare(dataset, "paper", 0)
    train = Data(torch.from_numpy(prepared.train_x), torch.from_numpy(prepared.train_y))
    y = torch.from_numpy(prepared.test_y)
    posterior = problems.fit(registry.entry(entry).method, train, STEPS[entry])
    standardiser = prepared.standardiser
    predictive = problems.predict(posterior, torch.from_numpy(prepared.test_x)).double()
    ours = predictive.rescale(standardiser.y_scale, standardiser.y_mean).log_prob(y)  # [N]

    loc, scale = (torch.from_numpy(part) for part in dataset.oracle(dataset.split("paper", 0).test_x))
    # sin x = 0 makes the true density of the heteroscedastic problem singular: a floor on its scale bounds the oracle
    # from below there, and methods that know no such points cannot profit from it.
    truth = per_point(loc, scale, y)
    mean = loc.mean(0)
    spread = (loc.var(0, correction=0) + scale.square().mean(0)).sqrt().clamp_min(0.05)
    gaussian = per_point(mean[None], spread[None], y)
    residual = (y - mean).square().mean().sqrt().expand(1, len(y))
    constant = per_point(mean[None], residual, y)

    for ceiling in (truth, constant if entry in CONSTANT_NOISE else gaussian):
        gap = ours - ceiling
        standard_error = gap.std().item() / math.sqrt(len(gap))
        assert gap.mean().item() < 3.0 * standard_error
