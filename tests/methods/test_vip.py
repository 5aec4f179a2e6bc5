"""VIP: energy against quadrature, the linear model against its exact posterior, the regularisers, what is chosen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.gaussian import standard_kl
from fsibench.blocks.linear_process import MomentPosterior, RootModel
from fsibench.checks import problems
from fsibench.contract import Budget, Data, Meter
from fsibench.errors import UsageError
from fsibench.methods.vip import VIP, Choice, VariationalProcess, released_energy


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


def fitted(data: Data, steps: int, **options: object) -> MomentPosterior:
    posterior = problems.fit(VIP(**options), data, steps)
    assert isinstance(posterior, MomentPosterior)
    return posterior


def untrained(data: Data, **options: object) -> VariationalProcess:
    return VariationalProcess(VIP(**options), data, torch.Generator().manual_seed(0))


def expected_power(y: float, mean: float, variance: float, noise: float, alpha: float) -> float:
    """1/α log E_{N(f; mean, variance)}[N(y | f, noise)^α] by Gauss-Hermite quadrature with 200 nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    f = mean + math.sqrt(variance) * nodes
    log_power = alpha * (-0.5 * (y - f) ** 2 / noise - 0.5 * math.log(2 * math.pi * noise))
    return float(np.log(np.sum(weights / weights.sum() * np.exp(log_power))) / alpha)


@pytest.mark.parametrize("alpha", [1e-4, 0.3, 0.5, 1.0])
def test_the_energy_of_a_gaussian_equals_quadrature(alpha: float) -> None:
    y, mean, variance, noise = 0.7, 0.2, 0.3, 0.25
    as_tensor = [torch.tensor(value, dtype=torch.float64) for value in (y, mean, variance, noise)]
    energy = alpha_energy(as_tensor[0], as_tensor[1][None], as_tensor[2], as_tensor[3], alpha).item()
    assert energy == pytest.approx(expected_power(y, mean, variance, noise, alpha), abs=1e-8)
    # the closed form as the specification of the method writes it
    inner = noise / alpha + variance
    closed = -0.5 * math.log(2 * math.pi * inner) - 0.5 * (y - mean) ** 2 / inner
    closed += 0.5 * (1 - alpha) * math.log(2 * math.pi * noise) - 0.5 * math.log(alpha)
    assert energy == pytest.approx(closed / alpha, abs=1e-8)


def test_the_energy_ends_in_the_evidence_bound_and_in_the_log_predictive_density() -> None:
    y, mean, variance, noise = torch.tensor([0.7, 0.2, 0.3, 0.25], dtype=torch.float64)
    bound = torch.distributions.Normal(mean, noise.sqrt()).log_prob(y) - 0.5 * variance / noise
    predictive = torch.distributions.Normal(mean, (variance + noise).sqrt()).log_prob(y)
    assert alpha_energy(y, mean[None], variance, noise, 0.0).item() == pytest.approx(bound.item(), abs=1e-12)
    assert alpha_energy(y, mean[None], variance, noise, 1.0).item() == pytest.approx(predictive.item(), abs=1e-12)


def test_the_released_energy_prefers_far_too_little_noise() -> None:
    # For a squared residual of 0.25 and a sure function, the maximum is at 0.038 instead of 0.25.
    noise = torch.logspace(-3, 0.5, 4000, dtype=torch.float64)
    y, zero = torch.tensor(0.5, dtype=torch.float64), torch.zeros_like(noise)
    released = noise[released_energy(y, zero, zero + 1e-9, noise, 0.5).argmax()].item()
    correct = noise[alpha_energy(y, zero[None], 1e-9, noise, 0.5).argmax()].item()
    assert released == pytest.approx(0.038, abs=0.004)
    assert correct == pytest.approx(0.25, abs=0.01)


def test_the_kl_of_q_vanishes_at_the_prior() -> None:
    assert standard_kl(torch.zeros(4), torch.eye(4)).item() == 0.0
    assert untrained(wave(20)).kl().item() == pytest.approx(0.0, abs=1e-6)


def test_q_approaches_the_exact_linear_posterior_when_only_q_is_trained() -> None:
    # α = 0: the evidence bound is maximal at the exact posterior.
    data = wave(30)
    model = untrained(data, alpha=0.0, num_draws=6, prediction="q", regulariser="none")
    optimiser = torch.optim.Adam([model.q_mean, model.q_factor], lr=0.05)
    for step in range(1500):
        optimiser.param_groups[0]["lr"] = 0.05 * (1.0 - step / 1500)
        optimiser.zero_grad()
        (-model.objective(data)).backward()
        optimiser.step()
    x, choice = torch.linspace(-2.0, 2.0, 9)[:, None], Choice(model.noise.item(), 0.0, 1)
    ours = model.posterior(data, choice).predict(x, torch.Generator())
    exact = untrained(data, num_draws=6)
    exact.prior, exact.basis = model.prior, model.basis
    theirs = exact.posterior(data, choice).predict(x, torch.Generator())
    assert ours.mean.numpy() == pytest.approx(theirs.mean.numpy(), abs=0.02)
    assert ours.scale.numpy() == pytest.approx(theirs.scale.numpy(), rel=0.03)


def test_the_scores_on_held_out_rows_are_those_of_the_predictions() -> None:
    data, held_out = wave(40), wave(15, seed=1)
    model = untrained(data)
    for log_density, choice in model.scored(held_out, 7)[::20]:
        predictive = model.posterior(data, choice).predict(held_out.x, torch.Generator())
        assert predictive.log_prob(held_out.y).mean().item() == pytest.approx(log_density, rel=1e-3, abs=1e-3)
        assert choice.steps == 7


def marginal(model: VariationalProcess, data: Data) -> torch.distributions.MultivariateNormal:
    """q_GP(y | X, θ) as a dense Gaussian."""
    mean, features = (part.detach().double() for part in model.features(data.x))
    covariance = features @ features.mT + model.noise.detach().double() * torch.eye(len(data), dtype=torch.float64)
    return torch.distributions.MultivariateNormal(mean, covariance)


def test_the_regulariser_is_a_lower_bound_of_the_evidence() -> None:
    data = wave(25)
    model = untrained(data)
    mean, features = (part.detach() for part in model.features(data.x))
    value = model.regulariser(data.y, mean, features).item()
    assert value < marginal(model, data).log_prob(data.y.double()).item()
    # E_{a ~ N(0, I)} log N(y | m + Φa, σ²) by sampling
    a = torch.randn(20_000, 20, generator=torch.Generator().manual_seed(1))
    sampled = torch.distributions.Normal(mean + a @ features.mT, model.noise.sqrt().detach()).log_prob(data.y).sum(1)
    assert value == pytest.approx(sampled.mean().item(), rel=0.03)


def test_the_evidence_is_added_and_only_by_name_subtracted() -> None:
    data = wave(25)
    expected = {"evidence": 1.0, "subtracted_evidence": -1.0}
    for regulariser, sign in expected.items():
        model = untrained(data, regulariser=regulariser)
        value = model.regulariser(data.y, *model.features(data.x)).item()
        assert value == pytest.approx(sign * marginal(model, data).log_prob(data.y.double()).item(), rel=1e-4)
    assert VIP().departure() == ""
    assert "no maximum" in VIP(regulariser="subtracted_evidence").departure()


def test_subtracting_the_evidence_leaves_the_bound_blind_to_the_prior() -> None:
    """At α = 0 and the exact posterior of a, bound − evidence is 0 whatever θ is: no signal is left."""
    data = wave(25)
    for scale in (0.0, 1.0):
        model = untrained(data, alpha=0.0, num_draws=6, regulariser="subtracted_evidence")
        with torch.no_grad():
            model.prior.parameters[1] += scale
            exact = model.posterior(data, Choice(model.noise.item(), 0.0, 1)).models[0]
            assert isinstance(exact, RootModel)
            model.q_mean.copy_(exact.mean)
            L = torch.linalg.cholesky(exact.root @ exact.root.mT)
            model.q_factor.copy_(L.tril(-1) + L.diagonal().log().diag())
        assert model.objective(data).item() == pytest.approx(0.0, abs=2e-2)


def test_training_ends_after_its_steps_and_a_budget_may_end_it_earlier() -> None:
    data = wave(40)

    def steps(num_steps: int, budget: int) -> int:
        meter = Meter(steps=budget)
        method = VIP(num_steps=num_steps, early_stop=False)
        return len(list(meter.pulls(method, data, torch.Generator().manual_seed(0))))

    assert steps(num_steps=12, budget=100) == 12
    assert steps(num_steps=100, budget=12) == 12


def test_predictions_touch_no_training_row_and_follow_renewals_inside_pulls() -> None:
    data = wave(40)
    mine = Data(data.x.clone(), data.y.clone())
    seen = []
    for posterior in Meter(steps=6).pulls(VIP(early_stop=False), mine, torch.Generator().manual_seed(0)):
        before = posterior.predict(data.x, torch.Generator())
        kept = mine.y.clone()
        mine.y.zero_()  # predictions that looked at rows would notice
        assert problems.same(posterior.predict(data.x, torch.Generator()), before)
        mine.y.copy_(kept)
        seen.append(before.mean[0].item())
    # renewed at steps 1, 2, 3, 5 and at the last
    assert len(set(seen)) == 5
    assert seen[2] == seen[3]


def test_noise_and_psi_are_chosen_where_they_are_not_given() -> None:
    data = wave(80)
    chosen = VIP(num_steps=200).choose(data, Budget(steps=200), torch.Generator().manual_seed(0))
    assert 0.003 < chosen.noise < 0.1  # the truth is 0.01
    given = VIP(num_steps=20, noise=0.3, psi=2.0).choose(data, Budget(steps=20), torch.Generator().manual_seed(0))
    assert (given.noise, given.psi) == (0.3, 2.0)


def test_it_learns_a_wave() -> None:
    data, test = wave(100), wave(100, seed=1)
    predictive = fitted(data, 600).predict(test.x, torch.Generator())
    assert predictive.log_prob(test.y).mean().item() > 0.3  # the truth has 0.88
    assert (predictive.mean - test.y).square().mean().sqrt().item() < 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"regulariser": "released"},
        {"objective": "released"},
        {"prediction": "q"},
        {"prior": "bnn_tied"},
        {"prior": "ns_concat", "alpha": 0.0},
        {"prior": "gp"},
        {"initialisation": "released", "psi": 0.5},
    ],
    ids=str,
)
def test_every_option_trains_and_predicts(options: dict[str, object]) -> None:
    data = wave(30)
    model = fitted(data, 5, num_draws=8, hidden_units=6, **options)
    assert bool(torch.isfinite(model.predict(data.x, torch.Generator()).log_prob(data.y)).all())
    assert model.draw_prior(data.x, 3, torch.Generator().manual_seed(0)).shape == (3, 30)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown prior 'bn'"):
        VIP(prior="bn")
    with pytest.raises(ValueError, match="num_draws must be at least 2, got 1"):
        VIP(num_draws=1)
