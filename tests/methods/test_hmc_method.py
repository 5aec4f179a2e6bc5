"""HMC over network weights: gradients, models with closed-form posteriors, diagnostics, the paper's settings."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from fsibench import checks, registry
from fsibench.blocks import diagnostics
from fsibench.blocks.hmc import Sampler
from fsibench.contract import Budget, Data
from fsibench.methods.hmc import HMC, BayesianNetwork, Chains


def wave(num_rows: int, num_inputs: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, num_inputs, generator=generator, dtype=dtype)
    return Data(x, torch.sin(x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator, dtype=dtype))


def fitted(method: HMC, data: Data, iterations: int) -> Chains:
    chains = checks.fit(method, data, iterations)
    assert isinstance(chains, Chains)
    return chains


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu"])
@pytest.mark.parametrize("prior", ["hierarchical", "gaussian"])
def test_the_gradient_written_out_equals_finite_differences(prior: str, activation: str) -> None:
    options = HMC(prior=prior, activation=activation, hidden_units=5)
    generator = torch.Generator().manual_seed(0)
    network = options.network(wave(20, 3, dtype=torch.float64), Budget(steps=1), generator)
    xi = 0.5 * torch.randn(2, network.num_parameters, generator=generator, dtype=torch.float64)
    _, gradient = network.potential(xi)
    for coordinate in range(0, network.num_parameters, 3):
        step = torch.zeros_like(xi)
        step[:, coordinate] = 1e-6
        difference = (network.potential(xi + step)[0] - network.potential(xi - step)[0]) / 2e-6
        assert gradient[:, coordinate].numpy() == pytest.approx(difference.numpy(), rel=1e-4, abs=1e-4)


def test_the_potential_is_the_negative_log_joint_density() -> None:
    options = HMC(prior="gaussian", hidden_units=4)
    data = wave(15, 2, dtype=torch.float64)
    network = options.network(data, Budget(steps=1), torch.Generator())
    xi = torch.randn(3, network.num_parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    f, noise = network.functions(data.x, xi), network.noise(xi)
    likelihood = torch.distributions.Normal(f, noise.sqrt()[:, None]).log_prob(data.y).sum(1)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(xi).sum(1)
    constant = (likelihood + prior + network.potential(xi)[0]).tolist()
    assert constant == pytest.approx([constant[0]] * 3, abs=1e-9)


@pytest.mark.slow
def test_bayesian_linear_regression_is_sampled_to_its_closed_form() -> None:
    # A network without hidden layers; the noise is pinned by a prior of tiny spread.
    data = wave(30, 2, dtype=torch.float64)
    options = HMC(prior="gaussian", hidden_layers=0, noise_centre=math.log(0.09), noise_spread=1e-3)
    network = options.network(data, Budget(steps=1), torch.Generator())
    start = torch.randn(8, network.num_parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sampler = Sampler(network.potential, start, torch.Generator().manual_seed(2))
    for _ in range(200):
        sampler.advance()
    sampler.stop_adapting()
    draws = torch.stack([sampler.advance().state.position for _ in range(1500)]).flatten(0, 1)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    f = network.functions(x, draws)

    def design(inputs: Tensor) -> Tensor:  # weights have prior variance 1/2, the bias 1
        return torch.cat([inputs / math.sqrt(2.0), torch.ones(len(inputs), 1, dtype=torch.float64)], 1)

    precision = design(data.x).mT @ design(data.x) / 0.09 + torch.eye(3, dtype=torch.float64)
    covariance = torch.linalg.inv(precision)
    mean = design(x) @ covariance @ design(data.x).mT @ data.y / 0.09
    variance = (design(x) @ covariance @ design(x).mT).diagonal()
    assert f.mean(0).numpy() == pytest.approx(mean.numpy(), abs=0.01)
    assert f.var(0).numpy() == pytest.approx(variance.numpy(), rel=0.1)


def test_a_linear_model_converges_and_its_diagnostics_say_so() -> None:
    options = HMC(prior="gaussian", hidden_layers=0, warm_up=0.3, max_leapfrog=32, start_steps=50)
    chains = fitted(options, wave(40), 600)
    trace = chains.trace()
    assert trace["diagnostics_failed"] == 0.0
    assert trace["rhat"] < 1.02
    assert min(trace["ess_bulk"], trace["ess_tail"]) > 400
    assert trace["ebfmi"] > 0.3


def test_few_iterations_fail_the_diagnostics() -> None:
    chains = fitted(HMC(hidden_units=10, start_steps=0, max_leapfrog=4), wave(40), 40)
    assert chains.trace()["diagnostics_failed"] == 1.0
    assert chains.trace()["rhat"] > 1.05


def test_chains_start_apart() -> None:
    # Starting all chains at one point gives an R-hat that is clean but blind.
    first = fitted(HMC(hidden_units=10, start_steps=20), wave(40), 1)
    f = first.network.functions(wave(40).x, first.sampler.state.position)
    assert f.std(0).mean().item() > 0.1


def test_the_papers_settings_report_how_little_they_move() -> None:
    options = registry.entry("hmc[preset=seed]").method
    assert isinstance(options, HMC)
    assert (options.num_leapfrog, options.step_size, options.num_chains) == (25, 5e-5, 1)
    assert (options.num_iterations, options.prior) == (10_000, "sip")
    chains = fitted(dataclasses.replace(options, sip_steps=5), wave(30), 20)
    trace = chains.trace()
    assert trace["expected_diffusion"] == pytest.approx(25 * 5e-5 * math.sqrt(20))
    assert trace["diagnostics_failed"] == 1.0


def test_the_prior_of_sip_arrives_as_means_and_standard_deviations() -> None:
    options = HMC(prior="sip", sip_steps=3, hidden_units=6)
    network = options.network(wave(30), Budget(steps=5), torch.Generator().manual_seed(0))
    assert network.activation == "leaky_relu"
    assert bool((network.bias_scales == 0).all())  # biases are point-valued there
    assert network.scales.std().item() > 0
    xi = torch.zeros(1, network.num_parameters)
    weights = network.unpack(xi)[1]
    assert torch.cat([weight.flatten() for weight in weights]).numpy() == pytest.approx(network.means.numpy())


def test_raw_coordinates_have_unit_mass_for_the_weights_themselves() -> None:
    network = HMC(prior="gaussian", hidden_units=3).network(wave(10), Budget(steps=1), torch.Generator())
    mass = network.raw_inverse_mass()
    assert mass[: len(network.scales)].numpy() == pytest.approx((network.scales**-2).numpy())


def test_memory_stays_bounded_and_predictions_use_all_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsibench.methods.hmc.KEPT_DRAWS", 10)
    method = HMC(hidden_units=3, hidden_layers=1, num_chains=2, warm_up=0.0, start_steps=0, num_leapfrog=1)
    chains = fitted(method, wave(20), 100)
    assert isinstance(chains.network, BayesianNetwork)
    assert len(chains.kept) <= 10
    assert chains.num_kept == 100
    assert diagnostics.rhat(torch.stack(chains.histories)).shape[0] == 102
