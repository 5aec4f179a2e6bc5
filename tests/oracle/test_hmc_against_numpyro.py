"""Effective function draws per CPU second of `hmc`, against NUTS of numpyro on the same model, in one run.

Needs jax and numpyro, which the `oracle` session of nox installs; skipped elsewhere. FSIBENCH_ORACLE_SECONDS is the CPU time
of each side (60). NUTS has all weights in the coordinates whose prior is N(0, I), as a user of numpyro would write it.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np
import pytest
import torch

from fsibench import registry
from fsibench.blocks import diagnostics
from fsibench.contract import Data, Meter
from fsibench.data import Prepared, prepare
from fsibench.methods.hmc import HMC, Chains

jax = pytest.importorskip("jax", reason="jax is not installed; run the oracle session of nox")
numpyro = pytest.importorskip("numpyro", reason="numpyro is not installed; run the oracle session of nox")

SECONDS = float(os.environ.get("FSIBENCH_ORACLE_SECONDS", "60"))
OPTIONS = HMC()
CHAINS = 4


def ours(rows: Prepared) -> tuple[float, torch.Tensor]:
    """Median effective function draws per CPU second of the whole fit, burn-in included, and the probes."""
    meter = Meter(seconds=SECONDS, clock=time.process_time)
    train = Data(torch.from_numpy(rows.train_x), torch.from_numpy(rows.train_y))
    chains = None
    for chains in meter.pulls(OPTIONS, train, torch.Generator().manual_seed(0)):  # noqa: B007 (looked at below)
        pass
    assert isinstance(chains, Chains)
    history = torch.stack(chains.draws.histories)[:, :, : len(chains.probes)]
    return diagnostics.bulk_ess(history).median().item() / meter.elapsed, chains.probes


def function(w: Any, b: Any, v: Any, c: Any, x: Any) -> Any:
    hidden = jax.numpy.tanh(x @ w / math.sqrt(x.shape[1]) + b)
    return c + OPTIONS.output_scale * hidden @ v / math.sqrt(OPTIONS.hidden_units)


def model(x: Any, y: Any) -> None:
    normal, sample, H = numpyro.distributions.Normal, numpyro.sample, OPTIONS.hidden_units
    w = sample("w", normal(0.0, 1.0).expand([x.shape[1], H]).to_event(2))
    b = sample("b", normal(0.0, 1.0).expand([H]).to_event(1))
    v = sample("v", normal(0.0, 1.0).expand([H]).to_event(1))
    c, level = sample("c", normal(0.0, 1.0)), sample("l", normal(0.0, 1.0))
    variance = jax.numpy.exp(OPTIONS.noise_centre + OPTIONS.noise_spread * level) + 1e-6
    sample("y", normal(function(w, b, v, c, x), jax.numpy.sqrt(variance)), obs=y)


def theirs(rows: Prepared, probes: torch.Tensor) -> float:
    """The same for NUTS: compiled before the clock starts, as many iterations as fit, a third of them as warm-up."""
    started, iterations = time.process_time(), 30
    while True:
        sampler = numpyro.infer.MCMC(
            numpyro.infer.NUTS(model), num_warmup=iterations // 3, num_samples=iterations, num_chains=CHAINS,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        before = time.process_time()
        sampler.run(jax.random.PRNGKey(iterations), rows.train_x, rows.train_y)
        found = sampler.get_samples(group_by_chain=True)
        at = jax.vmap(jax.vmap(lambda w, b, v, c: function(w, b, v, c, probes.numpy())))
        draws = np.array(at(found["w"], found["b"], found["v"], found["c"]), dtype=np.float64)
        cost = time.process_time() - before
        if cost > 0.4 * SECONDS or time.process_time() - started > 2.0 * SECONDS:
            return diagnostics.bulk_ess(torch.from_numpy(draws).transpose(0, 1)).median().item() / cost
        iterations *= 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("default")  # of jax and numpyro, whose deprecations are not ours
@pytest.mark.parametrize("name", ["concrete", "yacht"])
def test_effective_draws_per_second_are_ten_times_those_of_nuts(name: str) -> None:
    rows = prepare(registry.dataset(name), "paper", 0)
    mine, probes = ours(rows)
    nuts = theirs(rows, probes)
    print(f"{name}: effective function draws per CPU second: hmc {mine:.3g}, NUTS {nuts:.3g}, ratio {mine / nuts:.1f}")
    assert mine >= 10.0 * nuts
