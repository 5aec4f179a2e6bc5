"""fBNN with moments: the KL and the data term against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from fsibench.blocks.gaussian import factor, gaussian_kl
from fsibench.blocks.kernels import rbf
from fsibench.blocks.networks import sampled_hidden
from fsibench.blocks.priors import BNNPrior, GaussianProcessPrior
from fsibench.checks import problems
from fsibench.contract import Data, Meter
from fsibench.methods.fbnn_moments import FBNNMoments, MomentNetwork


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


@pytest.mark.parametrize("num_draws", [2, 20, 50])
def test_the_kl_of_the_prior_with_itself_is_zero(num_draws: int) -> None:
    data, stream = wave(30), torch.Generator().manual_seed(0)
    prior = BNNPrior(1, stream, mean_scale=0.0, log_scale=None)
    model = MomentNetwork(FBNNMoments(num_draws=num_draws), data.x, prior, stream)
    far = model.terms(data, torch.Generator().manual_seed(1))[1].item()
    with torch.no_grad():
        for ours, theirs in zip(model.q.parameters, prior.parameters, strict=True):
            ours.copy_(theirs)
    assert model.terms(data, torch.Generator().manual_seed(1))[1].item() == pytest.approx(0.0, abs=1e-6)
    assert far > 10.0


def test_the_terms_of_a_linear_model_are_closed_forms() -> None:
    # hidden layers without noise: f = h w + b with w ~ N(μ, diag σ²), against a Gaussian process
    data = wave(8)
    prior = GaussianProcessPrior(1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        prior.log_scales.copy_(torch.tensor([math.log(0.7), 0.0]))
    options = FBNNMoments(prior="gp", num_draws=3, num_random=0, injected_noise=0.3, initial_log_noise=-1.0)
    model = MomentNetwork(options, data.x, prior, torch.Generator().manual_seed(0))
    q = model.q
    with torch.no_grad():
        q.log_scales[:-50] = -30.0
        q.biases[-1] = 0.4
    h = sampled_hidden(data.x, q.means[None, :-50], q.biases, q.widths)[0].detach().double()  # [8, 50]
    mean = h @ q.means[-50:].detach().double() + 0.4
    covariance = (h * (2.0 * q.log_scales[-50:]).exp().detach().double()) @ h.mT
    identity = torch.eye(8, dtype=torch.float64)
    L_p = factor(rbf(data.x.double(), data.x.double(), 0.7) + 0.09 * identity)
    expected = gaussian_kl(mean, factor(covariance + 0.09 * identity), torch.zeros_like(mean), L_p)
    noise = math.exp(-1.0) + 1e-6
    fit = -0.5 * (math.log(2.0 * math.pi * noise) + ((data.y - mean).square() + covariance.diagonal()) / noise)
    data_term, kl = model.terms(data, torch.Generator())
    assert kl.item() == pytest.approx(expected.item(), rel=1e-4)
    assert data_term.item() == pytest.approx(fit.mean().item(), rel=1e-4)


@pytest.mark.parametrize("prior", ["bnn", "gp"])
def test_it_learns_a_wave(prior: str) -> None:
    train, test = wave(60), wave(60, seed=1)
    posterior = problems.fit(FBNNMoments(prior=prior), train, 500)
    reached = posterior.predict(test.x, torch.Generator().manual_seed(0)).log_prob(test.y).mean().item()
    constant = torch.distributions.Normal(train.y.mean(), train.y.std()).log_prob(test.y).mean().item()
    assert reached > constant + 0.4


def test_a_prior_with_random_biases_shares_no_networks_with_q() -> None:
    method = FBNNMoments(prior="reference", hidden_units=20, hidden_layers=1, num_draws=5)
    train = Data(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)), torch.linspace(-1.0, 1.0, 30))
    *_, posterior = Meter(steps=2).pulls(method, train, torch.Generator().manual_seed(1))
    assert math.isfinite(float(posterior.trace()["loss"]))


def test_it_says_that_it_is_a_variant() -> None:
    assert FBNNMoments().departure()
    assert FBNNMoments().published_column() == ""
