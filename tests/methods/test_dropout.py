"""Monte Carlo dropout: moments of its passes, its objective, and how rate and precision are chosen."""

from __future__ import annotations

import pytest
import torch

from fsibench.blocks.batched import starting_parameters
from fsibench.checks import fit, linear_data
from fsibench.contract import Data
from fsibench.methods.dropout import Dropout, DropoutNetworks, best_precision

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def networks(rates: tuple[float, ...], hidden_units: int = 6) -> DropoutNetworks:
    data = linear_data(40)
    options = Dropout(rates=rates, hidden_units=hidden_units)
    return DropoutNetworks(options, rates, Data(data.x.double(), data.y.double()), stream())


def test_passes_of_a_linear_network_have_the_moments_of_bernoulli_masks() -> None:
    """f = Σ_d w_d x_d z_d/(1 − p) + b has mean wᵀx + b and variance p/(1 − p) Σ w_d² x_d²."""
    model = networks((0.3,))
    model.widths = (3, 1)
    flat = starting_parameters(1, model.widths, "tanh", 0.5, stream(1), F64)
    x = torch.tensor([[1.0, -2.0, 0.5]], dtype=F64)
    f = model.passes(x, flat.expand(200_000, -1), model.keep.expand(200_000), 1, stream(2))[:, 0]
    w, b = flat[0, :3], flat[0, 3]
    spread = 0.3 / 0.7 * float((w * x[0]).square().sum())
    assert float(f.mean()) == pytest.approx(float(x[0] @ w + b), abs=5 * (spread / 200_000) ** 0.5)
    assert float(f.var()) == pytest.approx(spread, rel=0.02)


def test_rows_of_a_training_batch_have_masks_of_their_own() -> None:
    model = networks((0.4,))
    f = model.passes(torch.ones(50, 3, dtype=F64), model.flat, model.keep, 50, stream())
    assert len(f.unique()) > 10


def test_objective_is_half_the_mean_square_plus_the_decay_of_the_prior() -> None:
    model, data = networks((0.0, 0.0)), linear_data(40)
    x, y = data.x.double(), data.y.double()
    model.precisions[:] = torch.tensor([2.0, 5.0])
    f = model.passes(x, model.flat, model.keep, 1, stream())
    lambdas = [0.01**2 / (2 * 1000 * tau) for tau in (2.0, 5.0)]
    expected = sum(
        0.5 * (y - f[i]).square().mean() + lambdas[i] * model.flat[i].square().sum() for i in range(2)
    )
    torch.testing.assert_close(model.loss(Data(x, y), 1000, stream()), expected)


def test_precision_of_a_single_function_is_one_over_its_mean_square() -> None:
    y = 0.2 * torch.randn(500, generator=stream(), dtype=F64)
    precision, log_likelihood = best_precision(torch.zeros(1, 500, dtype=F64), y)
    assert float(precision) == pytest.approx(1.0 / float(y.square().mean()), rel=0.13)  # half a step of the grid
    density = torch.distributions.Normal(0.0, precision.rsqrt()).log_prob(y).mean()
    assert log_likelihood == pytest.approx(float(density))


def test_the_rate_of_highest_validation_likelihood_predicts() -> None:
    """The second network is the right one, x₁; the first is noise."""
    model = networks((0.0, 0.0), hidden_units=2)
    with torch.no_grad():
        # f = leaky(x₁) − leaky(−x₁) = 1.2 x₁: two units with weights ±1, summed with ±1/1.2
        model.flat[1] = torch.tensor([1.0, -1.0, 0, 0, 0, 0, 0, 0, 1 / 1.2, -1 / 1.2, 0.0], dtype=F64)
    x = torch.randn(200, 3, generator=stream(3), dtype=F64)
    model.choose(Data(x, x[:, 0] + 0.1 * torch.randn(200, generator=stream(4), dtype=F64)), stream())
    assert model.chosen == 1
    assert float(model.precisions[1]) == pytest.approx(100.0, rel=0.3)


def test_draws_do_not_depend_on_how_rows_are_chunked() -> None:
    model = networks((0.3,))
    x = torch.randn(1203, 3, generator=stream(), dtype=F64)
    draws = model.draw(x, 4, stream(1))
    torch.testing.assert_close(model.draw(x[1000:], 4, stream(1)), draws[:, 1000:])


def test_search_and_final_training_find_the_noise() -> None:
    posterior = fit(Dropout(hidden_units=20), linear_data(300, noise=0.3), 1200)
    assert len(posterior.flat) == 1  # the final network: the search is over
    # y = sum of three inputs + 0.3 noise, standardised: 0.3/√3.09
    assert posterior.trace()["noise"] == pytest.approx(0.17, rel=0.3)


@pytest.mark.parametrize("rates", [(1.0,), (-0.1,), ()])
def test_rates_that_make_no_sense_are_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rates"):
        Dropout(rates=rates)
