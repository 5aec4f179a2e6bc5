"""The infinitely wide network against networks of many units, differences of the energy, and the algebra of Gaussian processes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fsibench.blocks.draws import normal
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE
from fsibench.blocks.wide_network import Conditioned, ScalePrior, Whitened, WideNetwork, shares_of_modes

PRIOR = ScalePrior()


def rows(num_rows: int = 12, num_inputs: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = normal(generator, num_rows, num_inputs, like=torch.zeros(()))
    return x, torch.sin(2.0 * x[:, 0]) + 0.1 * normal(generator, num_rows, like=x)


def network(prior: ScalePrior = PRIOR) -> tuple[WideNetwork, Tensor]:
    built = WideNetwork(*rows(), prior)
    return built, 0.7 * normal(torch.Generator().manual_seed(1), 3, built.num_sampled, like=built.x)


def test_the_covariance_is_that_of_many_random_units() -> None:
    built, xi = network()
    scales, generator = built.scales(xi[:1]), torch.Generator().manual_seed(2)
    weights = normal(generator, built.num_inputs + 1, 400_000, like=built.x)
    inner = torch.cat([built.x, torch.ones(len(built.x), 1).double()], 1) @ (scales.a[0][:, None] * weights)
    units = torch.erf(0.5 * math.sqrt(math.pi) * inner)  # [N, H]
    sampled = 1.0 + scales.s.square() * units @ units.T / units.shape[1]
    exact = scales.covariance(built.x, built.x)[0]
    assert float((sampled - exact).abs().max()) < 0.02 * float(exact.max())


def test_units_have_the_slope_and_the_limits_of_tanh() -> None:
    a = torch.tensor([-30.0, 1e-3, 30.0], dtype=torch.float64)
    assert torch.allclose(torch.erf(0.5 * math.sqrt(math.pi) * a), torch.tanh(a), rtol=1e-5)


def test_variances_are_the_diagonal_of_the_covariance() -> None:
    built, xi = network()
    scales = built.scales(xi)
    assert torch.allclose(scales.variance(built.x), scales.covariance(built.x, built.x).diagonal(dim1=1, dim2=2))


def test_the_energy_is_minus_the_log_density_up_to_a_constant() -> None:
    built, xi = network()
    scales = built.scales(xi)
    K = scales.covariance(built.x, built.x) + torch.diag_embed(scales.noise(built.x))
    evidence = torch.distributions.MultivariateNormal(torch.zeros(len(built.x)).double(), K).log_prob(built.y)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(xi).sum(1)
    differences = built.potential(xi)[0] + evidence + prior
    assert differences.tolist() == pytest.approx([differences[0].item()] * 3, abs=1e-8)


@pytest.mark.parametrize("prior", [PRIOR, ScalePrior(slope_spread=0.0)])
def test_the_gradient_is_that_of_the_energy(prior: ScalePrior) -> None:
    built, xi = network(prior)
    _, gradient = built.potential(xi)
    for index in range(built.num_sampled):
        step = 1e-6 * torch.eye(built.num_sampled, dtype=torch.float64)[index]
        slope = (built.potential(xi + step)[0] - built.potential(xi - step)[0]) / 2e-6
        assert gradient[:, index].tolist() == pytest.approx(slope.tolist(), rel=1e-4, abs=1e-4)


def test_chains_do_not_influence_each_other() -> None:
    built, xi = network()
    values, gradients = built.potential(xi)
    for chain in range(3):
        value, gradient = built.potential(xi[chain : chain + 1])
        assert value.item() == pytest.approx(values[chain].item())
        assert torch.allclose(gradient[0], gradients[chain])


def test_moments_given_rows_are_those_of_the_joint_normal_distribution() -> None:
    built, xi = network()
    at = rows(5, seed=3)[0].double()
    process = Conditioned.of(built, xi[0])
    scales, both = process.scales, torch.cat([built.x, at])
    joint = scales.covariance(both, both)[0]
    N = len(built.x)
    inverse = torch.linalg.inv(joint[:N, :N] + torch.diag(scales.noise(built.x)[0]))
    mean, variance = process.moments(at)
    assert torch.allclose(mean, joint[N:, :N] @ inverse @ built.y)
    assert torch.allclose(process.mean(at), mean)
    left = joint[N:, N:] - joint[N:, :N] @ inverse @ joint[:N, N:]
    assert torch.allclose(variance, left.diagonal() + scales.noise(at)[0])
    draws = process.draw(at, 20_000, torch.Generator().manual_seed(4))
    assert torch.allclose(draws.mean(0), mean, atol=0.05 * float(left.diagonal().max().sqrt()) + 1e-3)
    assert torch.allclose(draws.T.cov(), left, atol=0.05 * float(left.max()))


def test_noise_grows_along_its_slopes_and_is_constant_without_them() -> None:
    built, xi = network()
    x = torch.tensor([[0.0, 0.0], [2.0, 0.0]]).double()
    scales = built.scales(xi)
    near, far = (scales.noise(x) - MINIMUM_NOISE_VARIANCE).log().unbind(1)
    assert (far - near).tolist() == pytest.approx((2.0 * scales.b[:, 0]).tolist(), abs=1e-6)
    constant, _ = network(ScalePrior(slope_spread=0.0))
    assert torch.allclose(*constant.scales(xi).noise(x).unbind(1))


def test_whitened_coordinates_have_unit_curvature_at_the_mode() -> None:
    built, _ = network()
    mode = torch.zeros(built.num_sampled, dtype=torch.float64)
    for _ in range(300):  # downhill to where the Hessian is positive
        mode = mode - 0.02 * built.potential(mode[None])[1][0]
    places = Whitened.at(built, mode)
    xi = mode + 0.1 * normal(torch.Generator().manual_seed(5), 2, len(mode), like=mode)
    assert torch.allclose(places.parameters(places.coordinates(xi)), xi)
    z = torch.zeros(1, len(mode), dtype=torch.float64)
    for index in range(len(mode)):
        step = 1e-3 * torch.eye(len(mode), dtype=torch.float64)[index]
        curvature = (places.potential(z + step)[1] - places.potential(z - step)[1])[0, index] / 2e-3
        assert 0.0 < curvature.item() <= 1.01


def test_adapted_coordinates_take_over_place_and_spread_of_draws() -> None:
    built, _ = network()
    places = Whitened(built, torch.zeros(built.num_sampled).double(), torch.eye(built.num_sampled).double())
    generator = torch.Generator().manual_seed(6)
    spread = torch.linspace(0.2, 2.0, built.num_sampled, dtype=torch.float64)
    z = 0.5 + spread * normal(generator, 2000, 2, built.num_sampled, like=spread)
    again = places.adapted(z).coordinates(z.flatten(0, 1))
    assert torch.allclose(again.mean(0), torch.zeros_like(spread), atol=1e-6)
    assert torch.allclose(again.T.cov(), torch.eye(built.num_sampled).double(), atol=0.1)


def two_modes(separation: float) -> list[Whitened]:
    """Regions of half and of twice the unit size, in the coordinates of ξ."""
    built, xi = network()
    unit = torch.eye(built.num_sampled).double()
    return [Whitened(built, xi[0], 0.5 * unit), Whitened(built, xi[0] + separation, 2.0 * unit)]


def test_a_mode_holds_what_its_density_and_its_volume_say() -> None:
    P = len(two_modes(9.0)[0].mode)
    shares = shares_of_modes(two_modes(9.0), [0.0, P * math.log(4.0) + 1.0])
    assert shares.tolist() == pytest.approx([1.0 / (1.0 + math.exp(-1.0)), 1.0 / (1.0 + math.e)])


def test_a_mode_that_was_found_twice_counts_once_and_a_failed_search_not_at_all() -> None:
    once, other = two_modes(9.0)
    shares = shares_of_modes([once, once, other, other], [0.0, 0.0, 2.0, math.inf])
    assert shares[1] == 0.0
    assert shares[3] == 0.0
    assert float(shares.sum()) == pytest.approx(1.0)
