"""Our linearised Laplace against laplace-torch on the same network: predictions and evidence to 1e-4.

Needs laplace-torch, which the `oracle` session of nox installs; skipped elsewhere.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fsibench.blocks.batched import split_layers, starting_parameters
from fsibench.contract import Data
from fsibench.methods.laplace import Network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that it imports
    laplace = pytest.importorskip("laplace", reason="laplace-torch is not installed; run the oracle session of nox")

pytestmark = pytest.mark.filterwarnings("ignore")
WIDTHS, PRECISION, NOISE = (3, 8, 6, 1), 0.7, 0.09


def torch_network(flat: torch.Tensor) -> torch.nn.Sequential:
    """The same network out of torch's layers, whose weights are [fan_out, fan_in]."""
    modules: list[torch.nn.Module] = []
    for weight, bias in split_layers(flat, WIDTHS):
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.mT.contiguous(), bias.clone()
        modules += [layer, torch.nn.Tanh()]
    return torch.nn.Sequential(*modules[:-1]).double()


@pytest.mark.parametrize("num_data", [40, 300])  # fewer rows than the 91 weights, and more
@pytest.mark.parametrize(("layers", "theirs"), [("all", "all"), ("last", "last_layer")])
def test_predictions_and_evidence_agree(num_data: int, layers: str, theirs: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_data, 3, generator=generator, dtype=torch.float64)
    y = torch.sin(x.sum(1)) + 0.3 * torch.randn(num_data, generator=generator, dtype=torch.float64)
    flat = starting_parameters(1, WIDTHS, "tanh", 0.3, generator, torch.float64)[0]
    ours = Network(flat, WIDTHS, layers).posterior(Data(x, y), PRECISION, NOISE)
    reference = laplace.Laplace(
        torch_network(flat), "regression", subset_of_weights=theirs, hessian_structure="full",
        prior_precision=PRECISION, sigma_noise=NOISE**0.5,
    )  # fmt: skip
    reference.fit(DataLoader(TensorDataset(x, y[:, None]), batch_size=50))
    probes = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    their_mean, their_variance = reference(probes, pred_type="glm")
    mean, variance = ours.moments(probes)
    torch.testing.assert_close(mean, their_mean[:, 0].detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(variance, their_variance[:, 0, 0].detach(), rtol=1e-4, atol=1e-4)
    assert ours.log_evidence() == pytest.approx(float(reference.log_marginal_likelihood()), rel=1e-4)
