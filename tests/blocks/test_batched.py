"""Batched networks and hand-written Jacobians against autograd and torch's own layers."""

from __future__ import annotations

import pytest
import torch

from fsibench.blocks.batched import (
    batched_network,
    interleaved,
    num_parameters,
    split_layers,
    starting_parameters,
)
from fsibench.blocks.jacobians import linearise

F64 = torch.float64
WIDTHS = (3, 5, 4, 2)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=stream(seed), dtype=F64)


@pytest.mark.parametrize("activation", ["leaky_relu", "tanh"])
def test_each_network_is_that_of_torch_layers(activation: str) -> None:
    flat, x = starting_parameters(4, WIDTHS, activation, 0.3, stream(), F64), normal(7, 3)
    function = torch.tanh if activation == "tanh" else torch.nn.LeakyReLU(0.2)
    for member, output in zip(flat, batched_network(x, flat, WIDTHS, activation), strict=True):
        h = x
        layers = split_layers(member, WIDTHS)
        for weight, bias in layers[:-1]:
            h = function(h @ weight + bias)
        torch.testing.assert_close(output, h @ layers[-1][0] + layers[-1][1])


@pytest.mark.parametrize("activation", ["leaky_relu", "tanh"])
@pytest.mark.parametrize("shared_inputs", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_gradients_are_those_of_finite_differences(activation: str, shared_inputs: bool, masked: bool) -> None:
    flat = starting_parameters(4, WIDTHS, activation, 0.3, stream(), F64).requires_grad_()
    x = normal(*((7, 3) if shared_inputs else (4, 7, 3))).requires_grad_()
    masks = [torch.rand(4, 7, width, generator=stream(2), dtype=F64) for width in WIDTHS[:-1]] if masked else None
    assert torch.autograd.gradcheck(lambda a, b: batched_network(a, b, WIDTHS, activation, masks), (x, flat))


@pytest.mark.parametrize("widths", [(3, 1), (3, 6, 1), (3, 5, 4, 1)])
def test_the_jacobian_is_that_of_autograd(widths: tuple[int, ...]) -> None:
    flat, x = starting_parameters(1, widths, "tanh", 0.3, stream(), F64)[0], normal(7, 3)

    def network(parameters: torch.Tensor) -> torch.Tensor:
        return batched_network(x, parameters[None], widths, "tanh")[0, :, 0]

    linearisation = linearise(x, flat, widths)
    exact = torch.autograd.functional.jacobian(network, flat)
    assert exact.shape == (7, num_parameters(widths))
    torch.testing.assert_close(linearisation.value, network(flat))
    torch.testing.assert_close(linearisation.jacobian(), exact)
    variances = normal(len(flat), seed=3).square()
    torch.testing.assert_close(linearisation.variance(variances), (exact.square() * variances).sum(1))


def test_with_one_scale_per_layer_the_covariance_is_that_of_the_jacobian() -> None:
    widths, scales = (3, 6, 5, 1), [(0.7, 1.1), (0.4, 0.9), (1.3, 0.2)]
    flat = normal(num_parameters(widths))
    linearisation = linearise(normal(8, 3, seed=2), flat, widths)
    each = torch.empty_like(flat)
    for (weights, biases), (of_weights, of_biases) in zip(split_layers(each, widths), scales, strict=True):
        weights.fill_(of_weights)
        biases.fill_(of_biases)
    features = linearisation.jacobian() * each
    torch.testing.assert_close(linearisation.shared_covariance(scales), features @ features.mT)


def test_gradients_pass_through_the_jacobian() -> None:
    widths, x = (2, 3, 1), normal(4, 2)
    flat = starting_parameters(1, widths, "tanh", 0.3, stream(), F64)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda parameters: linearise(x, parameters, widths).jacobian(), (flat,))


def test_weights_and_biases_interleave_layer_by_layer() -> None:
    flat = normal(4, num_parameters(WIDTHS))
    layers = split_layers(flat, WIDTHS)
    weights = torch.cat([weight.flatten(1) for weight, _ in layers], 1)
    assert torch.equal(interleaved(weights, torch.cat([bias for _, bias in layers], 1), WIDTHS), flat)
