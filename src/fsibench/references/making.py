"""From a problem to its reference posterior, or to the reason why there is none."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from fsibench import registry
from fsibench.data import prepare
from fsibench.predictive import Predictive
from fsibench.references.files import LEVELS, Reference
from fsibench.references.sampling import PRIOR, Draws, Words, agreement, by_hmc, by_smc

KEPT_DRAWS = 1000
LARGEST_RHAT, LEAST_ESS = 1.01, 1000.0
# Of the largest of some hundred differences between the two samplers, in Monte Carlo errors.
LARGEST_Z = 4.5


class NotAReference(Exception):
    """The samplers have not converged, or do not agree."""


def make(problem: str, iterations: int, particles: int, say: Words = lambda _: None) -> Reference:
    """Both samplers on the problem; raises `NotAReference` with the figures when they fail the test."""
    dataset = registry.dataset(f"reference-{problem}")
    rows = prepare(dataset, "paper", 0)
    x, y, at = (torch.from_numpy(values) for values in (rows.train_x, rows.train_y, rows.test_x))
    started = time.process_time()
    first = by_hmc(x, y, at, seed=1, iterations=iterations, say=lambda text: say(f"{problem}, HMC: {text}"))
    halfway = time.process_time()
    second = by_smc(x, y, at, seed=2, particles=particles, say=lambda text: say(f"{problem}, SMC: {text}"))
    rhat, ess, z, z_sd = agreement(first, second)
    about = {
        "problem": problem,
        "prior": PRIOR,
        "fingerprint": dataset.fingerprint(),
        "target_mean": rows.standardiser.y_mean,
        "target_scale": rows.standardiser.y_scale,
        "train_rows": len(y),
        "worst_rhat": float(rhat.max()),
        "least_ess": float(ess.min()),
        "worst_z": float(torch.maximum(z.abs(), z_sd.abs()).max()),
        "log_evidence": second.log_evidence - len(y) * math.log(rows.standardiser.y_scale),
        "hmc": {"chains": first.functions.shape[1], "iterations": iterations, "cpu_seconds": halfway - started},
        "smc": {"particles": particles, "cpu_seconds": time.process_time() - halfway},
    }
    require_agreement(about)
    scale, mean = rows.standardiser.y_scale, rows.standardiser.y_mean
    inside = torch.arange(len(at)) < len(at) // 2
    return assembled(first, rhat, ess, z, scale, mean, inside, about)


def require_agreement(about: dict[str, object]) -> None:
    worst, least, z = (float(str(about[key])) for key in ("worst_rhat", "least_ess", "worst_z"))
    if not (worst < LARGEST_RHAT and least > LEAST_ESS and z < LARGEST_Z):
        raise NotAReference(
            f"no reference: R-hat {worst:.4f} (below {LARGEST_RHAT}), {least:.0f} effective draws (above {LEAST_ESS:.0f}), "
            f"samplers {z:.1f} Monte Carlo errors apart (below {LARGEST_Z}); more --draws or --particles may help."
        )


def assembled(
    first: Draws, rhat: Tensor, ess: Tensor, z: Tensor, scale: float, mean: float, inside: Tensor, about: dict[str, object]
) -> Reference:
    """The columns of the file, in the target's own units."""
    every = first.functions.double().flatten(0, 1) * scale + mean  # [T C, M]
    noise = first.noise.double().flatten() * scale**2
    chosen = torch.linspace(0, len(every) - 1, KEPT_DRAWS).round().long()
    kept, kept_noise = every[chosen].float(), noise[chosen].sqrt()
    predictive = Predictive(kept.double(), kept_noise[:, None])
    quantiles = predictive.quantile(torch.tensor(LEVELS, dtype=torch.float64))  # [L, M]
    density = torch.stack([predictive.log_prob(values) for values in quantiles])
    return Reference(
        inside=inside.numpy(),
        draws=kept.numpy(),
        mean=every.mean(0).numpy(),
        sd=every.std(0).numpy(),
        quantiles=quantiles.T.contiguous().numpy(),
        log_density=density.T.contiguous().numpy(),
        rhat=rhat.numpy(),
        ess=ess.numpy(),
        z=z.numpy(),
        about={**about, "noise": [round(value, 8) for value in kept_noise.tolist()]},
    )
