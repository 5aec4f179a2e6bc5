"""What every gradient fit needs: Adam on flat tensors, schedules that follow the budget, a guard against non-finite numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from fsibench.errors import Diverged

Schedule = Literal["constant", "cosine"]
# A KL that has its full weight by this share of the training is a warm-up; a later one tempers the posterior.
LONGEST_WARM_UP = 0.2
# Adam's averages of gradients and of their squares, and what keeps its divisor from zero
BETAS = (0.9, 0.999)
EPSILON = 1e-8


def schedule_factor(schedule: Schedule, fraction: float) -> float:
    """Share of the base learning rate when `fraction` of the budget is spent; `cosine` ends at zero."""
    if schedule == "constant":
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * fraction))


def warm_up(fraction: float, length: float) -> float:
    """KL weight β: 0 at the start, 1 once `length` of the budget is spent; a length of 0 means no warm-up."""
    return 1.0 if length <= 0.0 else min(fraction / length, 1.0)


def late_kl(length: float) -> str:
    """What a warm-up of that length makes of the objective, in words; empty where it is only a start."""
    if length <= LONGEST_WARM_UP:
        return ""
    return f"cold posterior: the KL term has its full weight only after {length:.0%} of the training"


def progress(budget: Callable[[], float], num_steps: int) -> Iterator[float]:
    """Before each step, the share of the training that is done: of the budget, without end, when `num_steps` is 0.

    Otherwise of a schedule of that many steps, which a budget may cut short but not prolong.
    """
    done = 0
    while num_steps == 0 or done < num_steps:
        yield done / num_steps if num_steps else budget()
        done += 1


def steps_of(epochs: int, num_data: int, batch_size: int) -> int:
    """Steps in that many epochs, the short last batch of each included."""
    return epochs * math.ceil(num_data / batch_size)


class Optimiser:
    """Adam on a few (flat) leaf tensors, with a learning rate that follows the share of budget spent.

    The update is `torch.optim.Adam`'s, by the same fused kernel; without its bookkeeping, which costs more than the kernel
    for tensors of some thousand numbers. A tensor without a gradient is left alone.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float, schedule: Schedule = "constant") -> None:
        self._states = [
            (p, torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device=p.device)) for p in parameters
        ]  # with the averages of gradients and of their squares, and the number of steps
        self._learning_rate, self._schedule = learning_rate, schedule

    def minimise(self, loss: Tensor, fraction: float) -> float:
        """One step down the gradient of `loss`; returns its value, raises `Diverged` when that is not finite."""
        value = finite_or_diverged(loss)
        torch.autograd.backward(loss)
        self.step(fraction)
        return value

    @torch.no_grad()
    def step(self, fraction: float) -> None:
        """Apply the gradients that a backward pass left in the tensors, then drop them."""
        moved = [(*state, state[0].grad) for state in self._states if state[0].grad is not None]
        if not moved:
            return
        parameters, averages, squares, counts, gradients = (list(column) for column in zip(*moved, strict=True))
        torch._foreach_add_(counts, 1.0)
        torch._fused_adam_(
            parameters, gradients, averages, squares, [], counts, lr=self._learning_rate * schedule_factor(self._schedule, fraction),
            beta1=BETAS[0], beta2=BETAS[1], weight_decay=0.0, eps=EPSILON, amsgrad=False, maximize=False,
        )  # fmt: skip
        for parameter in parameters:
            parameter.grad = None


class Refresh:
    """When to renew what predictions need from the training rows: at steps 1, 2, 3, 5, 8, 12, ..., each half as far again.

    The work is done inside a pull, on the clock. In between, predictions are those of the last renewal, which is at most
    a third of the steps old; the share of time spent on renewals falls as training goes on.
    """

    def __init__(self) -> None:
        self._steps, self._next = 0, 1

    def due(self) -> bool:
        """Call it once per step."""
        self._steps += 1
        if self._steps < self._next:
            return False
        self._next = math.ceil(1.5 * self._steps) if self._steps > 1 else 2
        return True


def require_at_least(least: int, **options: int) -> None:
    """Counts that make no sense below `least` are refused by name."""
    for name, value in options.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def finite_or_diverged(value: Tensor, what: str = "loss") -> float:
    """The value of a scalar tensor; raises `Diverged` when it is no longer finite."""
    number = value.item()
    if not math.isfinite(number):
        raise Diverged(f"the {what} is {number}")
    return number


def leaf(values: Tensor) -> Tensor:
    """A trainable copy of `values`."""
    return values.detach().clone().requires_grad_(True)
