"""Our sampler against an independent one: NUTS of blackjax on the posterior of a tiny Bayesian network.

Needs jax and blackjax, which the `oracle` session of nox installs; skipped elsewhere. The density is written a second
time in jax, so that a slip in our potential shows as well. Functions are compared, not weights: units can be permuted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fsibench.blocks import diagnostics
from fsibench.blocks.hmc import Sampler
from fsibench.blocks.weight_posterior import BayesianNetwork
from fsibench.contract import Budget, Data
from fsibench.methods.hmc import HMC

jax = pytest.importorskip("jax", reason="jax is not installed; run the oracle session of nox")
blackjax = pytest.importorskip("blackjax", reason="blackjax is not installed; run the oracle session of nox")

UNITS, CHAINS, WARM_UP, DRAWS = 4, 8, 500, 1500
OPTIONS = HMC(hidden_units=UNITS, output_scale=1.0, noise_centre=-2.0, noise_spread=0.5)


def tiny_data() -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(15, 1, generator=generator, dtype=torch.float64)
    return Data(x, torch.sin(x[:, 0]) + 0.3 * torch.randn(15, generator=generator, dtype=torch.float64))


PROBES = torch.linspace(-2.5, 2.5, 9, dtype=torch.float64)[:, None]


def ours() -> torch.Tensor:
    """f at the probes and log σ², [T, C, 10]."""
    network: BayesianNetwork = OPTIONS.network(tiny_data(), Budget(steps=1), torch.Generator())
    stream = torch.Generator().manual_seed(2)
    start = torch.randn(CHAINS, network.num_sampled, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sampler = Sampler(network.potential, start, stream, max_leapfrog=200)
    for _ in range(WARM_UP):
        sampler.advance()
    sampler.stop_adapting()
    positions = [network.completed(sampler.advance().state.position, stream) for _ in range(DRAWS)]
    return torch.stack([
        torch.cat([network.functions(PROBES, q), network.noise(q).log()[:, None]], 1) for q in positions
    ])


def theirs() -> torch.Tensor:
    """The same quantities from blackjax."""
    jnp = jax.numpy
    jax.config.update("jax_enable_x64", True)
    data = tiny_data()
    x, y, probes = (jnp.asarray(part.numpy()) for part in (data.x, data.y, PROBES))

    def function(xi: Any, inputs: Any) -> Any:
        w1, w2, b1, b2 = jnp.split(xi[:-1], [UNITS, 2 * UNITS, 3 * UNITS])
        hidden = jnp.tanh(inputs @ w1[None, :] + b1)
        return hidden @ (w2 / math.sqrt(UNITS)) + b2[0]

    def log_noise(xi: Any) -> Any:
        return jnp.log(jnp.exp(-2.0 + 0.5 * xi[-1]) + 1e-6)

    def log_density(xi: Any) -> Any:
        variance = jnp.exp(log_noise(xi))
        residual = y - function(xi, x)
        return -0.5 * jnp.sum(residual**2) / variance - 0.5 * len(y) * log_noise(xi) - 0.5 * jnp.sum(xi**2)

    def one_chain(key: Any) -> Any:
        key_start, key_warm, key_sample = jax.random.split(key, 3)
        start = jax.random.normal(key_start, (3 * UNITS + 2,))
        warm = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = warm.run(key_warm, start, num_steps=WARM_UP)
        kernel = blackjax.nuts(log_density, **parameters).step

        def step(current: Any, step_key: Any) -> Any:
            moved, _ = kernel(step_key, current)
            quantities = jnp.append(function(moved.position, probes), log_noise(moved.position))
            return moved, quantities

        return jax.lax.scan(step, state, jax.random.split(key_sample, DRAWS))[1]

    draws: npt.NDArray[np.float64] = np.array(jax.vmap(one_chain)(jax.random.split(jax.random.PRNGKey(0), CHAINS)))
    return torch.from_numpy(draws).transpose(0, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of jax and blackjax, whose deprecations are not ours
def test_both_samplers_find_the_same_functions_and_the_same_noise() -> None:
    first, second = ours(), theirs()
    for draws in (first, second):
        assert diagnostics.rhat(draws).max().item() < 1.05
    spread = second.flatten(0, 1).std(0)
    sizes = torch.minimum(diagnostics.bulk_ess(first), diagnostics.bulk_ess(second))
    means = [draws.flatten(0, 1).mean(0) for draws in (first, second)]
    standard_error = spread * (2.0 / sizes).sqrt()
    assert ((means[0] - means[1]).abs() / standard_error).max().item() < 4.5
    assert first.flatten(0, 1).std(0).numpy() == pytest.approx(spread.numpy(), rel=0.1)
