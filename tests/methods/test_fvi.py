"""FVI: the generator's marginal, its fit to the prior, and the bound on the divergence between processes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsibench import registry
from fsibench.blocks.gaussian import factor, gaussian_kl, standard_kl
from fsibench.blocks.priors import Prior
from fsibench.checks import problems
from fsibench.contract import Budget, Data, Meter
from fsibench.methods.fvi import FVI, Generator, Grids, PosteriorGenerator, fitted_generator, moment_errors


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


def stage_one(options: FVI, data: Data, steps: int) -> tuple[Generator, Prior, Grids]:
    generator = torch.Generator().manual_seed(0)
    prior = options.make_prior(data, Budget(steps=steps), generator)
    assert isinstance(prior, Prior)
    grids = Grids(data, options.grid_size)
    return fitted_generator(options, prior, grids, Budget(steps=steps), generator), prior, grids


def test_the_marginal_of_the_generator_is_the_dense_gaussian_density() -> None:
    stream = torch.Generator().manual_seed(0)
    shared = Generator(2, 5, 8, stream, torch.zeros(1))
    x, f = torch.randn(7, 2, generator=stream), torch.randn(3, 7, generator=stream)
    features, mean, residual = (part.detach().double() for part in shared.components(x))
    dense = torch.distributions.MultivariateNormal(mean, features @ features.mT + residual.diag())
    assert shared.log_marginal(f, x).detach().numpy() == pytest.approx(dense.log_prob(f.double()).numpy(), abs=1e-8)


def test_far_from_the_grids_spread_grows_no_faster_than_distance() -> None:
    stream = torch.Generator().manual_seed(0)
    shared = Generator(2, 5, 8, stream, torch.zeros(1))
    with torch.no_grad():
        shared.network.flat.mul_(3.0)
        near, far = (shared.components(distance * torch.randn(50, 2, generator=torch.Generator().manual_seed(1))) for distance in (100.0, 1000.0))
    for before, after in ((near[0].norm(dim=1), far[0].norm(dim=1)), (near[2].sqrt(), far[2].sqrt())):
        assert bool((after <= 11.0 * before + 1.0).all())


@pytest.mark.slow
def test_the_first_stage_matches_the_moments_of_the_prior_on_held_out_grids() -> None:
    shared, prior, grids = stage_one(FVI(fit_prior=False, num_basis=20, grid_size=50), wave(50), 1500)
    errors = [moment_errors(shared, prior, grids, torch.Generator().manual_seed(seed)) for seed in range(5)]
    for name in ("prior_mean_error", "prior_variance_error", "prior_covariance_error"):
        mean_error = sum(float(error[name]) for error in errors) / len(errors)
        assert mean_error < 0.05, name


def test_the_kl_of_the_latent_variables_bounds_the_kl_on_every_grid() -> None:
    data = wave(30)
    shared, prior, grids = stage_one(FVI(num_basis=6, fit_prior=False), data, 50)
    model = PosteriorGenerator(FVI(num_basis=6), shared, prior, {}, 30)
    stream = torch.Generator().manual_seed(4)
    with torch.no_grad():
        model.q_mean.copy_(torch.randn(6, generator=stream))
        model.q_factor.copy_(0.3 * torch.randn(6, 6, generator=stream))
    bound = standard_kl(model.q_mean, model.factor()).item()

    def grid_kl(x: Tensor) -> float:
        features, mean, residual = (part.detach().double() for part in shared.components(x))
        root = features @ model.factor().detach().double()
        L_q = factor(root @ root.mT + residual.diag())
        L_p = factor(features @ features.mT + residual.diag())
        return gaussian_kl(mean + features @ model.q_mean.detach().double(), L_q, mean, L_p).item()

    values = [grid_kl(grids.draw(stream)[:size]) for size in (1, 3, 10, 50, 100)]
    assert all(0.0 < value <= bound + 1e-6 for value in values)
    assert values[-1] > values[0]


def test_before_any_training_the_posterior_is_the_prior() -> None:
    data = wave(30)
    shared, prior, _ = stage_one(FVI(num_basis=6, fit_prior=False), data, 5)
    model = PosteriorGenerator(FVI(num_basis=6), shared, prior, {}, 30)
    assert model.trace()["kl"] == pytest.approx(0.0, abs=1e-6)


def test_only_the_latent_variables_and_the_noise_are_trained_in_the_second_stage() -> None:
    data = wave(30)
    options = FVI(num_basis=5, fit_prior=False)
    shared, prior, _ = stage_one(options, data, 5)
    model = PosteriorGenerator(options, shared, prior, {}, 30)
    before = shared.network.flat.detach().clone()
    (-model.objective(model.seen(data))).backward()
    assert shared.network.flat.grad is None
    assert torch.equal(before, shared.network.flat.detach())
    assert all(parameter.grad is not None for parameter in model.parameters)


def test_the_second_stage_starts_at_the_optimum_of_the_bound_for_its_noise() -> None:
    data = wave(40)
    options = FVI(num_basis=5, fit_prior=False, alpha=0.0)
    shared, prior, _ = stage_one(options, data, 50)
    model = PosteriorGenerator(options, shared, prior, {}, len(data))

    def slopes() -> list[float]:
        gradients = torch.autograd.grad(model.objective(model.seen(data)), [model.q_mean, model.q_factor])
        return [float(gradients[0].norm()), float(gradients[1].tril().norm())]

    at_prior, value_at_prior = slopes(), model.objective(model.seen(data)).item()
    model.start(data)
    assert all(after < 1e-3 * before for after, before in zip(slopes(), at_prior, strict=True))
    assert model.objective(model.seen(data)).item() > value_at_prior


def test_a_start_from_some_rows_counts_them_for_all() -> None:
    data = wave(40)
    options = FVI(num_basis=5, fit_prior=False)
    shared, prior, _ = stage_one(options, data, 50)
    whole, part = (PosteriorGenerator(options, shared, prior, {}, 80) for _ in range(2))
    whole.start(Data(data.x.repeat(2, 1), data.y.repeat(2)))
    part.start(data)
    torch.testing.assert_close(part.factor(), whole.factor())
    torch.testing.assert_close(part.mean(), whole.mean())


@pytest.mark.parametrize(("prior", "fit_prior"), [("gp", True), ("bnn", False), ("bnn", True)])
def test_it_learns_a_wave(prior: str, fit_prior: bool) -> None:
    train, test = wave(100), wave(100, seed=1)
    model = problems.fit(FVI(prior=prior, fit_prior=fit_prior, evidence_steps=50, num_basis=30), train, 400)
    assert isinstance(model, PosteriorGenerator)
    reached = model.predict(test.x, torch.Generator()).log_prob(test.y).mean().item()
    constant = torch.distributions.Normal(train.y.mean(), train.y.std()).log_prob(test.y).mean().item()
    assert reached > constant + 0.5
    assert {"prior_mean_error", "prior_variance_error", "prior_covariance_error"} <= set(model.trace())


def test_the_method_says_that_it_is_a_reconstruction() -> None:
    assert registry.entry("fvi").method.note == "reconstruction"


def test_one_row_far_away_neither_stretches_the_grids_nor_breaks_the_fit() -> None:
    data = wave(200)
    x = data.x.clone()
    x[0] = 60.0
    grids = Grids(Data(x, data.y), 50)
    assert float(grids.box.high) < 10.0
    *_, model = Meter(steps=60).pulls(FVI(), Data(x, data.y), torch.Generator().manual_seed(0))
    assert bool(model.predict(x, torch.Generator()).log_prob(data.y).isfinite().all())
