"""What chains have done since they arrived: which of them move, and whether they agree."""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.blocks import diagnostics
from fsibench.blocks.burn_in import BurnIn, stuck
from fsibench.blocks.draws import normal
from fsibench.blocks.hmc import Transition

# Four draws per half chain are the least that a variance needs to mean anything.
FEWEST_DRAWS = 8
LARGEST_RHAT, FEWEST_EFFECTIVE, LOWEST_EBFMI = 1.05, 100.0, 0.3
MOST_DIVERGENT, MOST_STUCK = 1e-3, 0.25  # shares of transitions and of chains


class Rows:
    """Tensors of one shape, appended to one block that doubles.

    A list of thousands of small tensors splits the memory that large ones have left, so that a process grows at every iteration.
    """

    def __init__(self) -> None:
        self._block: Tensor | None = None
        self._count = 0

    def append(self, row: Tensor) -> None:
        if self._block is None:
            self._block = row.new_empty(64, *row.shape)
        elif self._count == len(self._block):
            self._block = torch.cat([self._block, torch.empty_like(self._block)])
        self._block[self._count] = row
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def stacked(self) -> Tensor:
        """[T, ...]; at least one row must have been appended."""
        assert self._block is not None
        return self._block[: self._count]


class ChainRecord:
    """Iterations of the sampling phase of C chains, each with what is watched: functions, then log σ², then the log-likelihood."""

    def __init__(self, num_chains: int) -> None:
        self.num_chains, self.num_kept, self.divergences = num_chains, 0, 0.0
        self.burn_in = BurnIn()
        self.histories = Rows()  # quantities under watch, [C, Q] each
        self.energies, self.acceptances = Rows(), Rows()  # [C] each

    def add(self, moved: Transition, watched: Tensor) -> None:
        self.num_kept += 1
        self.divergences += moved.divergent.double().sum().item()
        self.energies.append(moved.energy)
        self.acceptances.append(moved.acceptance)
        self.histories.append(watched)

    def stuck(self) -> list[int]:
        """Chains that do not accept proposals."""
        return stuck(self.acceptances.stacked()) if self.num_kept >= FEWEST_DRAWS else []

    def moving(self) -> list[int]:
        """The chains that count: those that accept proposals; all of them if none does."""
        every, held = range(self.num_chains), self.stuck()
        return [chain for chain in every if chain not in held] or list(every)

    def trace(self) -> dict[str, float | Tensor]:
        explained: dict[str, float | Tensor] = {
            "burn_in_settled": float(self.burn_in.settled),
            "chains_restarted": float(self.burn_in.restarts),
            "chains_excluded": float(len(self.stuck())),
            "draws": float(self.num_kept * len(self.moving())),
            "diagnostics_failed": 1.0,
        }
        return explained if self.num_kept < FEWEST_DRAWS else {**explained, **self.convergence()}

    def convergence(self) -> dict[str, float | Tensor]:
        """The diagnostics of the draws so far, each at its worst over the functions under watch."""
        moving = self.moving()
        history = self.histories.stacked()[:, moving]  # [T, C, Q]
        rhat = diagnostics.rhat(history)  # [Q]
        bulk, tail = diagnostics.bulk_ess(history), diagnostics.tail_ess(history)
        ebfmi = diagnostics.ebfmi(self.energies.stacked()[:, moving]).min().item()
        divergent_share = self.divergences / (self.num_kept * history.shape[1])
        functions = slice(0, history.shape[2] - 2)
        worst = {
            "rhat": rhat[functions].max().item(),
            "rhat_noise": rhat[-2].item(),
            "rhat_log_likelihood": rhat[-1].item(),
            "ess_bulk": torch.nan_to_num(bulk[functions]).min().item(),
            "ess_tail": torch.nan_to_num(tail[functions]).min().item(),
            "ebfmi": ebfmi,
            "divergences": self.divergences,
            "lowest_acceptance": self.acceptances.stacked().mean(0).min().item(),
        }
        passed = (
            self.burn_in.settled
            and len(self.stuck()) <= MOST_STUCK * self.num_chains
            and max(worst["rhat"], worst["rhat_noise"], worst["rhat_log_likelihood"]) <= LARGEST_RHAT
            and min(worst["ess_bulk"], worst["ess_tail"]) >= FEWEST_EFFECTIVE
            and ebfmi >= LOWEST_EBFMI
            and divergent_share <= MOST_DIVERGENT
        )
        return {**worst, "diagnostics_failed": 0.0 if passed else 1.0}


def probe_inputs(x: Tensor, generator: torch.Generator) -> Tensor:
    """Where functions are watched: 50 training rows, and 50 more moved by half a standard deviation in every input,
    about as far as a new row is from its nearest training row."""
    rows = torch.randint(len(x), (2, 50), generator=generator, device=x.device)
    return torch.cat([x[rows[0]], x[rows[1]] + 0.5 * normal(generator, 50, x.shape[1], like=x)])
