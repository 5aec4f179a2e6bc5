"""Deep ensembles: members that share nothing, rows that a member never sees, the mixture they predict."""

from __future__ import annotations

import pytest
import torch

from fsibench.blocks.batched import batched_network
from fsibench.checks import fit, linear_data
from fsibench.contract import Data
from fsibench.methods.ensemble import Ensemble, Networks, left_out_rows

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def double_data() -> Data:
    data = linear_data(60)
    return Data(data.x.double(), data.y.double())


def test_members_share_nothing_but_batches() -> None:
    """The gradient of each member is that of its own score: no member knows of another."""
    data = double_data()
    model = Networks(Ensemble(num_networks=3, hidden_units=4, validation_share=0.0), data, stream())
    model.loss(data.x, torch.arange(60)).backward()
    for member in range(3):
        own = model.current.detach()[member : member + 1].requires_grad_()
        output = batched_network(data.x, own[:, :-1], model.widths)[0]
        variance = torch.nn.functional.softplus(output[:, 1]) + 1e-6
        score = torch.nn.functional.gaussian_nll_loss(output[:, 0], data.y, variance, full=True, eps=0.0)
        (gradient,) = torch.autograd.grad(score, own)
        assert model.current.grad is not None
        torch.testing.assert_close(model.current.grad[member], gradient[0])


def test_a_member_learns_nothing_from_the_rows_it_leaves_out() -> None:
    data = double_data()
    model = Networks(Ensemble(num_networks=4, hidden_units=4), data, stream())
    (gradient,) = torch.autograd.grad(model.loss(data.x, torch.arange(60)), model.current)
    absurd = data.y.clone()
    absurd[model.left_out[2]] = 1e6
    model.train = Data(data.x, absurd)
    (other,) = torch.autograd.grad(model.loss(data.x, torch.arange(60)), model.current)
    torch.testing.assert_close(gradient[2], other[2], rtol=0.0, atol=0.0)
    assert not torch.allclose(gradient[1], other[1])


def test_ten_members_leave_out_every_row_once() -> None:
    rows = left_out_rows(10, 200, 0.1, stream())
    assert torch.equal(rows.flatten().sort().values, torch.arange(200))


def test_a_member_predicts_with_its_best_parameters_so_far() -> None:
    data = double_data()
    model = Networks(Ensemble(num_networks=3, hidden_units=4), data, stream())
    model.keep_the_best()
    good = model.best.clone()
    with torch.no_grad():
        model.current[1] += 10.0
    model.keep_the_best()
    assert torch.equal(model.best, good)


def test_prediction_is_the_mixture_of_the_members() -> None:
    data = linear_data(60)
    posterior = fit(Ensemble(num_networks=3, hidden_units=8), data, 30)
    predictive = posterior.predict(data.x[:5], stream())
    mean, variance = posterior.moments(data.x[:5], posterior.best)
    assert predictive.num_components == 3
    torch.testing.assert_close(predictive.mean, mean.mean(0).detach())
    torch.testing.assert_close(predictive.variance, (variance + mean.square()).mean(0) - mean.mean(0).square())


def test_the_adversary_raises_the_score() -> None:
    data = double_data()
    model = Networks(Ensemble(num_networks=3, hidden_units=8, adversarial=0.001), data, stream())
    plain = model.scores(data.x, data.y, model.current)
    moved = model.scores(model.adversary(data.x, data.y), data.y, model.current)
    assert float((moved > plain).double().mean()) > 0.99


@pytest.mark.parametrize("noise", ["heteroscedastic", "homoscedastic"])
def test_the_noise_is_found(noise: str) -> None:
    """y = x + noise of scale 0.1 left and 0.5 right of zero; one variance for all gives their average."""
    x = 2.0 * torch.rand(600, 1, generator=stream()) - 1.0
    scale = torch.where(x[:, 0] < 0.0, 0.1, 0.5)
    data = Data(x, x[:, 0] + scale * torch.randn(600, generator=stream(1)))
    posterior = fit(Ensemble(noise=noise, num_networks=4, hidden_units=20), data, 600)
    found = posterior.predict(torch.tensor([[-0.7], [0.7]]), stream()).variance.sqrt()
    expected = [0.1, 0.5] if noise == "heteroscedastic" else [0.36, 0.36]  # √((0.1² + 0.5²)/2)
    assert found.tolist() == pytest.approx(expected, rel=0.3)


def test_paper_preset_trains() -> None:
    options = Ensemble(**Ensemble.presets["paper"])
    assert torch.isfinite(fit(options, linear_data(), 5).predict(linear_data().x, stream()).loc).all()
