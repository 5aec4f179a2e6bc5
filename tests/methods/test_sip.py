"""SIP: where its gradients go, what it becomes for a Gaussian process, its draws, its options."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from fsibench.blocks import validated
from fsibench.blocks.conditionals import initial_inducing
from fsibench.blocks.networks import DropoutMasks
from fsibench.blocks.priors import Prior
from fsibench.blocks.stopping import Plan
from fsibench.contract import Budget, Data, Meter
from fsibench.errors import Diverged
from fsibench.methods import sip
from fsibench.methods.sip import (
    SIP,
    ProcessTraining,
    SparseImplicitProcess,
    initial_prior,
    make_contrast,
    make_sampler,
)

F64 = torch.float64
SMALL = SIP(num_inducing=6, num_prior_draws=20, num_draws=15, num_test_draws=30)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def data(num_rows: int = 40) -> Data:
    x = torch.randn(num_rows, 2, generator=stream(5), dtype=F64)
    return Data(x, torch.sin(x[:, 0]) + 0.1 * torch.randn(num_rows, generator=stream(6), dtype=F64))


def model(options: SIP) -> SparseImplicitProcess:
    prior, sampler = initial_prior(options, torch.zeros(1, 2, dtype=F64), stream()), make_sampler(options, stream(1), F64)
    return SparseImplicitProcess(options, prior, sampler, initial_inducing(data().x, options.num_inducing, stream(2)))


def gradient_size(tensor: Tensor) -> float:
    return 0.0 if tensor.grad is None else float(tensor.grad.abs().sum())


@pytest.mark.parametrize("adaptive_contrast", [False, True])
@pytest.mark.parametrize("prior", ["bnn", "ns", "gp"])
def test_symmetric_kl_trains_the_prior_and_forward_kl_does_not(prior: str, adaptive_contrast: bool) -> None:
    for kl in ("symmetric", "forward"):
        options = dataclasses.replace(SMALL, prior=prior, kl=kl, adaptive_contrast=adaptive_contrast)
        process, contrast = model(options), make_contrast(options, stream(3), F64)
        u, conditional = process.draw_conditional(data().x, stream(4))
        contrast.divergence(u, conditional.f_z).backward()
        sizes = [gradient_size(tensor) for tensor in (*process.prior.parameters, process.inducing)]
        assert all((size > 0.0) == (kl == "symmetric") for size in sizes), (kl, sizes)
        assert gradient_size(process.sampler.parameters[0]) > 0.0


def test_with_the_true_log_ratio_the_symmetric_kl_is_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """q = N(1, ¼ I) and p = N(0, I) in six dimensions, whose log ratio is known."""
    contrast = make_contrast(SMALL, stream(3), F64)
    q, p = torch.distributions.Normal(1.0, 0.5), torch.distributions.Normal(0.0, 1.0)
    monkeypatch.setattr(contrast.discriminator, "log_ratio", lambda u: (q.log_prob(u) - p.log_prob(u)).sum(1))
    u = 0.5 * torch.randn(50_000, 6, generator=stream(4), dtype=F64) + 1.0
    f = torch.randn(50_000, 6, generator=stream(5), dtype=F64)
    kl = torch.distributions.kl_divergence
    expected = 6.0 * 0.5 * float(kl(q, p) + kl(p, q))
    assert float(contrast.divergence(u, f)) == pytest.approx(expected, rel=0.02)


def test_adaptive_contrast_of_gaussians_is_their_symmetrised_divergence() -> None:
    """With discriminators at zero, their optimum for Gaussians, two Gaussian divergences remain."""
    contrast = make_contrast(dataclasses.replace(SMALL, adaptive_contrast=True), stream(3), F64)
    with torch.no_grad():
        contrast.of_q.network.flat.zero_()
        contrast.of_p.network.flat.zero_()
    u = 0.5 * torch.randn(50_000, 6, generator=stream(4), dtype=F64) + 1.0
    f = torch.randn(50_000, 6, generator=stream(5), dtype=F64)
    # ½ [KL(q‖p) + KL(p‖q)] for N(1, ¼) and N(0, 1), six times
    forward = 0.5 * (0.25 + 1.0 - 1.0 - torch.tensor(0.25).log())
    reverse = 0.5 * ((1.0 + 1.0) / 0.25 - 1.0 + torch.tensor(0.25).log())
    assert float(contrast.divergence(u, f)) == pytest.approx(6.0 * 0.5 * float(forward + reverse), rel=0.02)


class LinearPrior(Prior):
    """f(x) = wᵀφ(x), w ~ N(0, I), φ = (1, x, x²): a Gaussian process whose `draws` have exactly its moments."""

    @property
    def parameters(self) -> list[Tensor]:
        return []

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        assert num_draws == 6
        return with_exact_moments(torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64))

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        return noise @ features(x).mT


def features(x: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(x), x, x.square()], 1)  # [N, 3]


def with_exact_moments(mean: Tensor, root: Tensor) -> Tensor:
    """2n draws with sample mean `mean` and sample covariance root rootᵀ (divisor 2n − 1)."""
    steps = root.mT * ((2 * len(mean) - 1) / 2.0) ** 0.5
    return torch.cat([mean + steps, mean - steps])


def exact_posterior() -> tuple[Tensor, Tensor, Tensor, float]:
    """Inputs z, and mean and covariance of w given noisy values there."""
    z, noise = torch.tensor([[-1.0], [0.2], [1.5], [2.0]], dtype=F64), 0.05
    y = torch.tensor([0.3, -0.8, 0.1, 1.2], dtype=F64)
    covariance = torch.linalg.inv(torch.eye(3, dtype=F64) + features(z).mT @ features(z) / noise)
    return z, covariance @ features(z).mT @ y / noise, covariance, noise


def exact_process() -> SparseImplicitProcess:
    """SIP with the GP prior, q(u) = p(u | y) and Z where y was seen."""
    z, mean, covariance, noise = exact_posterior()

    def posterior_values(num_draws: int, generator: torch.Generator) -> Tensor:
        if num_draws == 6:
            return with_exact_moments(mean, torch.linalg.cholesky(covariance)) @ features(z).mT
        normal = torch.randn(num_draws, 3, generator=generator, dtype=F64)
        weights: Tensor = mean + normal @ torch.linalg.cholesky(covariance).mT
        return weights @ features(z).mT

    options = SIP(num_test_draws=6, initial_log_noise=float(torch.tensor(noise).log()), jitter=1e-9)
    return SparseImplicitProcess(options, LinearPrior(), posterior_values, z)


def test_exact_posterior_at_the_inducing_inputs_reproduces_gp_regression() -> None:
    _, mean, covariance, noise = exact_posterior()
    x = torch.tensor([[-2.0], [0.0], [1.0], [3.0]], dtype=F64)
    predictive = exact_process().predict(x, stream())
    torch.testing.assert_close(predictive.mean, features(x) @ mean, atol=1e-4, rtol=1e-4)
    # population variance of six draws times 6/5 is their exact covariance
    total = predictive.scale.square().mean(0) + predictive.loc.var(0)
    exact = (features(x) @ covariance * features(x)).sum(1) + noise
    torch.testing.assert_close(total, exact, atol=1e-4, rtol=1e-3)


def test_draws_have_the_joint_posterior_covariance() -> None:
    _, mean, covariance, _ = exact_posterior()
    x = torch.tensor([[-2.0], [0.0], [3.0]], dtype=F64)
    draws = exact_process().draw(x, 40_000, stream())
    torch.testing.assert_close(draws.mean(0), features(x) @ mean, atol=0.05, rtol=0.02)
    torch.testing.assert_close(torch.cov(draws.mT), features(x) @ covariance @ features(x).mT, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("prior", ["bnn", "ns", "gp"])
def test_draws_are_coherent_functions_with_the_moments_of_the_prediction(prior: str) -> None:
    process = model(dataclasses.replace(SMALL, prior=prior, num_test_draws=3000))
    x = torch.cat([data(3).x, data(3).x])
    draws, predictive = process.draw(x, 3000, stream(1)), process.predict(x, stream(1))  # the same u and moments
    torch.testing.assert_close(draws[:, :3], draws[:, 3:])
    noise = float(process.log_noise.detach().exp())
    spread = (predictive.variance - noise).sqrt()
    torch.testing.assert_close(draws.mean(0), predictive.mean, atol=0.05 * float(spread.max()), rtol=0.0)
    torch.testing.assert_close(draws.std(0), spread, rtol=0.1, atol=0.01)


def test_prior_draws_are_those_of_the_learned_prior() -> None:
    process = model(SMALL)
    torch.testing.assert_close(
        process.draw_prior(data().x, 4, stream(1)), process.prior.draw(data().x, 4, stream(1)).detach()
    )


def test_sampled_conditional_agrees_with_the_analytic_one() -> None:
    """Integrating the conditional out leaves the objective and removes its noise."""
    options = dataclasses.replace(SMALL, num_draws=20_000, num_inducing=3, initialisation="released")
    process = model(options)
    with torch.no_grad():
        process.prior.log_scales.fill_(-1.5)
        _, conditional = process.draw_conditional(data().x, stream(4))
        assert float(conditional.variance.mean()) > 0.01
        analytic = process.data_term(data().y, conditional, stream(5))
        process.options = dataclasses.replace(options, conditional="sampled")
        assert float(process.data_term(data().y, conditional, stream(5))) == pytest.approx(float(analytic), abs=0.02)


@pytest.mark.parametrize("preset", sorted(SIP.presets))
@pytest.mark.parametrize("prior", ["bnn", "ns"])
def test_presets_train(preset: str, prior: str) -> None:
    values = {**SIP.presets[preset], "prior": prior, "num_inducing": 8, "num_test_draws": 20}
    fits = iter(SIP(**values).fit(data(), Budget(steps=3), stream()))
    for _ in range(3):
        posterior = next(fits)
    assert bool(torch.isfinite(posterior.predict(data().x, stream()).loc).all())


@pytest.mark.parametrize("draws", ["previous", "fresh"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_every_way_of_drawing_trains(draws: str, alpha: float) -> None:
    options = dataclasses.replace(SMALL, discriminator_draws=draws, alpha=alpha, dropout_bnn=0.1)
    fits = iter(options.fit(data(), Budget(steps=3), stream()))
    before, after = (next(fits).trace()["loss"] for _ in range(2))
    assert before != after


def test_trace_explains_the_fit() -> None:
    posterior = next(iter(SMALL.fit(data(), Budget(steps=1), stream())))
    trace = posterior.trace()
    assert set(trace) == {"loss", "kl", "discriminator_loss", "noise", "inducing_inputs"}
    assert isinstance(trace["inducing_inputs"], Tensor)
    assert trace["inducing_inputs"].shape == (6, 2)


def test_inducing_inputs_start_at_training_inputs_and_move() -> None:
    x = data().x
    start = initial_inducing(x, 6, stream())
    assert all(bool((row == x).all(1).any()) for row in start)
    fits = iter(SMALL.fit(data(), Budget(steps=2), stream()))
    first, second = (next(fits).trace()["inducing_inputs"] for _ in range(2))
    assert not torch.equal(first, second)


def test_more_inducing_points_than_rows_start_near_them() -> None:
    x = data(3).x
    start = initial_inducing(x, 10, stream())
    assert start.shape == (10, 2)
    distances = torch.cdist(start, x).amin(1)
    assert float(distances.max()) < 0.1
    assert len(start.unique(dim=0)) == 10


def test_inducing_inputs_that_start_on_one_spot_spread_out() -> None:
    options = dataclasses.replace(SMALL, inducing_start="one_spot", learning_rate=0.02)
    fits = options.fit(data(), Budget(steps=60), stream())
    spreads = [float(posterior.inducing.detach().std(0).max()) for posterior in itertools.islice(fits, 60)]
    first, last = spreads[0], spreads[-1]
    assert first < 0.05
    assert last > 2 * first


def test_a_q_that_is_not_fitted_keeps_its_parameters_and_is_a_variant() -> None:
    options = dataclasses.replace(SMALL, fit_q=False)
    fits = options.fit(data(), Budget(steps=5), stream())
    before = [parameter.detach().clone() for parameter in next(fits).sampler.parameters]
    posterior = [*itertools.islice(fits, 4)][-1]
    assert all(torch.equal(old, new) for old, new in zip(before, posterior.sampler.parameters, strict=True))
    assert not torch.equal(posterior.log_noise, torch.tensor(options.initial_log_noise))
    assert options.departure() == "q(u) is not fitted"
    assert SMALL.departure() == ""


def plans_of(options: SIP, train: Data, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Plan]]:
    """How many rows each stage of a fit saw, and its plan."""
    found: list[tuple[int, Plan]] = []
    taken = ProcessTraining.steps

    def watched(self: ProcessTraining, rows: Data, shares: Any, plan: Plan, generator: torch.Generator) -> Iterator[Any]:
        found.append((len(rows), plan))
        yield from taken(self, rows, shares, plan, generator)

    monkeypatch.setattr(ProcessTraining, "steps", watched)
    for _ in Meter(steps=steps).pulls(options, train, stream()):
        pass
    monkeypatch.setattr(ProcessTraining, "steps", taken)
    return found


def best_at(place: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out rows are predicted best at that look, whatever they are; None: at the last one."""
    monkeypatch.setattr(validated.HeldOutLooks, "choice", lambda self: place)
    monkeypatch.setattr(validated.HeldOutLooks, "best", property(lambda self: min(place or 0, len(self.looks) - 1)))
    if place is None:
        monkeypatch.setattr(validated.HeldOutLooks, "is_past_the_best", False)


def test_rows_are_held_out_first_where_a_table_can_be_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    best_at(5, monkeypatch)
    (part, first), (whole, last) = plans_of(SMALL, data(40), 3000, monkeypatch)
    assert (part, whole) == (32, 40)
    assert (first.end, first.schedule, first.warm_up) == (validated.SEARCH_SHARE, "constant", SMALL.warm_up)
    assert last.warm_up == SMALL.warm_up, "a fresh fit"
    assert last.begin == pytest.approx(validated.LEAST_SEARCH, abs=0.01), "three times as far as the best look would be sooner"
    for options, rows in ((dataclasses.replace(SMALL, stop="budget"), 40), (SMALL, validated.MANY_ROWS), (SMALL, validated.FEWEST_ROWS - 1)):
        assert plans_of(options, data(rows), 5, monkeypatch) == [(rows, Plan(SMALL.schedule, SMALL.warm_up))]


def test_a_fit_that_still_gets_better_goes_on_with_all_rows_for_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    best_at(None, monkeypatch)
    (_, _), (rows, last) = plans_of(SMALL, data(40), 1000, monkeypatch)
    assert (rows, last.warm_up) == (40, 0.0)
    assert last.begin == pytest.approx(validated.SEARCH_SHARE)
    assert last.num_steps == pytest.approx(validated.LAST_SHARE * validated.SEARCH_SHARE * 1000, abs=2)


def test_a_best_look_that_is_too_late_for_a_fresh_fit_is_gone_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    best_at(14, monkeypatch)
    (_, _), (rows, last) = plans_of(SMALL, data(40), 1000, monkeypatch)
    assert (rows, last.warm_up) == (40, 0.0)
    looked = 0.25 / SMALL.learning_rate * 1.2**14
    assert last.num_steps == pytest.approx(validated.LAST_SHARE * looked, rel=0.1)


def test_a_plan_ends_with_its_steps_or_its_part_of_the_budget() -> None:
    meter = Meter(steps=100)
    assert list(Plan("cosine", num_steps=4).shares(lambda: meter.budget.fraction)) == [0.0, 0.25, 0.5, 0.75]
    meter.steps_done = 60
    assert next(Plan("cosine", begin=0.2, num_steps=1000).shares(lambda: meter.budget.fraction)) == pytest.approx(0.5)
    meter.steps_done = 100
    assert next(Plan("constant", end=0.8).shares(lambda: meter.budget.fraction)) == 1.0


def test_noise_of_predictions_has_a_floor_and_that_of_the_objective_none() -> None:
    model = ProcessTraining(SMALL, data(40).x, stream()).model
    before = model.predict(data(5).x, stream()).scale.square()
    model.noise_floor = 1.0
    after = model.predict(data(5).x, stream()).scale.square()
    torch.testing.assert_close(after - before, torch.full_like(after, 1.0 - sip.noise_variance(model.log_noise).item()))
    model.noise_floor = 1e-9
    torch.testing.assert_close(model.predict(data(5).x, stream()).scale.square(), before)


def test_a_copy_for_later_is_a_training_of_its_own() -> None:
    training = ProcessTraining(SMALL, data(40).x, stream())
    copied = training.widened(0.25)
    assert copied.model.noise_floor == pytest.approx(0.25 + sip.noise_variance(training.model.log_noise).item())
    assert training.model.noise_floor == 0.0
    before = [parameter.detach().clone() for parameter in training.parameters]
    next(copied.steps(data(40), iter([0.5]), Plan("constant"), stream()))
    assert all(torch.equal(old, new) for old, new in zip(before, training.parameters, strict=True))
    assert not torch.equal(copied.model.inducing, training.model.inducing)
    assert copied.parameters[-1] is copied.model.log_noise


def test_a_schedule_of_its_own_is_not_run_twice() -> None:
    options = dataclasses.replace(SMALL, epochs=5, batch_size=20)
    assert len(list(options.fit(data(60), Budget(steps=10**9), stream()))) == 5 * 3


def diverging_at(step_of_end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = ProcessTraining.steps

    def breaks(self: ProcessTraining, rows: Data, *arguments: Any) -> Iterator[SparseImplicitProcess]:
        for step, found in enumerate(taken(self, rows, *arguments)):
            if len(rows) < 40 and step == step_of_end:
                raise Diverged("the loss is not finite")
            yield found

    monkeypatch.setattr(ProcessTraining, "steps", breaks)


def test_a_search_that_diverges_ends_and_all_rows_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    diverging_at(120, monkeypatch)
    shown = list(Meter(steps=1000).pulls(SMALL, data(40), stream()))
    assert len(shown) > 120
    assert shown[-1].noise_floor > 0.0


def test_a_search_that_diverges_before_it_has_looked_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    diverging_at(3, monkeypatch)
    with pytest.raises(Diverged, match="before the first look"):
        list(Meter(steps=1000).pulls(SMALL, data(40), stream()))


def test_a_fit_too_short_to_interpolate_gives_the_search_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validated.HeldOutLooks, "choice", lambda self: pytest.fail("nothing was searched"))
    (part, _), (rows, last) = plans_of(SMALL, data(40), 100, monkeypatch)
    assert (part, rows) == (32, 40)
    assert last == Plan(SMALL.schedule, SMALL.warm_up)


def test_the_search_shows_its_best_model_until_the_fresh_fit_is_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    best_at(2, monkeypatch)
    shown = list(Meter(steps=3000).pulls(SMALL, data(40), stream()))
    changes = [place for place, (old, new) in enumerate(itertools.pairwise(shown), 1) if old is not new]
    # the first look, the second, the third, which is the best; then the fresh fit
    assert len(changes) == 4
    best_steps = 0.25 / SMALL.learning_rate * 1.2**2
    assert len(shown) - changes[-1] == pytest.approx(best_steps, abs=4), "twice as many, of which half are shown"
    assert shown[-1].noise_floor == shown[changes[-1] - 1].noise_floor
