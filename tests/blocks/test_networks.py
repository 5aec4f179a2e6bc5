"""Networks with written-out gradients against plain torch, and local reparameterisation against weight sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from fsibench.blocks import networks
from fsibench.blocks.batched import batched_network, num_parameters
from fsibench.blocks.mlp import MLP, NoiseSampler
from fsibench.blocks.networks import (
    ACTIVATIONS_AT_ONCE,
    DropoutMasks,
    gaussian_network,
    kept_scale,
    network_pieces,
    num_weights,
    process_features,
    sampled_hidden,
    sampled_network,
    scaled_weights,
    split_biases,
    split_weights,
)

WIDTHS = (3, 5, 4, 1)
F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=stream(seed), dtype=F64)


def plain_network(x: Tensor, weights: list[Tensor], biases: tuple[Tensor, ...]) -> Tensor:
    """One network, layer by layer: [N]."""
    h = x
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = h @ weight + bias
        h = h if layer == len(weights) - 1 else leaky_relu(h, 0.2)
    return h[:, 0]


def test_sampled_network_equals_one_network_at_a_time() -> None:
    x, w, b = normal(7, 3), normal(6, num_weights(WIDTHS), seed=1), normal(10, seed=2)
    expected = torch.stack([plain_network(x, split_weights(row, WIDTHS), split_biases(b, WIDTHS)) for row in w])
    torch.testing.assert_close(sampled_network(x, w, b, WIDTHS), expected)


def test_sampled_network_takes_own_inputs_for_each_network() -> None:
    x, w, b = normal(6, 2, 3), normal(6, num_weights(WIDTHS), seed=1), normal(10, seed=2)
    expected = torch.stack([
        plain_network(own, split_weights(row, WIDTHS), split_biases(b, WIDTHS)) for own, row in zip(x, w, strict=True)
    ])
    torch.testing.assert_close(sampled_network(x, w, b, WIDTHS), expected)


def test_the_output_layer_on_top_of_the_last_hidden_layer_is_the_network() -> None:
    x, w, b = normal(7, 3), normal(6, num_weights(WIDTHS), seed=1), normal(10, seed=2)
    hidden = sampled_hidden(x, w[:, :-4], b, WIDTHS)  # [6, 7, 4]
    torch.testing.assert_close((hidden * w[:, None, -4:]).sum(-1) + b[-1], sampled_network(x, w, b, WIDTHS))


def test_features_of_a_network_have_the_moments_of_its_functions() -> None:
    P = num_weights(WIDTHS)
    x, means, log_scales, biases = normal(5, 3), normal(P, seed=1), -0.7 + 0.3 * normal(P, seed=2), normal(10, seed=3)
    f = sampled_network(x, means + log_scales.exp() * normal(200_000, P, seed=4), biases, WIDTHS)
    mean, features = process_features(x, means, log_scales, biases, WIDTHS, normal(50_000, P, seed=5))
    torch.testing.assert_close(mean, f.mean(0), atol=0.03, rtol=0.02)
    torch.testing.assert_close(features @ features.mT, torch.cov(f.mT), atol=0.1, rtol=0.04)


def test_without_noise_below_the_output_layer_features_are_exact() -> None:
    P = num_weights(WIDTHS)
    x, means, biases = normal(5, 3), normal(P, seed=1), normal(10, seed=3)
    log_scales = torch.cat([torch.full((P - 4,), -30.0, dtype=F64), normal(4, seed=2)])
    mean, features = process_features(x, means, log_scales, biases, WIDTHS, normal(3, P, seed=4))
    hidden = sampled_hidden(x, means[None, :-4], biases, WIDTHS)[0]  # [5, 4]
    torch.testing.assert_close(mean, hidden @ means[-4:] + biases[-1])
    torch.testing.assert_close(features @ features.mT, (hidden * (2.0 * log_scales[-4:]).exp()) @ hidden.mT)


def test_gradients_of_sampled_networks_are_those_of_finite_differences() -> None:
    for shape in ((5, 3), (4, 5, 3), (4, 1, 3)):
        inputs = [normal(*shape), normal(4, num_weights(WIDTHS), seed=1), normal(10, seed=2)]
        inputs = [tensor.requires_grad_() for tensor in inputs]
        assert torch.autograd.gradcheck(lambda x, w, b: sampled_network(x, w, b, WIDTHS), inputs)


def test_gradients_under_dropout_are_those_of_finite_differences() -> None:
    inputs = [normal(5, 3), normal(4, num_weights(WIDTHS), seed=1), normal(10, seed=2)]
    inputs = [tensor.requires_grad_() for tensor in inputs]

    def with_equal_masks(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return sampled_network(x, w, b, WIDTHS, DropoutMasks(0.3, stream(5)))

    assert torch.autograd.gradcheck(with_equal_masks, inputs)


def test_dropout_keeps_the_mean_and_drops_the_asked_share() -> None:
    masks = DropoutMasks(0.25, stream()).masks(400, 250, torch.zeros(1))
    assert abs(float(masks.mean()) - 1.0) < 0.01
    assert abs(float((masks == 0).float().mean()) - 0.25) < 0.005
    assert set(masks.unique().tolist()) == {0.0, torch.tensor(1.0 / 0.75).item()}


def test_dropout_replaces_outputs_by_zero() -> None:
    outputs = sampled_network(
        normal(50, 3), normal(40, num_weights(WIDTHS), seed=1), normal(10, seed=2), WIDTHS, DropoutMasks(0.3, stream())
    )
    assert abs(float((outputs == 0).double().mean()) - 0.3) < 0.03


def test_mlp_equals_plain_torch_and_its_gradients_finite_differences() -> None:
    network = MLP((3, 5, 4, 2), None, 0.1, stream(), F64)
    x = normal(6, 3, seed=1).requires_grad_()
    W1, b1, W2, b2, W3, b3 = torch.split_with_sizes(network.flat, network.sizes)
    h = leaky_relu(leaky_relu(x @ W1.view(3, 5) + b1, 0.2) @ W2.view(5, 4) + b2, 0.2)
    torch.testing.assert_close(network(x), h @ W3.view(4, 2) + b3)

    masks = [DropoutMasks(0.3, stream(3)).masks(6, width, x) for width in (5, 4)]
    for hidden_masks in (None, masks):

        def forward(x: Tensor, flat: Tensor, masks: list[Tensor] | None = hidden_masks) -> Tensor:
            network.flat = flat
            return network(x, masks)

        assert torch.autograd.gradcheck(forward, [x, network.flat])


def test_frozen_network_passes_gradients_to_inputs_only() -> None:
    network = MLP((3, 5, 1), None, 0.1, stream(), F64)
    x = normal(4, 3).requires_grad_()
    network(x, frozen=True).sum().backward()
    assert network.flat.grad is None
    assert x.grad is not None
    expected = x.grad.clone()
    x.grad = None
    network(x).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_kept_scale_keeps_the_size_of_activations() -> None:
    x = torch.randn(2000, 40, generator=stream())
    weights = scaled_weights((40, 300), stream(1), torch.float32).view(40, 300)
    outputs = leaky_relu(x @ weights, 0.2)
    assert abs(float(outputs.square().mean()) - 1.0) < 0.05
    assert kept_scale(40) == (2.0 / (1.04 * 40)) ** 0.5


def test_noise_sampler_draws_rows_that_differ_and_learns_its_noise_map() -> None:
    sampler = NoiseSampler(7, stream(), num_noise=5, hidden_units=8)
    draws = sampler(6, stream(1))
    assert draws.shape == (6, 7)
    assert float(draws.detach().std(0).min()) > 0
    draws.square().sum().backward()
    for parameter in sampler.parameters:
        assert parameter.grad is not None
        assert float(parameter.grad.abs().sum()) > 0


def test_noise_sampler_gradients_are_those_of_finite_differences() -> None:
    sampler = NoiseSampler(3, stream(), num_noise=4, hidden_units=5, weight_scale=0.5, log_variance=(-1.0, 0.5), dtype=F64)

    def draws(flat: Tensor, noise_map: Tensor) -> Tensor:
        sampler.network.flat, sampler.noise_map = flat, noise_map
        return sampler(6, stream(1))

    assert torch.autograd.gradcheck(draws, [sampler.network.flat, sampler.noise_map])


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_gaussian_network_is_the_sampled_network_of_its_weights(rate: float) -> None:
    x, noise = normal(7, 3), normal(4, num_weights(WIDTHS), seed=1)
    means, log_scales, biases = (normal(n, seed=n) for n in (num_weights(WIDTHS), num_weights(WIDTHS), 10))
    leaves = [tensor.requires_grad_() for tensor in (x, means, log_scales, biases)]

    def slopes(values: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((values * normal(4, 7, seed=9)).sum(), leaves)

    def dropout() -> DropoutMasks:
        return DropoutMasks(rate, stream(5))

    expected = sampled_network(x, means + log_scales.exp() * noise, biases, WIDTHS, dropout())
    values = gaussian_network(x, means, log_scales, biases, WIDTHS, noise, dropout(), fixed_rows=2)
    torch.testing.assert_close(values, expected)
    (of_x, *expected_slopes), (got_x, *got_slopes) = slopes(expected), slopes(values)
    torch.testing.assert_close(got_slopes, expected_slopes)
    torch.testing.assert_close(got_x[2:], of_x[2:])
    assert float(got_x[:2].abs().max()) == 0.0


@pytest.mark.parametrize("own_inputs", [False, True])
def test_without_gradients_networks_come_in_pieces_of_the_same_values(own_inputs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "ACTIVATIONS_AT_ONCE", 2 * 7 * max(WIDTHS))  # two networks at a time, and one left over
    x = normal(5, 7, 3) if own_inputs else normal(7, 3)
    w, b = normal(5, num_weights(WIDTHS), seed=1), normal(10, seed=2)
    flat, masks = normal(5, num_parameters(WIDTHS), seed=3), [normal(5, 7, width, seed=width) for width in WIDTHS[:-1]]
    whole = sampled_network(x, w, b, WIDTHS), batched_network(x, flat, WIDTHS, "tanh", masks)
    with torch.no_grad():
        pieces = sampled_network(x, w, b, WIDTHS), batched_network(x, flat, WIDTHS, "tanh", masks)
    torch.testing.assert_close(pieces, whole)


def test_a_prediction_holds_few_activations_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = []
    forward = networks._sampled_forward

    def counted(*arguments: Any) -> Any:
        inputs, out = forward(*arguments)
        largest.append(max(part.numel() for part in inputs[1:]))
        return inputs, out

    monkeypatch.setattr(networks, "_sampled_forward", counted)
    widths = (1, 50, 50, 1)
    noise, biases = torch.randn(300, num_weights(widths)), torch.randn(sum(widths[1:]))
    means = torch.zeros(num_weights(widths))
    with torch.no_grad():
        assert gaussian_network(torch.randn(1000, 1), means, means, biases, widths, noise).shape == (300, 1000)
    assert max(largest) <= ACTIVATIONS_AT_ONCE
    assert len(largest) == len(list(network_pieces(300, 1000, widths))) == 60
