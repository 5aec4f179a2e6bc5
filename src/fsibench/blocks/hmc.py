"""Hamiltonian Monte Carlo with many chains in one batch.

Neal: MCMC using Hamiltonian dynamics, 2011. All chains share step size ε and trajectory length, so that every leapfrog
step is one batched gradient. ε follows dual averaging (Hoffman and Gelman 2014), the trajectory length τ climbs the
"change in the estimator of the expected square" (ChEES; Hoffman, Radul, Sountsov 2021).

Positions q are [C, P]; a potential gives U(q) = −log density up to a constant, [C] in float64, and ∇U [C, P]. With an
inverse mass m⁻¹ per coordinate, momenta are N(0, m) and the energy is H = U(q) + ½ Σ m⁻¹ p².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.draws import normal, uniform

Potential = Callable[[Tensor], tuple[Tensor, Tensor]]
Gradient = Callable[[Tensor], Tensor]

# A trajectory whose energy grows by more than this has left the region where the integrator is stable.
DIVERGENCE = 1000.0


@dataclass(frozen=True)
class State:
    """Where the chains are: positions [C, P] with their potential [C] and its gradient [C, P]."""

    position: Tensor
    potential: Tensor
    gradient: Tensor

    @classmethod
    def at(cls, position: Tensor, potential: Potential) -> State:
        return cls(position, *potential(position))


@dataclass(frozen=True)
class Transition:
    """One iteration of all chains: where they are now, and what the proposals were like."""

    state: State
    proposal: Tensor  # end of each trajectory, accepted or not, [C, P]
    velocity: Tensor  # there, [C, P]
    acceptance: Tensor  # min(1, exp(H₀ − H₁)), [C]
    divergent: Tensor  # [C]
    energy: Tensor  # of the state that is kept, [C]


def leapfrog(
    state: State,
    momentum: Tensor,
    step_size: float,
    num_steps: int,
    inverse_mass: Tensor,
    potential: Potential,
    gradient: Gradient | None = None,
) -> tuple[State, Tensor]:
    """Half a kick, drifts and kicks, half a kick: the end state and its momentum. Reversible, preserves volume.

    `gradient` gives ∇U alone, where that is cheaper; the energy is needed at the end only.
    """
    position = state.position
    momentum = momentum - 0.5 * step_size * state.gradient
    for _ in range(num_steps - 1):
        position = torch.addcmul(position, momentum, inverse_mass, value=step_size)
        slope = potential(position)[1] if gradient is None else gradient(position)
        momentum = torch.sub(momentum, slope, alpha=step_size)
    end = State.at(torch.addcmul(position, momentum, inverse_mass, value=step_size), potential)
    return end, torch.sub(momentum, end.gradient, alpha=0.5 * step_size)


def kinetic_energy(momentum: Tensor, inverse_mass: Tensor) -> Tensor:
    """½ Σ m⁻¹ p², summed in float64: [C]."""
    return 0.5 * (momentum.double().square() * inverse_mass.double()).sum(-1)


def transition(
    state: State,
    step_size: float,
    num_steps: int,
    inverse_mass: Tensor,
    potential: Potential,
    generator: torch.Generator,
    gradient: Gradient | None = None,
) -> Transition:
    """Fresh momenta, one trajectory, an exact Metropolis test: leaves exp(−U) invariant."""
    q = state.position
    momentum = normal(generator, *q.shape, like=q) * inverse_mass.rsqrt()
    before = state.potential + kinetic_energy(momentum, inverse_mass)
    end, momentum = leapfrog(state, momentum, step_size, num_steps, inverse_mass, potential, gradient)
    after = end.potential + kinetic_energy(momentum, inverse_mass)
    gain = torch.nan_to_num(before - after, nan=-math.inf)  # [C]
    accepted = uniform(generator, *gain.shape, like=gain).log() < gain
    keep = accepted[:, None]
    new = State(
        torch.where(keep, end.position, q),
        torch.where(accepted, end.potential, state.potential),
        torch.where(keep, end.gradient, state.gradient),
    )
    return Transition(
        new,
        end.position,
        momentum * inverse_mass,
        gain.clamp_max(0.0).exp(),
        gain < -DIVERGENCE,
        torch.where(accepted, after, before),
    )


def first_step_size(state: State, inverse_mass: Tensor, potential: Potential, generator: torch.Generator) -> float:
    """Doubles or halves from 0.01 until the mean acceptance of a single leapfrog step crosses one half."""
    step_size, direction = 0.01, 0
    for _ in range(40):
        acceptance = transition(state, step_size, 1, inverse_mass, potential, generator).acceptance.mean().item()
        wanted = 1 if acceptance > 0.5 else -1
        if direction not in (0, wanted):
            break
        direction = wanted
        step_size *= 2.0**direction
    return step_size


class DualAveraging:
    """Step size whose acceptance averages to `target`: Hoffman and Gelman, equations 6 and 7."""

    SHRINKAGE, DELAY, DECAY = 0.05, 10.0, 0.75  # γ, t₀, κ

    def __init__(self, step_size: float, target: float) -> None:
        self.target = target
        self.restart(step_size)

    def restart(self, step_size: float) -> None:
        """Forget the past: the centre of the search is ten times `step_size`."""
        self.centre = math.log(10.0 * step_size)
        self.log_step, self.log_average = math.log(step_size), 0.0
        self.deficit, self.count = 0.0, 0

    def update(self, acceptance: float) -> None:
        self.count += 1
        t = self.count
        weight = 1.0 / (t + self.DELAY)
        self.deficit += weight * (self.target - acceptance - self.deficit)
        self.log_step = self.centre - math.sqrt(t) / self.SHRINKAGE * self.deficit
        decay = t**-self.DECAY
        self.log_average += decay * (self.log_step - self.log_average)

    @property
    def step_size(self) -> float:
        return math.exp(self.log_step)

    @property
    def averaged(self) -> float:
        """What to use once adaptation ends."""
        return math.exp(self.log_average) if self.count else self.step_size


class ChEES:
    """Trajectory length τ by stochastic ascent on ¼ E[(‖q' − q̄'‖² − ‖q − q̄‖²)²], with Adam on log τ."""

    RATE, LARGEST_CHANGE = 0.025, 0.35

    def __init__(self, length: float) -> None:
        self.log_length, self.log_average = math.log(length), math.log(length)
        self.first, self.second, self.count = 0.0, 0.0, 0

    def update(self, before: Tensor, moved: Transition, duration: float, shortest: float, longest: float) -> None:
        """One iteration from `before` [C, P]; its trajectory lasted `duration`. τ stays within its bounds."""
        gradient = self._gradient(before, moved, duration)
        self.count += 1
        t = self.count
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.05 * (gradient**2 - self.second)
        step = (self.first / (1.0 - 0.9**t)) / (math.sqrt(self.second / (1.0 - 0.95**t)) + 1e-12)
        change = max(-self.LARGEST_CHANGE, min(self.LARGEST_CHANGE, self.RATE * step))
        self.log_length = max(math.log(shortest), min(math.log(longest), self.log_length + change))
        self.log_average += t**-0.5 * (self.log_length - self.log_average)

    @staticmethod
    def _gradient(before: Tensor, moved: Transition, duration: float) -> float:
        # t · (‖q' − q̄'‖² − ‖q − q̄‖²) · ⟨q' − q̄', velocity⟩ per chain, averaged with acceptance as weight
        usable = torch.isfinite(moved.proposal).all(-1) & torch.isfinite(moved.velocity).all(-1)  # [C]
        if int(usable.sum()) < 2:
            return 0.0
        start, end = before[usable].double(), moved.proposal[usable].double()
        start, end = start - start.mean(0), end - end.mean(0)
        growth = end.square().sum(-1) - start.square().sum(-1)
        signal = duration * growth * (end * moved.velocity[usable].double()).sum(-1)
        weights = moved.acceptance[usable].double()
        return float((weights * signal).sum() / weights.sum().clamp_min(1e-12))

    @property
    def length(self) -> float:
        return math.exp(self.log_length)

    @property
    def averaged(self) -> float:
        return math.exp(self.log_average)


def van_der_corput(index: int) -> float:
    """The index-th number of the base-2 sequence 1/2, 1/4, 3/4, 1/8, ...: evenly spread trajectory lengths."""
    value, share = 0.0, 0.5
    while index:
        index, bit = divmod(index, 2)
        value += bit * share
        share *= 0.5
    return value


class Sampler:
    """Chains that adapt ε and τ until told to stop.

    With `length` every trajectory lasts between half and one and a half of it, and only ε is adapted. With `num_leapfrog`
    and `step_size` both given nothing is adapted: plain HMC with fixed settings.
    """

    def __init__(
        self,
        potential: Potential,
        position: Tensor,
        generator: torch.Generator,
        inverse_mass: Tensor | None = None,
        step_size: float | None = None,
        num_leapfrog: int | None = None,
        target_acceptance: float = 0.8,
        first_length: float = 0.5 * math.pi,
        shortest_length: float = 0.0,
        max_leapfrog: int = 1000,
        length: float | None = None,
        gradient: Gradient | None = None,
    ) -> None:
        self.potential, self.generator, self.max_leapfrog = potential, generator, max_leapfrog
        self.gradient, self.length = gradient, length
        self.inverse_mass = torch.ones_like(position[0]) if inverse_mass is None else inverse_mass
        self.num_leapfrog = num_leapfrog
        self.state = State.at(position, potential)
        start = step_size or first_step_size(self.state, self.inverse_mass, potential, generator)
        self.adapts_step = step_size is None
        self.steps = DualAveraging(start, target_acceptance)
        self.chees, self.shortest_length = ChEES(first_length), shortest_length
        self.warming, self.iteration = True, 0

    def stop_adapting(self) -> None:
        self.warming = False

    def restart_step_size(self) -> None:
        """The first part of a warm-up says little about the typical set; begin again from the averaged step size."""
        self.steps.restart(self.steps.averaged)

    def move(self, chain: int, to: int) -> None:
        """Start `chain` again where chain `to` is."""
        rows = torch.arange(len(self.state.potential), device=self.state.position.device)
        rows[chain] = to
        self.state = State(self.state.position[rows], self.state.potential[rows], self.state.gradient[rows])

    @property
    def step_size(self) -> float:
        if not self.adapts_step:
            return math.exp(self.steps.log_step)
        return self.steps.step_size if self.warming else self.steps.averaged

    @property
    def trajectory(self) -> float:
        if self.num_leapfrog is not None:
            return self.num_leapfrog * self.step_size
        if self.length is not None:
            return self.length
        return self.chees.length if self.warming else self.chees.averaged

    def advance(self) -> Transition:
        """One iteration of every chain."""
        self.iteration += 1
        step_size, before = self.step_size, self.state.position
        num_steps = self.num_leapfrog or self._random_length(step_size)
        moved = transition(
            self.state, step_size, num_steps, self.inverse_mass, self.potential, self.generator, self.gradient
        )
        self.state = moved.state
        if self.warming:
            self._adapt(before, moved, step_size, num_steps)
        return moved

    def _random_length(self, step_size: float) -> int:
        share = van_der_corput(self.iteration)
        duration = share * self.trajectory if self.length is None else (0.5 + share) * self.length
        return max(1, min(self.max_leapfrog, math.ceil(duration / step_size)))

    def _adapt(self, before: Tensor, moved: Transition, step_size: float, num_steps: int) -> None:
        if self.adapts_step:
            # The arithmetic mean: with the harmonic one of the ChEES paper a single chain that is still on its way
            # from a far start shrinks the step of all by orders of magnitude.
            self.steps.update(moved.acceptance.mean().item())
        if self.num_leapfrog is None and self.length is None and len(before) > 1:
            longest = self.max_leapfrog * step_size
            shortest = min(max(step_size, self.shortest_length), longest)
            self.chees.update(before, moved, num_steps * step_size, shortest, longest)
