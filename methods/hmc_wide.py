"""Hamiltonian Monte Carlo for an infinitely wide network: its weights are integrated out, its scales and noise are sampled.

Neal: Bayesian learning for neural networks, 1996, chapters 2 and 3; Williams: Computing with infinite networks, NeurIPS 1996.
As the hidden layer of `hmc` grows, its functions become draws of a Gaussian process (`blocks.wide_network`), and the posterior
of all weights given the scales ξ is known in closed form. What is left to sample are 2 D + 3 numbers: a scale per input, those
of biases and of the output, and the noise, whose logarithm is linear in the inputs (`noise=linear`) or constant:

    U(ξ) = ½ yᵀ(K_ξ + V_ξ)⁻¹y + ½ log|K_ξ + V_ξ| + ½|ξ|²

`hmc` cannot say what the posterior is where data have almost no noise: its chains do not converge there. These do, because the
stiff directions, the weights, are gone. It is another model than `hmc`: no unit can become a feature of its own.

Chains start at modes of the posterior that BFGS finds from draws of the prior: each at one of them drawn by Laplace's approximation of how
much of the posterior it holds, since chains do not cross from mode to mode; R-hat tells where they hold several. The inverse mass is first the inverse Hessian at the
best mode, then the covariance of the chains, so that one step suits all directions. Both parts of the burn-in end by a test
(`blocks.burn_in`), and convergence is judged as that of `hmc`, on conditional means of f at probe inputs, log σ² at the middle of the data
and the log-likelihood (`blocks.chain_record`). Cubic in N.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.bfgs import minimise
from fsibench.blocks.burn_in import FIRST_TEST, BurnIn, restart_stuck
from fsibench.blocks.chain_record import ChainRecord, probe_inputs
from fsibench.blocks.draws import PREDICTION_ROWS, by_rows, normal
from fsibench.blocks.gaussian import factor
from fsibench.blocks.hmc import Sampler, Transition
from fsibench.blocks.wide_network import Conditioned, ScalePrior, Whitened, WideNetwork, shares_of_modes
from fsibench.contract import Budget, Data, Method
from fsibench.errors import Diverged
from fsibench.predictive import Predictive

# Starts of BFGS: draws of the prior, drawn in by this factor. Far out the data say nothing and the search does not move.
START_SPREAD = 0.5
SEARCH_SHARE, SEARCH_ITERATIONS = 0.25, 300  # of the budget for all searches, and of each
# A search ends where so many iterations have gained less than so many nats.
LAST_ITERATIONS, LEAST_GAIN = 10, 0.02
# The first part of the burn-in may take this share of it; the test may end the second after so many iterations.
FIRST_SHARE, LAST_TEST = 0.6, 30
# Processes kept per chain; beyond it every second one is dropped, so that memory stays bounded.
KEPT = 12


@dataclass(frozen=True)
class HMCWide(Method):
    """Batched-chain Hamiltonian Monte Carlo over the scales of an infinitely wide network."""

    name: ClassVar[str] = "hmc_wide"
    paper: ClassVar[str] = "Neal, Bayesian learning for neural networks, 1996; Williams, Computing with infinite networks, NeurIPS 1996"
    max_rows: ClassVar[int | None] = 1_500

    num_chains: int = 4
    noise: Literal["linear", "constant"] = "linear"  # its logarithm, in the inputs
    longest_burn_in: float = 0.5  # share of the budget; a burn-in that no test has ended by then fails the diagnostics
    trajectory: float = 1.6  # mean length, in units of the sd at the mode
    target_acceptance: float = 0.8

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[WidePosterior]:
        network = WideNetwork(train.x, train.y, ScalePrior() if self.noise == "linear" else ScalePrior(slope_spread=0.0))
        posterior = WidePosterior(network, self.num_chains, probe_inputs(train.x, generator))
        modes: list[Tensor] = []
        values: list[float] = []
        for chain in range(self.num_chains):
            mode, value = yield from self.find_mode(posterior, chain, budget, generator)
            modes.append(mode)
            values.append(value)
        around = [Whitened.at(network, mode) for mode in modes]
        shares = shares_of_modes(around, values).to(generator.device)
        places = around[int(shares.argmax())]
        starts = torch.multinomial(shares, self.num_chains, replacement=True, generator=generator)
        z = places.coordinates(torch.stack(modes)[starts])
        z = z + normal(generator, *z.shape, like=z)
        for last in (False, True):  # in the coordinates of the mode, then in those of the draws there
            sampler, found = self.sampler(places, z, generator), list[Tensor]()
            until = self.longest_burn_in * (1.0 if last else FIRST_SHARE)
            posterior.chains.burn_in = BurnIn(LAST_TEST if last else FIRST_TEST)
            while not posterior.chains.burn_in.settled and budget.fraction < until:
                self.advance(posterior, sampler, places, generator)
                if not last:
                    found.append(sampler.state.position)
                yield posterior
            if found:
                before, places = places, places.adapted(torch.stack(found[len(found) // 2 :]))
                z = places.coordinates(before.parameters(sampler.state.position))
        sampler.stop_adapting()
        while True:
            self.advance(posterior, sampler, places, generator)
            yield posterior

    def sampler(self, places: Whitened, z: Tensor, generator: torch.Generator) -> Sampler:
        return Sampler(places.potential, z, generator, target_acceptance=self.target_acceptance, length=self.trajectory)

    def find_mode(
        self, posterior: WidePosterior, chain: int, budget: Budget, generator: torch.Generator
    ) -> Generator[WidePosterior, None, tuple[Tensor, float]]:
        """A mode of U by BFGS from a draw of the prior, and U there. Each search has an equal part of the time for all."""
        network = posterior.network

        def objective(point: Tensor) -> tuple[float, Tensor]:
            U, gradient = network.potential(point[None])
            return float(U), gradient[0]

        start = START_SPREAD * normal(generator, network.num_sampled, like=network.x)
        found, levels = (start, math.inf), list[float]()
        for point, value in minimise(objective, start, SEARCH_ITERATIONS):
            if math.isfinite(value):
                found = point, value
                posterior.show(point[None])
            elif not posterior.kept:
                raise Diverged("the posterior density of the scales is not finite where the search begins")
            levels.append(value)
            yield posterior
            settled = len(levels) > LAST_ITERATIONS and levels[-1 - LAST_ITERATIONS] - value < LEAST_GAIN
            if settled or budget.fraction > SEARCH_SHARE * (chain + 1) / self.num_chains:
                break
        return found

    def advance(self, posterior: WidePosterior, sampler: Sampler, places: Whitened, generator: torch.Generator) -> None:
        """One trajectory of every chain."""
        moved = sampler.advance()
        if not bool(torch.isfinite(moved.state.potential).any()):
            raise Diverged("no chain has a finite energy")
        xi, chains = places.parameters(moved.state.position), posterior.chains
        log_likelihood = 0.5 * xi.square().sum(1) - moved.state.potential
        posterior.step_size, posterior.iteration = sampler.step_size, posterior.iteration + 1
        if not sampler.warming:
            posterior.record(moved, xi, log_likelihood)
            return
        posterior.show(xi)
        if chains.burn_in.record(log_likelihood, moved.acceptance):
            restart_stuck(chains.burn_in, sampler, generator)


class WidePosterior:
    """Processes of the scales that the chains have visited: a mixture of Gaussian processes with equal weights."""

    def __init__(self, network: WideNetwork, num_chains: int, probes: Tensor) -> None:
        self.network, self.probes = network, probes.double()
        self.chains = ChainRecord(num_chains)
        self.kept: list[list[Conditioned]] = []  # of the sampling phase, thinned; before it, of the latest state
        self.thinning = 1
        self.step_size, self.iteration = math.nan, 0

    def show(self, xi: Tensor) -> None:
        """Predict with these scales [C, P], until draws count."""
        self.kept = [[Conditioned.of(self.network, row) for row in xi]]

    def record(self, moved: Transition, xi: Tensor, log_likelihood: Tensor) -> None:
        """Count a draw [C, P] of the sampling phase."""
        if self.chains.num_kept == 0:
            self.kept = []
        processes = [Conditioned.of(self.network, row) for row in xi]
        means = torch.stack([process.mean(self.probes) for process in processes])  # [C, probes]
        noise = self.network.scales(xi).n
        if self.chains.num_kept % self.thinning == 0:
            self.kept.append(processes)
        if len(self.kept) > KEPT:
            self.kept, self.thinning = self.kept[::2], 2 * self.thinning
        self.chains.add(moved, torch.cat([means, noise[:, None], log_likelihood[:, None]], 1))

    def pooled(self) -> list[Conditioned]:
        """Of the chains that move."""
        moving = set(self.chains.moving())
        return [process for processes in self.kept for chain, process in enumerate(processes) if chain in moving]

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        pool = self.pooled()

        def at(rows: Tensor) -> Tensor:
            return torch.stack([torch.stack(process.moments(rows.double())) for process in pool])  # [S, 2, N]

        moments = by_rows(at, x, PREDICTION_ROWS)
        return Predictive(moments[:, 0].to(x.dtype), moments[:, 1].sqrt().to(x.dtype))

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        pool = self.pooled()
        counts = torch.bincount(
            torch.randint(len(pool), (num_draws,), generator=generator, device=generator.device), minlength=len(pool)
        )
        drawn = [process.draw(x.double(), count, generator) for process, count in zip(pool, counts.tolist(), strict=True) if count]
        order = torch.randperm(num_draws, generator=generator, device=generator.device)
        return torch.cat(drawn)[order].to(x.dtype)

    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Each function with scales of its own."""
        scales = self.network.scales(normal(generator, num_draws, self.network.num_sampled, like=self.network.x))
        rows = x.double()
        roots = [factor(scales[chain].covariance(rows, rows)[0]) for chain in range(num_draws)]
        return torch.stack([root @ normal(generator, len(x), like=root) for root in roots]).to(x.dtype)

    def trace(self) -> dict[str, float | Tensor]:
        pool = self.pooled()
        noise = torch.stack([process.scales.noise(torch.zeros_like(self.probes[:1]))[0, 0] for process in pool])
        return {
            "noise": noise.mean().sqrt().item(),  # in the middle of the data
            "step_size": self.step_size,
            "burn_in": float(self.iteration - self.chains.num_kept),
            **self.chains.trace(),
        }
