"""HMC over network weights: gradients, models with closed-form posteriors, diagnostics, the paper's settings."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from fsibench import registry
from fsibench.blocks import diagnostics
from fsibench.blocks.burn_in import restart_stuck
from fsibench.blocks.gaussian import linear_posterior
from fsibench.blocks.hmc import Sampler
from fsibench.blocks.networks import Nonlinearity
from fsibench.blocks.priors import make_prior
from fsibench.blocks.single_layer import SingleLayerNetwork
from fsibench.blocks.weight_posterior import BayesianNetwork, IntegratedNetwork
from fsibench.checks import problems
from fsibench.contract import Budget, Data, Meter
from fsibench.errors import UsageError
from fsibench.methods.hmc import HMC, Chains


def wave(num_rows: int, num_inputs: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, num_inputs, generator=generator, dtype=dtype)
    return Data(x, torch.sin(x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator, dtype=dtype))


def fitted(method: HMC, data: Data, iterations: int) -> Chains:
    chains = problems.fit(method, data, iterations)
    assert isinstance(chains, Chains)
    return chains


@pytest.mark.parametrize("nonlinearity", ["tanh", "leaky_relu"])
@pytest.mark.parametrize("hierarchical", [True, False])
@pytest.mark.parametrize("output_layer", ["integrated", "sampled"])
@pytest.mark.parametrize("hidden_layers", [0, 1, 2])
def test_the_gradient_written_out_equals_finite_differences(
    hierarchical: bool, nonlinearity: Nonlinearity, output_layer: str, hidden_layers: int
) -> None:
    options = HMC(
        hierarchical=hierarchical, nonlinearity=nonlinearity, output_layer=output_layer, hidden_units=5,
        hidden_layers=hidden_layers,
    )
    generator = torch.Generator().manual_seed(0)
    network = options.network(wave(20, 3, dtype=torch.float64), Budget(steps=1), generator)
    network.power = 0.7
    xi = 0.5 * torch.randn(2, network.num_sampled, generator=generator, dtype=torch.float64)
    _, gradient = network.potential(xi)
    for coordinate in [*range(0, network.num_sampled, 3), network.num_sampled - 1]:
        step = torch.zeros_like(xi)
        step[:, coordinate] = 1e-6
        difference = (network.potential(xi + step)[0] - network.potential(xi - step)[0]) / 2e-6
        assert gradient[:, coordinate].numpy() == pytest.approx(difference.numpy(), rel=1e-4, abs=1e-4)


def test_the_potential_is_the_negative_log_joint_density() -> None:
    options = HMC(hierarchical=False, hidden_units=4, output_layer="sampled")
    data = wave(15, 2, dtype=torch.float64)
    network = options.network(data, Budget(steps=1), torch.Generator())
    xi = torch.randn(3, network.num_parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    f, noise = network.functions(data.x, xi), network.noise(xi)
    likelihood = torch.distributions.Normal(f, noise.sqrt()[:, None]).log_prob(data.y).sum(1)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(xi).sum(1)
    constant = (likelihood + prior + network.potential(xi)[0]).tolist()
    assert constant == pytest.approx([constant[0]] * 3, abs=1e-9)
    network.temper(0.5)  # the likelihood to a power, the prior as it is
    tempered = (network.power * likelihood + prior + network.potential(xi)[0]).tolist()
    assert network.power < 1.0
    assert tempered == pytest.approx([tempered[0]] * 3, abs=1e-9)


def integrated_and_data(power: float) -> tuple[IntegratedNetwork, Data, Tensor]:
    """A network with nonzero prior means, as SIP learns them, and states of what is sampled."""
    stream, data = torch.Generator().manual_seed(3), wave(15, 2, dtype=torch.float64)
    network = HMC(hidden_units=4, hidden_layers=2, hierarchical=True).network(data, Budget(steps=1), stream)
    assert isinstance(network, IntegratedNetwork)
    network.means = 0.3 * torch.randn(network.means.shape, generator=stream, dtype=torch.float64)
    network.power = power
    return network, data, torch.randn(3, network.num_sampled, generator=stream, dtype=torch.float64)


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_without_its_output_layer_the_potential_is_that_of_a_dense_gaussian(power: float) -> None:
    network, data, sampled = integrated_and_data(power)
    xi = network.centred(sampled)
    factors, weights, biases = network.unpack(xi)
    activations = network.hidden(data.x, weights, biases)[-1]
    F, t = network.linear_model(activations, factors, weights, biases)  # in float64 like the data
    v = network.noise_variances(xi)[1] / power
    covariance = F @ F.mT + v[:, None, None] * torch.eye(15, dtype=torch.float64)
    dense = torch.distributions.MultivariateNormal(torch.zeros(15, dtype=torch.float64), covariance)
    # N(y | f, σ²)^β = N(y | f, σ²/β) up to (σ²)^((1 − β) N/2) and a constant
    likelihood = dense.log_prob(t.squeeze(-1)) + 0.5 * 15 * (1.0 - power) * network.noise_variances(xi)[1].log()
    constant = (network.potential(sampled)[0] + likelihood - 0.5 * sampled.square().sum(1)).tolist()
    assert constant == pytest.approx([constant[0]] * 3, abs=1e-8)


def test_a_completed_state_has_the_conditional_distribution_of_its_output_layer() -> None:
    network, data, sampled = integrated_and_data(1.0)
    stream, many = torch.Generator().manual_seed(1), sampled[:1].expand(20_000, -1)
    completed = network.completed(many, stream)
    assert torch.equal(network.sampled_part(completed), many)
    # by Bayesian linear regression on the activations, with y less the function at the prior's mean as target
    factors, weights, biases = network.unpack(network.centred(sampled[:1]))
    F, t = network.linear_model(network.hidden(data.x, weights, biases)[-1], factors, weights, biases)
    mean, C = linear_posterior(t[0, :, 0], F[0], network.noise(sampled[:1])[0])
    f = network.functions(data.x, completed) - (data.y - t[0, :, 0])
    assert f.mean(0).numpy() == pytest.approx((F[0] @ mean).numpy(), abs=0.01)
    variance = (F[0] @ torch.cholesky_inverse(C) @ F[0].mT).diagonal()
    assert f.var(0).numpy() == pytest.approx(variance.numpy(), rel=0.1)


@pytest.mark.slow
def test_with_and_without_the_output_layer_the_same_functions_are_sampled() -> None:
    data, x = wave(15, 1, dtype=torch.float64), torch.linspace(-2.0, 2.0, 7, dtype=torch.float64)[:, None]
    moments = []
    for output_layer in ("integrated", "sampled"):
        options = HMC(hidden_units=4, hidden_layers=1, output_layer=output_layer, noise_centre=-2.0, noise_spread=0.5)
        network, stream = options.network(data, Budget(steps=1), torch.Generator()), torch.Generator().manual_seed(2)
        start = torch.randn(16, network.num_sampled, generator=stream, dtype=torch.float64)
        sampler = Sampler(network.potential, start, stream, max_leapfrog=100)
        for _ in range(300):
            sampler.advance()
        sampler.stop_adapting()
        states = [network.completed(sampler.advance().state.position, stream) for _ in range(600)]
        f = torch.stack([network.functions(x, xi) for xi in states])  # [T, C, 7]
        assert diagnostics.rhat(f).max().item() < 1.1
        error = f.flatten(0, 1).std(0) / diagnostics.bulk_ess(f).sqrt()
        moments.append((f.mean((0, 1)), error))
    (first, first_error), (second, second_error) = moments
    assert ((first - second).abs() / (first_error.square() + second_error.square()).sqrt()).max().item() < 4.0


@pytest.mark.parametrize("longest_burn_in", [0.0, 0.4])
def test_draws_that_count_are_of_the_posterior_itself(longest_burn_in: float) -> None:
    options = HMC(hidden_units=3, num_chains=2, start_steps=2, longest_burn_in=longest_burn_in)
    chains = fitted(options, wave(20), 10)
    assert chains.draws.num_kept > 0
    assert chains.network.power == 1.0


@pytest.mark.slow
def test_bayesian_linear_regression_is_sampled_to_its_closed_form() -> None:
    # A network without hidden layers; the noise is pinned by a prior of tiny spread.
    data = wave(30, 2, dtype=torch.float64)
    options = HMC(
        hierarchical=False, hidden_layers=0, noise_centre=math.log(0.09), noise_spread=1e-3, output_layer="sampled", output_scale=1.0
    )
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
    options = HMC(
        hierarchical=False, hidden_layers=0, max_leapfrog=32, start_steps=50, output_layer="sampled", num_chains=8
    )
    chains = fitted(options, wave(40), 600)
    trace = chains.trace()
    assert trace["diagnostics_failed"] == 0.0
    assert trace["rhat"] < 1.02
    assert min(trace["ess_bulk"], trace["ess_tail"]) > 400
    assert trace["ebfmi"] > 0.3
    assert trace["burn_in_settled"] == 1.0
    assert 85 <= trace["burn_in"] < 300  # annealing, and at least forty iterations that the test looked at
    # the same draws, but three of eight chains stood still: too many
    held = torch.ones(8, dtype=torch.float64)
    held[:3] = 0.0
    chains.draws.acceptances.stacked().mul_(held)
    assert chains.trace()["diagnostics_failed"] == 1.0


def test_few_iterations_fail_the_diagnostics() -> None:
    chains = fitted(HMC(hidden_units=10, start_steps=0, max_leapfrog=4), wave(40), 40)
    assert chains.trace()["diagnostics_failed"] == 1.0
    assert chains.trace()["rhat"] > 1.05


def test_chains_start_apart() -> None:
    # Starting all chains at one point gives an R-hat that is clean but blind.
    first = fitted(HMC(hidden_units=10, start_steps=20), wave(40), 1)
    f = first.network.functions(wave(40).x, first.recent[-1])
    assert f.std(0).mean().item() > 0.1


def test_the_papers_settings_report_how_little_they_move() -> None:
    options = registry.entry("hmc[preset=sip_paper]").method
    assert isinstance(options, HMC)
    assert (options.num_leapfrog, options.step_size, options.num_chains) == (25, 5e-5, 1)
    assert (options.num_iterations, options.fit_prior) == (10_000, True)
    chains = fitted(dataclasses.replace(options, prior_steps=5), wave(30), 20)
    trace = chains.trace()
    assert trace["expected_diffusion"] == pytest.approx(25 * 5e-5 * math.sqrt(20))
    assert trace["diagnostics_failed"] == 1.0


def test_a_fitted_prior_arrives_as_means_and_standard_deviations() -> None:
    options = HMC(hierarchical=False, fit_prior=True, prior_steps=3, hidden_units=6, nonlinearity="leaky_relu")
    network = options.network(wave(30), Budget(steps=5), torch.Generator().manual_seed(0))
    assert network.nonlinearity == "leaky_relu"
    assert bool((network.bias_scales == 0).all())  # biases are constants there
    assert network.scales.std().item() > 0
    xi = torch.zeros(1, network.num_parameters)
    weights = network.unpack(xi)[1]
    assert torch.cat([weight.flatten() for weight in weights]).numpy() == pytest.approx(network.means.numpy())


def test_a_prior_cannot_be_fitted_and_sampled_at_once() -> None:
    with pytest.raises(UsageError, match="hierarchical=false"):
        HMC(fit_prior=True, hierarchical=True)


def test_raw_coordinates_have_unit_mass_for_the_weights_themselves() -> None:
    network = HMC(hierarchical=False, hidden_units=3).network(wave(10), Budget(steps=1), torch.Generator())
    mass = network.raw_inverse_mass()
    assert mass[: len(network.scales)].numpy() == pytest.approx((network.scales**-2).numpy())


def test_memory_stays_bounded_and_predictions_use_all_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsibench.methods.hmc.KEPT_DRAWS", 10)
    method = HMC(hidden_units=3, hidden_layers=1, num_chains=2, longest_burn_in=0.0, start_steps=0, num_leapfrog=1)
    chains = fitted(method, wave(20), 100)
    assert isinstance(chains.network, BayesianNetwork)
    assert len(chains.kept) <= 10
    assert chains.draws.num_kept == 100
    assert diagnostics.rhat(chains.draws.histories.stacked()).shape[0] == 102


# One hidden layer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hierarchical", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_fast_gradient_of_one_layer_is_that_of_the_general_network(hierarchical: bool, dtype: torch.dtype) -> None:
    data = wave(30, 3, dtype=dtype)
    fast = HMC(hierarchical=hierarchical, hidden_units=7, output_scale=1.0).network(data, Budget(steps=1), torch.Generator())
    prior = make_prior(
        "bnn", data.x, torch.Generator(), hidden=(7,), mean_scale=0.0, log_scale=None, bias_scale=0.0, bias_log_scale=0.0,
        nonlinearity="tanh",
    )  # fmt: skip
    general = IntegratedNetwork(prior, data.x, data.y, fast.spreads)
    assert isinstance(fast, SingleLayerNetwork)
    fast.power = general.power = 0.6
    xi = torch.randn(4, fast.num_sampled, generator=torch.Generator().manual_seed(1), dtype=dtype)
    (energy, gradient), (expected_energy, expected) = fast.potential(xi), general.potential(xi)
    precision = 1e-10 if dtype == torch.float64 else 2e-4
    assert energy.numpy() == pytest.approx(expected_energy.numpy(), rel=precision)
    assert gradient.numpy() == pytest.approx(expected.numpy(), abs=precision * expected.abs().max().item())
    assert torch.equal(fast.gradient(xi), gradient)


def test_a_fast_layer_refuses_what_it_cannot_do() -> None:
    data = wave(10)
    prior = make_prior("bnn", data.x, torch.Generator().manual_seed(0), hidden=(3,), nonlinearity="tanh")
    with pytest.raises(ValueError, match="mean zero"):
        SingleLayerNetwork(prior, data.x, data.y, HMC().network(data, Budget(steps=1), torch.Generator()).spreads)


# Chains that have not arrived, chains that do not move --------------------------------------------------------------


def test_a_stuck_chain_is_left_out_and_named() -> None:
    options = HMC(hidden_units=3, num_chains=4, longest_burn_in=0.0, num_leapfrog=2, step_size=0.01)
    chains = fitted(options, wave(20), 30)
    assert chains.trace()["chains_excluded"] == 0.0
    held = torch.ones(4, dtype=torch.float64)
    held[2] = 0.0
    chains.draws.acceptances.stacked().mul_(held)
    for kept in chains.kept:
        kept[2] = 1e3  # would be seen in every prediction
    trace = chains.trace()
    assert trace["chains_excluded"] == 1.0
    assert trace["lowest_acceptance"] == 0.0
    assert trace["draws"] == 30 * 3
    assert chains.pooled().abs().max().item() < 1e2


def test_a_set_of_chains_of_which_none_moves_says_so() -> None:
    options = HMC(hidden_units=3, num_chains=2, longest_burn_in=0.0, num_leapfrog=2, step_size=50.0)
    trace = fitted(options, wave(20), 10).trace()
    assert trace["chains_excluded"] == 2.0
    assert trace["diagnostics_failed"] == 1.0


def test_a_burn_in_that_no_test_has_ended_fails_the_diagnostics() -> None:
    options = HMC(hidden_layers=0, max_leapfrog=4, output_layer="sampled", num_chains=2, longest_burn_in=0.02, annealing=2)
    trace = fitted(options, wave(40), 100).trace()
    assert trace["burn_in_settled"] == 0.0
    assert trace["diagnostics_failed"] == 1.0


def test_every_pull_can_be_asked_for_a_prediction() -> None:
    options = HMC(hidden_units=3, num_chains=2, num_leapfrog=2, step_size=0.05, annealing=3, longest_burn_in=0.5)
    data = wave(20)
    for chains in Meter(steps=12).pulls(options, data, torch.Generator().manual_seed(0)):
        predictive = chains.predict(data.x, torch.Generator())
        assert bool(torch.isfinite(predictive.loc).all())


def test_a_chain_that_is_stuck_in_the_burn_in_begins_again_elsewhere() -> None:
    chains = fitted(HMC(hidden_units=3, num_chains=3), wave(20), 2)
    state = chains.sampler.state
    chains.draws.burn_in.acceptances = [torch.tensor([0.9, 0.0, 0.8])] * 10
    chains.draws.burn_in.levels = [torch.zeros(3)] * 10
    restart_stuck(chains.draws.burn_in, chains.sampler, chains.generator)
    moved = chains.sampler.state
    assert chains.draws.burn_in.restarts == 1
    assert torch.equal(moved.position[[0, 2]], state.position[[0, 2]])
    assert any(torch.equal(moved.position[1], state.position[other]) for other in (0, 2))
