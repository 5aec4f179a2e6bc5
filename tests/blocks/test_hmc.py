"""The sampler on targets with known answers: reversibility, order of the integrator, exact invariance, adaptation."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fsibench.blocks.diagnostics import bulk_ess, ebfmi, rhat
from fsibench.blocks.hmc import (
    DualAveraging,
    Potential,
    Sampler,
    State,
    kinetic_energy,
    leapfrog,
    transition,
    van_der_corput,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def standard_normal(q: Tensor) -> tuple[Tensor, Tensor]:
    return 0.5 * q.double().square().sum(-1), q


def by_autograd(log_density: Callable[[Tensor], Tensor]) -> Potential:
    def potential(q: Tensor) -> tuple[Tensor, Tensor]:
        q = q.detach().requires_grad_()
        with torch.enable_grad():
            U = -log_density(q)
            (gradient,) = torch.autograd.grad(U.sum(), q)
        return U.detach().double(), gradient

    return potential


def quartic(q: Tensor) -> Tensor:
    """Not Gaussian, correlated: −¼ Σ q⁴ − ½ (Σ q)²."""
    return -0.25 * q.pow(4).sum(-1) - 0.5 * q.sum(-1).square()


def funnel(q: Tensor) -> Tensor:
    """Neal's funnel: v ~ N(0, 3²), the others N(0, e^v)."""
    v, rest = q[:, 0], q[:, 1:]
    return -v.square() / 18.0 - 0.5 * rest.square().sum(-1) * torch.exp(-v) - 0.5 * rest.shape[1] * v


def test_a_trajectory_run_backwards_returns_to_its_start() -> None:
    q, p = normal(3, 5), normal(3, 5, seed=1)
    mass, potential = torch.linspace(0.5, 2.0, 5, dtype=torch.float64), by_autograd(quartic)
    end, momentum = leapfrog(State.at(q, potential), p, 0.05, 40, mass, potential)
    back, reversed_momentum = leapfrog(end, -momentum, 0.05, 40, mass, potential)
    assert (end.position - q).abs().max().item() > 0.1
    assert back.position.numpy() == pytest.approx(q.numpy(), abs=1e-6)
    assert reversed_momentum.numpy() == pytest.approx(-p.numpy(), abs=1e-6)


def test_the_energy_error_falls_with_the_square_of_the_step() -> None:
    q, p = normal(200, 5), normal(200, 5, seed=1)
    mass, potential = torch.ones(5, dtype=torch.float64), by_autograd(quartic)

    def energy_error(step_size: float) -> float:
        start = State.at(q, potential)
        end, momentum = leapfrog(start, p, step_size, round(0.64 / step_size), mass, potential)
        change = end.potential + kinetic_energy(momentum, mass) - start.potential - kinetic_energy(p, mass)
        return float(change.square().mean().sqrt())

    errors = [energy_error(step) for step in (0.02, 0.01, 0.005)]
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(4.0, rel=0.05)


def test_a_chain_that_starts_in_the_target_stays_in_it_even_with_coarse_steps() -> None:
    # An exact Metropolis test corrects any step size: 20,000 chains from N(0, 1), one rough iteration.
    q = normal(20_000, 1)
    moved = transition(
        State.at(q, standard_normal), 1.2, 2, torch.ones(1, dtype=torch.float64), standard_normal,
        torch.Generator().manual_seed(1),
    )  # fmt: skip
    assert 0.3 < moved.acceptance.mean().item() < 0.99
    assert (moved.state.position != q).double().mean().item() > 0.3
    assert moved.state.position.mean().item() == pytest.approx(0.0, abs=0.03)
    assert moved.state.position.square().mean().item() == pytest.approx(1.0, abs=0.04)


def test_energies_that_explode_or_are_not_finite_are_rejected() -> None:
    def cliff(q: Tensor) -> tuple[Tensor, Tensor]:
        U = torch.where(q[:, 0] > 5.0, torch.full_like(q[:, 0], math.nan), 0.5 * q.square().sum(-1))
        return U.double(), q

    start = torch.tensor([[4.9, 0.0], [0.0, 0.0]], dtype=torch.float64)
    state = State.at(start, cliff)
    sampler = transition(state, 3.0, 1, torch.ones(2, dtype=torch.float64), cliff, torch.Generator().manual_seed(3))
    assert bool(torch.isfinite(sampler.state.position).all())
    assert bool(torch.isfinite(sampler.acceptance).all())


@pytest.mark.slow
def test_a_standard_normal_in_a_hundred_dimensions_is_sampled_correctly() -> None:
    sampler = Sampler(standard_normal, 3.0 * normal(8, 100), torch.Generator().manual_seed(2))
    for _ in range(300):
        sampler.advance()
    sampler.stop_adapting()
    draws = torch.stack([sampler.advance().state.position for _ in range(1000)])  # [T, C, P]
    assert rhat(draws).max().item() < 1.01
    pooled = draws.flatten(0, 1)
    ess = bulk_ess(draws)
    assert (pooled.mean(0).abs() * ess.sqrt()).max().item() < 4.5  # in standard errors; the largest of 100
    assert pooled.var(0).mean().item() == pytest.approx(1.0, abs=0.02)


def test_neals_funnel_is_flagged_by_the_diagnostics() -> None:
    sampler = Sampler(by_autograd(funnel), normal(8, 10), torch.Generator().manual_seed(4), max_leapfrog=100)
    for _ in range(200):
        sampler.advance()
    sampler.stop_adapting()
    moves = [sampler.advance() for _ in range(300)]
    draws = torch.stack([move.state.position for move in moves])
    energy = torch.stack([move.energy for move in moves])
    suspicious = rhat(draws).max().item() > 1.05 or bulk_ess(draws).min().item() < 100
    assert suspicious or ebfmi(energy).min().item() < 0.3


def test_mass_and_scale_of_the_coordinates_are_the_same_thing() -> None:
    # Identity mass for θ = s ξ is the inverse mass 1/s² for ξ: trajectories coincide.
    scale = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    xi, p = normal(2, 3), normal(2, 3, seed=1)

    def in_xi(q: Tensor) -> tuple[Tensor, Tensor]:
        return 0.25 * (q * scale).pow(4).sum(-1), (q * scale).pow(3) * scale

    def in_theta(q: Tensor) -> tuple[Tensor, Tensor]:
        return 0.25 * q.pow(4).sum(-1), q.pow(3)

    one = torch.ones(3, dtype=torch.float64)
    end_xi, _ = leapfrog(State.at(xi, in_xi), p * scale, 0.01, 20, scale**-2, in_xi)
    end_theta, _ = leapfrog(State.at(xi * scale, in_theta), p, 0.01, 20, one, in_theta)
    assert (end_xi.position * scale).numpy() == pytest.approx(end_theta.position.numpy(), rel=1e-10)


def test_dual_averaging_finds_the_step_of_the_wanted_acceptance() -> None:
    averaging = DualAveraging(1e-3, target=0.8)
    for _ in range(500):
        averaging.update(math.exp(-averaging.step_size))  # acceptance 0.8 at −log 0.8
    assert averaging.averaged == pytest.approx(-math.log(0.8), rel=0.05)


def test_trajectories_adapt_to_the_longest_scale_of_the_target() -> None:
    def wide(q: Tensor) -> tuple[Tensor, Tensor]:
        scale = torch.tensor([1.0, 30.0], dtype=torch.float64)
        return 0.5 * (q / scale).square().sum(-1), q / scale**2

    sampler = Sampler(wide, normal(8, 2), torch.Generator().manual_seed(5), first_length=1.0)
    for _ in range(300):
        sampler.advance()
    assert sampler.trajectory > 20.0  # a quarter period of the wide direction lasts 47


def test_the_van_der_corput_sequence_fills_the_unit_interval_evenly() -> None:
    assert [van_der_corput(index) for index in range(1, 8)] == [0.5, 0.25, 0.75, 0.125, 0.625, 0.375, 0.875]


def test_fixed_settings_are_left_alone() -> None:
    sampler = Sampler(standard_normal, normal(1, 3), torch.Generator(), step_size=5e-5, num_leapfrog=25)
    for _ in range(10):
        sampler.advance()
    assert sampler.step_size == pytest.approx(5e-5)
    assert sampler.trajectory == pytest.approx(25 * 5e-5)
