"""Reference posteriors against a third sampler: NUTS of numpyro on all weights, the density written from the prior's words.

Needs jax and numpyro, which the `oracle` session of nox installs; skipped elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fsibench import registry
from fsibench.blocks import diagnostics
from fsibench.data import Prepared, prepare
from fsibench.references import PROBLEMS, files
from fsibench.references.sampling import NOISE_CENTRE, NOISE_FLOOR, NOISE_SPREAD

jax = pytest.importorskip("jax", reason="jax is not installed; run the oracle session of nox")
numpyro = pytest.importorskip("numpyro", reason="numpyro is not installed; run the oracle session of nox")

UNITS, CHAINS, WARM_UP, DRAWS = 20, 4, 500, 750


def model(x: Any, y: Any) -> None:
    normal, sample = numpyro.distributions.Normal, numpyro.sample
    D = x.shape[1]
    w = sample("w", normal(0.0, 1.0).expand([D, UNITS]).to_event(2))
    b = sample("b", normal(0.0, 1.0).expand([UNITS]).to_event(1))
    v = sample("v", normal(0.0, 1.0).expand([UNITS]).to_event(1))
    c, level = sample("c", normal(0.0, 1.0)), sample("l", normal(0.0, 1.0))
    variance = jax.numpy.exp(NOISE_CENTRE + NOISE_SPREAD * level) + NOISE_FLOOR
    numpyro.sample("y", normal(function(w, b, v, c, x), jax.numpy.sqrt(variance)), obs=y)


def function(w: Any, b: Any, v: Any, c: Any, x: Any) -> Any:
    return c + jax.numpy.tanh(x @ w / math.sqrt(x.shape[1]) + b) @ v / math.sqrt(UNITS)


def nuts(rows: Prepared) -> torch.Tensor:
    """f at the test rows in the target's own units, [T, C, M]."""
    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model), num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.PRNGKey(0), rows.train_x, rows.train_y)
    found = sampler.get_samples(group_by_chain=True)
    at = jax.vmap(jax.vmap(lambda w, b, v, c: function(w, b, v, c, rows.test_x)))
    draws = np.array(at(found["w"], found["b"], found["v"], found["c"]), dtype=np.float64)
    return torch.from_numpy(draws).transpose(0, 1) * rows.standardiser.y_scale + rows.standardiser.y_mean


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("default")  # of jax and numpyro, whose deprecations are not ours
@pytest.mark.parametrize("problem", [problem for problem in PROBLEMS if files.path_of(problem).is_file()])
def test_a_third_sampler_finds_the_same_posterior(problem: str) -> None:
    dataset = registry.dataset(f"reference-{problem}")
    reference = dataset.reference()
    assert reference is not None
    draws = nuts(prepare(dataset, "paper", 0))
    assert diagnostics.rhat(draws).max().item() < 1.05
    sizes = torch.minimum(diagnostics.bulk_ess(draws), torch.from_numpy(reference.ess)).numpy()
    flat = draws.flatten(0, 1)
    error = reference.sd * np.sqrt(2.0 / sizes)
    assert (np.abs(flat.mean(0).numpy() - reference.mean) / error).max() < 4.5
    assert flat.std(0).numpy() == pytest.approx(reference.sd, rel=0.2)
