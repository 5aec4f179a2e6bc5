"""The bimodal problem of the SIP paper: y = 10 cos(x − ½) or 10 sin(x − ½), plus N(0, 1).

The true conditional scores −2.056 nats per point; any homoscedastic Gaussian is capped at −3.096.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde
from torch import Tensor

from fsibench.contract import Data, Meter, Method, Posterior
from fsibench.data import Floats, Standardiser
from fsibench.datasets.synthetic import Bimodal
from fsibench.methods.aadm import AADM
from fsibench.methods.bbb import BBB
from fsibench.methods.sip import SIP
from fsibench.predictive import Predictive

SPLIT = Bimodal("bimodal").split("paper", 0)
STANDARDISER = Standardiser.of(SPLIT.train_x, SPLIT.train_y)
ORACLE = -2.056
STEPS = {"bnn": 1000, "ns": 3000}
NOISE = -2.0  # near that of the data: so few steps are too few to come from the default


def standardised(x: Floats) -> Tensor:
    return torch.from_numpy(STANDARDISER.x(x))


def fitted(method: Method, steps: int) -> Posterior:
    train = Data(standardised(SPLIT.train_x), torch.from_numpy(STANDARDISER.y(SPLIT.train_y)))
    *_, posterior = Meter(steps=steps).pulls(method, train, torch.Generator().manual_seed(0))
    return posterior


def predictive(posterior: Posterior, x: Floats) -> Predictive:
    raw = posterior.predict(standardised(x), torch.Generator().manual_seed(1)).double()
    return raw.rescale(STANDARDISER.y_scale, STANDARDISER.y_mean)


def log_likelihoods(posterior: Posterior) -> Tensor:
    return predictive(posterior, SPLIT.test_x).log_prob(torch.from_numpy(SPLIT.test_y))


def modes(draws: Floats) -> list[float]:
    """Local maxima of a kernel density that reach a third of the highest one."""
    grid = np.linspace(-15.0, 15.0, 301)
    density = gaussian_kde(draws)(grid)
    peak = (density[1:-1] > density[:-2]) & (density[1:-1] > density[2:]) & (density[1:-1] > density.max() / 3.0)
    return [float(x) for x in grid[1:-1][peak]]


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["bnn", "ns"])
def test_sip_finds_both_branches(prior: str) -> None:
    posterior = fitted(SIP(prior=prior, alpha=1.0, initial_log_noise=NOISE, stop="budget"), steps=STEPS[prior])
    scores = log_likelihoods(posterior)
    assert float(scores.mean()) > -2.75
    assert float(scores.mean()) < ORACLE + 3.0 * float(scores.std()) / math.sqrt(len(scores))
    draws = predictive(posterior, np.array([[-1.0], [2.0]])).sample(5000, torch.Generator().manual_seed(2))
    for x, at_x in zip((-1.0, 2.0), draws.T.numpy(), strict=True):
        branches = sorted([10.0 * math.cos(x - 0.5), 10.0 * math.sin(x - 0.5)])
        assert modes(at_x) == pytest.approx(branches, abs=2.0)  # two standard deviations of the noise


@pytest.mark.slow
@pytest.mark.parametrize("method", [BBB(), AADM(alpha=1.0)], ids=lambda method: method.name)
def test_no_method_beats_the_oracle(method: Method) -> None:
    scores = log_likelihoods(fitted(method, steps=600))
    assert -4.0 < float(scores.mean()) < ORACLE + 3.0 * float(scores.std()) / math.sqrt(len(scores))
