"""When has a set of chains arrived? A burn-in that ends by a test, and chains that do not move.

The test looks at the log-likelihood, the slowest to settle of what a posterior determines: over the last half of all
iterations so far its drift from the first part of that window to the second is no larger than chance makes it, judged by
how much independent chains differ in it, and chains agree on its level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.blocks import diagnostics
from fsibench.blocks.hmc import Sampler

LARGEST_DRIFT = 2.0  # standard errors between chains
LARGEST_RHAT = 1.2  # of the log-likelihood over the window: far from converged, but one place for all chains
NEXT_TEST = 1.15  # times as many iterations; testing all the time would let chance end the burn-in
FIRST_TEST = 40
# A chain that accepts fewer of its proposals than this does not sample.
STUCK = 0.1


def stuck(acceptance: Tensor) -> list[int]:
    """Chains whose mean acceptance over iterations [T, C] is below `STUCK`: they are named one by one, a mean would hide them."""
    return torch.nonzero(acceptance.double().mean(0) < STUCK).flatten().tolist()


class BurnIn:
    """Watches log-likelihoods and acceptances [C] of every iteration until the chains have arrived."""

    def __init__(self, first_test: int = FIRST_TEST) -> None:
        self.levels: list[Tensor] = []
        self.acceptances: list[Tensor] = []
        self.next_test = first_test
        self.settled = False
        self.restarts = 0

    def record(self, level: Tensor, acceptance: Tensor) -> bool:
        """Whether a test is due after this iteration; it has set `settled`."""
        self.levels.append(level.double())
        self.acceptances.append(acceptance.double())
        if len(self.levels) < self.next_test:
            return False
        self.next_test = int(NEXT_TEST * len(self.levels)) + 1
        self.settled = not self.stuck() and settled(self.window(self.levels))
        return True

    @staticmethod
    def window(records: list[Tensor]) -> Tensor:
        """The last half, [T, C]."""
        return torch.stack(records[len(records) // 2 :])

    def stuck(self) -> list[int]:
        return stuck(self.window(self.acceptances))

    def restarted(self) -> None:
        """A chain begins elsewhere: what it did before says nothing about what it does now."""
        self.restarts += 1
        self.next_test = max(self.next_test, int(1.5 * len(self.levels)))


def restart_stuck(burn_in: BurnIn, sampler: Sampler, generator: torch.Generator) -> None:
    """Restart each stuck chain at the state of a random other chain; its own momentum separates the two."""
    held = burn_in.stuck()
    free = [chain for chain in range(len(sampler.state.potential)) if chain not in held]
    for chain in held if free else []:
        choice = int(torch.randint(len(free), (1,), generator=generator, device=generator.device))
        sampler.move(chain, free[choice])
        burn_in.restarted()


def settled(levels: Tensor) -> bool:
    """Neither drift nor disagreement in levels [T, C] of at least two chains; one chain is compared with itself."""
    half = len(levels) // 2
    drift = levels[half:].mean(0) - levels[:half].mean(0)  # [C]
    if not bool(torch.isfinite(drift).all()):
        return False
    if len(drift) > 1:
        error = drift.std() / len(drift) ** 0.5
    else:
        error = levels[:, 0].std() * (2.0 / diagnostics.bulk_ess(levels[:, :, None])[0]).sqrt()
    no_drift = bool(drift.mean().abs() <= LARGEST_DRIFT * error)
    return no_drift and bool((diagnostics.rhat(levels[:, :, None]) <= LARGEST_RHAT).all())
