"""Two independent samplers of the same posterior.

`by_hmc`: many chains of Hamiltonian Monte Carlo on the hidden layer, the output layer integrated out and drawn from its
closed form. `by_smc`: tempered sequential Monte Carlo on all weights, nothing integrated out; autograd for its gradients,
its own energy, Langevin moves with a Metropolis test. They share the data and the words of the prior, no line of the density.
SMC also estimates the evidence:

    Z = Π_k mean_i p(y | θ_i)^(β_k − β_{k−1}),   θ_i ~ p(θ) p(y | θ)^β_{k−1}

(Del Moral, Doucet, Jasra: Sequential Monte Carlo samplers, JRSS B 2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks import diagnostics
from fsibench.blocks.burn_in import BurnIn
from fsibench.blocks.draws import normal
from fsibench.blocks.hmc import Sampler, State
from fsibench.blocks.priors import ReferencePrior
from fsibench.blocks.priors.reference import HIDDEN_UNITS
from fsibench.blocks.single_layer import SingleLayerNetwork
from fsibench.blocks.weight_posterior import Spreads

# log σ² ~ N(NOISE_CENTRE, NOISE_SPREAD²), on top of a variance of 1e-6.
NOISE_CENTRE, NOISE_SPREAD, NOISE_FLOOR = -3.2, 2.0, 1e-6
SPREADS = Spreads(False, 0.0, 0.0, NOISE_CENTRE, NOISE_SPREAD)
PRIOR = (
    f"f(x) = c + sum_h v_h tanh(w_h.x + b_h), {HIDDEN_UNITS} units, on standardised rows; w ~ N(0, 1/D), b ~ N(0, 1), "
    f"v ~ N(0, 1/{HIDDEN_UNITS}), c ~ N(0, 1); y = f(x) + noise of variance exp(l) + 1e-6, l ~ N(-3.2, 2^2)"
)
ANNEALING, TRAJECTORY = 50, 1.2

Words = Callable[[str], None]


@dataclass(frozen=True)
class Draws:
    """f at the test rows [T, C, M] and the noise variance [T, C] of T iterations of C chains (C = 1: a set of particles)."""

    functions: Tensor
    noise: Tensor
    log_evidence: float = math.nan


def by_hmc(
    x: Tensor, y: Tensor, at: Tensor, seed: int, iterations: int, chains: int = 8, say: Words = lambda _: None
) -> Draws:
    """`iterations` draws of each chain after a burn-in that its test has ended."""
    generator = torch.Generator().manual_seed(seed)
    prior = ReferencePrior(x.shape[1], generator, x.dtype)
    network = SingleLayerNetwork(prior, x, y, SPREADS)
    start = normal(generator, chains, network.num_sampled, like=x)
    start[:, -1] = -NOISE_CENTRE / NOISE_SPREAD  # a noise variance of one: nothing is far from any function
    network.temper(0.0)
    sampler = Sampler(
        network.potential, start, generator, max_leapfrog=512, length=TRAJECTORY, gradient=network.gradient
    )
    for step in range(1, ANNEALING + 1):
        network.temper(step / ANNEALING)
        sampler.state = State.at(sampler.state.position, network.potential)
        sampler.advance()
    sampler.restart_step_size()
    burn_in = BurnIn(first_test=200)
    while not burn_in.settled:
        moved = sampler.advance()
        burn_in.record(0.5 * moved.state.position.double().square().sum(1) - moved.state.potential, moved.acceptance)
    sampler.stop_adapting()
    say(f"burn-in of {sampler.iteration} iterations, {TRAJECTORY / sampler.step_size:.0f} leapfrog steps each")
    functions, noise = [], []
    for _ in range(iterations):
        xi = network.completed(sampler.advance().state.position, generator)
        functions.append(network.functions(at, xi).float())
        noise.append(network.noise(xi).float())
    return Draws(torch.stack(functions), torch.stack(noise))


class Written:
    """The log density of all weights a second time, from the words of the prior alone, for particles [P, size]."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.inputs, self.units = x.shape[1], HIDDEN_UNITS
        self.size = self.units * (self.inputs + 2) + 2

    def functions(self, theta: Tensor, x: Tensor) -> Tensor:
        D, H = self.inputs, self.units
        w = theta[:, : D * H].view(-1, H, D) / math.sqrt(D)
        b, v, c = theta[:, D * H : D * H + H], theta[:, D * H + H : D * H + 2 * H], theta[:, -2]
        hidden = torch.tanh(torch.einsum("nd,phd->pnh", x, w) + b[:, None, :])
        return torch.einsum("pnh,ph->pn", hidden, v / math.sqrt(H)) + c[:, None]

    def noise(self, theta: Tensor) -> Tensor:
        return torch.exp(NOISE_CENTRE + NOISE_SPREAD * theta[:, -1]) + NOISE_FLOOR

    def log_likelihood(self, theta: Tensor) -> Tensor:
        noise = self.noise(theta)
        misfit = (self.y - self.functions(theta, self.x)).square().sum(1)
        return -0.5 * misfit / noise - 0.5 * len(self.y) * torch.log(2.0 * math.pi * noise)

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        theta = theta.detach().requires_grad_()
        with torch.enable_grad():
            value = self.log_likelihood(theta)
            (gradient,) = torch.autograd.grad(value.sum(), theta)
        return value.detach(), gradient


def by_smc(
    x: Tensor,
    y: Tensor,
    at: Tensor,
    seed: int,
    particles: int = 1000,
    moves: int = 8,
    leaps: int = 10,
    last_moves: int = 200,
    say: Words = lambda _: None,
) -> Draws:
    """Particles from the prior to the posterior, β rising so that weights keep nine tenths of their effective number."""
    generator = torch.Generator().manual_seed(seed)
    density = Written(x, y)
    theta = normal(generator, particles, density.size, like=x)
    value, gradient = density.with_gradient(theta)
    beta, log_evidence, step, rungs = 0.0, 0.0, 0.1, 0
    while beta < 1.0:
        rise = _next_rise(value.double(), beta)
        increments = rise * value.double()
        log_evidence += float(increments.logsumexp(0)) - math.log(particles)
        beta, rungs = min(1.0, beta + rise), rungs + 1
        chosen = _systematic(increments, generator)
        theta, value, gradient = theta[chosen], value[chosen], gradient[chosen]
        for _ in range(moves if beta < 1.0 else last_moves):
            theta, value, gradient, acceptance = _move(density, theta, value, gradient, beta, step, leaps, generator)
            step *= math.exp(0.3 * (acceptance - 0.75))
    say(f"{rungs} temperatures, steps of {step:.3g}")
    return Draws(density.functions(theta, at)[:, None].float(), density.noise(theta)[:, None].float(), log_evidence)


def _next_rise(value: Tensor, beta: float) -> float:
    """The largest rise of β for which (Σw)²/Σw² of the weights w = p(y | θ)^rise is at least nine tenths of their number."""

    def effective(rise: float) -> float:
        log_weights = rise * value
        return float((2.0 * log_weights.logsumexp(0) - (2.0 * log_weights).logsumexp(0)).exp()) / len(value)

    low, high = 0.0, 1.0 - beta
    if effective(high) >= 0.9:
        return high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= 0.9 else (low, middle)
    return low


def _systematic(log_weights: Tensor, generator: torch.Generator) -> Tensor:
    """Indices of a systematic resampling: each particle is repeated its share of the number, rounded up or down."""
    cumulated = log_weights.softmax(0).cumsum(0)
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    points = (torch.arange(len(log_weights), dtype=torch.float64) + offset) / len(log_weights)
    return torch.searchsorted(cumulated, points).clamp_max(len(log_weights) - 1)


def _move(
    density: Written,
    theta: Tensor,
    value: Tensor,
    gradient: Tensor,
    beta: float,
    step: float,
    leaps: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, float]:
    """One trajectory of each particle with a Metropolis test, on p(θ) p(y | θ)^β."""
    momentum = normal(generator, *theta.shape, like=theta)
    before = beta * value.double() - 0.5 * (theta.double().square() + momentum.double().square()).sum(1)
    q, slope, new_value = theta, beta * gradient - theta, value
    new_gradient = gradient
    for _ in range(leaps):
        momentum = momentum + 0.5 * step * slope
        q = q + step * momentum
        new_value, new_gradient = density.with_gradient(q)
        slope = beta * new_gradient - q
        momentum = momentum + 0.5 * step * slope
    after = beta * new_value.double() - 0.5 * (q.double().square() + momentum.double().square()).sum(1)
    gain = torch.nan_to_num(after - before, nan=-math.inf)
    accepted = torch.rand(len(gain), generator=generator, dtype=torch.float64).log() < gain
    keep = accepted[:, None]
    moved = torch.where(keep, q, theta), torch.where(accepted, new_value, value), torch.where(keep, new_gradient, gradient)
    return *moved, float(gain.clamp_max(0.0).exp().mean())


def agreement(first: Draws, second: Draws) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """R-hat and effective size of the first, and the differences of means and of log sds in Monte Carlo errors: [M] each.

    Particles count as independent draws of half their number: resampled ones share ancestors.
    """
    draws = first.functions.double()
    rhat = diagnostics.rhat(draws)
    size = torch.minimum(diagnostics.bulk_ess(draws), diagnostics.tail_ess(draws))
    other = second.functions.double().flatten(0, 1)
    flat = draws.flatten(0, 1)
    per_draw = 1.0 / size + 2.0 / len(other)
    z = (flat.mean(0) - other.mean(0)) / (flat.std(0) * per_draw.sqrt())
    z_sd = (flat.std(0) / other.std(0)).log() / (0.5 * per_draw * _kurtosis(flat)).sqrt()
    return rhat, size, z, z_sd


def _kurtosis(draws: Tensor) -> Tensor:
    """E[z⁴] − 1 over 2, one for a Gaussian: how much a variance scatters."""
    z = (draws - draws.mean(0)) / draws.std(0)
    return 0.5 * (z.pow(4).mean(0) - 1.0)
