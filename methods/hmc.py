"""Hamiltonian Monte Carlo over the weights of a Bayesian neural network, judged by its function values.

Neal: Bayesian learning for neural networks, 1996. The posterior of weights w, scales s and noise σ is sampled with an
exact Metropolis test, full batches and many chains at once (`blocks.hmc`):

    U = ½/σ² Σ_n (y_n − f_w(x_n))² + N/2 log σ² − log p(w, s, σ)

Everything is sampled in coordinates ξ whose prior is N(0, I), so that one step size suits all layers and a quarter
period of the prior, π/2, is a natural trajectory length (`blocks.weight_posterior`):

    W_l = s_l a_d ξ/√fan_in,   b = ξ,   log σ² = c + d ξ

Given all else, the posterior of the output layer is Gaussian. It is integrated out of U, and drawn from its closed form
for each state that the chains visit (`output_layer=integrated`; `sampled` leaves it to the sampler).

The default prior is fixed: one hidden layer of tanh units, s = 1 below and `output_scale` above. Its posterior can be
sampled where the data have noise: the diagnostics pass on boston, and on concrete (split 0) after 18 CPU s, with R-hat 1.005 after 63.
Where they have almost none the posterior is so narrow that chains do not converge, and say so: R-hat about 1.8 on yacht after 200 s
(`hmc_wide`, without weights to sample, converges there).
With `hierarchical`, scales per layer and per input are sampled too, log s_l = t ξ and log a_d = t' ξ, which is harder still. With
`fit_prior` the prior is W = Mu + exp(R) ξ with constant biases, its parameters fitted by evidence and a weak hyper-prior before sampling.

Chains start at draws of the prior while the likelihood has a small power, which rises to 1 over `annealing` iterations. The
burn-in ends by a test (`blocks.burn_in`); a chain that is stuck before that restarts at the state of another chain. A chain that is stuck
later is left out of predictions. Both are reported: `chains_restarted`, `chains_excluded`.

`preset=sip_paper` has the settings of the SIP paper's appendix: one chain, 25 leapfrog steps of 5e-5 in the raw weights,
10,000 iterations. They move by about ε L √iterations = 0.13 in each weight, which `trace` reports as
`expected_diffusion`. Deviation: that paper takes the prior that SIP has learned; here evidence has fitted it.
`prior=reference` is the prior of the reference posteriors (`fsibench reference`, protocol `truth`).

Convergence is judged on f at probe inputs on and beside the training rows (weights are not identified: units can be permuted),
on log σ² and on the log-likelihood; `diagnostics_failed` is 1 when the test did not end the burn-in, more than a quarter of the
chains are stuck, R-hat exceeds 1.05, an effective size is below 100, E-BFMI is below 0.3 or more than one transition in a
thousand diverges. HMC is exact for its model: constant noise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.burn_in import restart_stuck
from fsibench.blocks.chain_record import ChainRecord, probe_inputs
from fsibench.blocks.draws import PREDICTION_ROWS, by_rows, normal
from fsibench.blocks.hmc import Sampler, State, Transition
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE
from fsibench.blocks.networks import Nonlinearity
from fsibench.blocks.priors import BNNPrior, make_prior
from fsibench.blocks.single_layer import SingleLayerNetwork
from fsibench.blocks.weight_posterior import BayesianNetwork, IntegratedNetwork, Spreads
from fsibench.contract import Budget, Data, Method
from fsibench.errors import Diverged, UsageError
from fsibench.predictive import Predictive

# Draws kept per chain; beyond it every second one is dropped, so that memory stays bounded.
KEPT_DRAWS = 500
# A quarter of the prior's quarter period: anything shorter is a random walk in the directions that data leave free.
SHORTEST_TRAJECTORY = 0.125 * math.pi
# t and t': the prior sd of the log scales that `hierarchical` samples. Layers keep their size within a factor of about
# two, so that activations neither vanish nor saturate; inputs vary more, for some of them may be irrelevant.
LAYER_SPREAD, INPUT_SPREAD = 0.3, 0.5


@dataclass(frozen=True)
class HMC(Method):
    """Batched-chain Hamiltonian Monte Carlo with function-space convergence diagnostics."""

    name: ClassVar[str] = "hmc"
    paper: ClassVar[str] = "Neal, Bayesian learning for neural networks, 1996; ChEES: Hoffman et al., AISTATS 2021"
    # Every leapfrog step passes over all rows: with more of them the burn-in takes longer than minutes.
    max_rows: ClassVar[int | None] = 5_000
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the appendix of the SIP paper
        "sip_paper": {
            "fit_prior": True, "hierarchical": False, "nonlinearity": "leaky_relu", "num_chains": 1, "step_size": 5e-5, "num_leapfrog": 25, "coordinates": "raw",
            "num_iterations": 10_000, "hidden_layers": 2, "longest_burn_in": 0.0, "annealing": 0, "start_steps": 0, "output_layer": "sampled",
        },
    }  # fmt: skip

    prior: Literal["bnn", "reference"] = "bnn"  # `reference`: that of the reference posteriors, whatever network the options below name
    hierarchical: bool = False  # scales per layer and per input are sampled with the weights
    fit_prior: bool = False  # means and scales of all weights by evidence, before sampling; needs hierarchical=false
    hidden_units: int = 50
    hidden_layers: int = 1
    # Given the layers below, the output weights are those of a linear model: integrated out, only the rest is sampled.
    output_layer: Literal["integrated", "sampled"] = "integrated"
    nonlinearity: Nonlinearity = "tanh"
    num_chains: int = 6
    longest_burn_in: float = 0.5  # share of the budget; a burn-in that no test has ended by then fails the diagnostics
    annealing: int = 50  # iterations over which the likelihood's power rises to 1
    start_steps: int = 0  # of Adam, for the second half of the chains
    coordinates: Literal["whitened", "raw"] = "whitened"  # in which the mass matrix is the identity
    step_size: float | None = None  # None: adapted
    num_leapfrog: int | None = None  # None: adapted
    max_leapfrog: int = 512
    trajectory: float | None = 1.2  # mean length in units of the prior's sd; None: adapted (ChEES)
    target_acceptance: float = 0.8
    num_iterations: int | None = None  # after the warm-up; None: until the budget ends
    output_scale: float = 1.0  # of the output layer's weights, in units of 1/√fan_in
    noise_centre: float = -3.2  # c: a noise sd of 0.2
    noise_spread: float = 2.0  # d
    prior_steps: int = 2000  # at most, of `fit_prior`
    num_test_draws: int = 500

    def __post_init__(self) -> None:
        if self.coordinates == "raw" and self.output_layer == "integrated":
            raise UsageError("coordinates=raw concerns all weights; it needs output_layer=sampled.")
        if self.prior == "reference" and (self.fit_prior or self.hierarchical):
            raise UsageError("prior=reference is fixed; it goes with neither fit_prior nor hierarchical.")
        if self.fit_prior and self.hierarchical:
            raise UsageError("fit_prior sets the scales that hierarchical=true samples; give hierarchical=false.")

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Chains]:
        network = self.network(train, budget, generator)
        network.temper(0.0 if self.annealing and self.longest_burn_in else 1.0)
        start = starting_points(network, self.num_chains, self.start_steps, budget, generator)
        mass = network.raw_inverse_mass() if self.coordinates == "raw" else None
        sampler = Sampler(
            network.potential, start, generator, mass, self.step_size, self.num_leapfrog, self.target_acceptance,
            shortest_length=SHORTEST_TRAJECTORY, max_leapfrog=self.max_leapfrog, length=self.trajectory,
            gradient=network.gradient,
        )  # fmt: skip
        chains = Chains(self, network, sampler, generator)
        if not self.longest_burn_in:
            chains.begin_sampling()
        while self.num_iterations is None or chains.draws.num_kept < self.num_iterations:
            if sampler.warming:
                self.warm_up(chains, budget)
            else:
                chains.record(sampler.advance())
            yield chains

    def warm_up(self, chains: Chains, budget: Budget) -> None:
        """One iteration before draws count: first the likelihood's power rises to 1, then the test of `BurnIn` has to pass."""
        sampler, network = chains.sampler, chains.network
        if network.power < 1.0:
            network.temper(min(1.0, (sampler.iteration + 1) / self.annealing))
            sampler.state = State.at(sampler.state.position, network.potential)
            if network.power == 1.0:
                sampler.restart_step_size()
        moved = sampler.advance()
        chains.record(moved)
        if network.power == 1.0 and chains.draws.burn_in.record(log_likelihood(moved.state), moved.acceptance):
            restart_stuck(chains.draws.burn_in, sampler, chains.generator)
        if chains.draws.burn_in.settled or budget.fraction >= self.longest_burn_in:
            network.temper(1.0)
            sampler.state = State.at(sampler.state.position, network.potential)
            chains.begin_sampling()

    def network(self, train: Data, budget: Budget, generator: torch.Generator) -> BayesianNetwork:
        """The energy of the weights, with the prior that the options describe."""
        prior = make_prior(
            self.prior, train.x, generator, hidden=(self.hidden_units,) * self.hidden_layers, mean_scale=0.0, log_scale=None,
            bias_scale=0.3 if self.fit_prior else 0.0, bias_log_scale=None if self.fit_prior else 0.0,
            nonlinearity=self.nonlinearity,
        )  # fmt: skip
        assert isinstance(prior, BNNPrior)
        if self.fit_prior:
            prior.fit_evidence(train.x, train.y, generator, self.prior_steps, lambda: budget.fraction > 0.5)
        elif self.prior == "bnn":
            with torch.no_grad():
                prior.log_scales[-prior.widths[-2] :] += math.log(self.output_scale)
        spreads = Spreads(self.hierarchical, LAYER_SPREAD, INPUT_SPREAD, self.noise_centre, self.noise_spread)
        kind = IntegratedNetwork if self.output_layer == "integrated" else BayesianNetwork
        if kind is IntegratedNetwork and len(prior.widths) == 3 and prior.nonlinearity == "tanh" and not self.fit_prior:
            kind = SingleLayerNetwork
        return kind(prior, train.x, train.y, spreads)


def starting_points(
    network: BayesianNetwork, num_chains: int, steps: int, budget: Budget, generator: torch.Generator
) -> Tensor:
    """Dispersed starts [C, P]: draws of the prior, the second half of them after `steps` of Adam on U (with annealing: on
    the tempered U), or fewer when a tenth of the budget is spent.

    The noise starts at the size of the residuals: misfits of many standard deviations would throw chains far out.
    """
    xi = normal(generator, num_chains, network.num_parameters, like=network.x)
    misfit = (network.functions(network.x, xi) - network.y).square().mean(1)  # [C]
    log_misfit = misfit.clamp_min(MINIMUM_NOISE_VARIANCE).log()
    xi[:, -1] = (log_misfit - network.spreads.noise_centre) / network.spreads.noise
    xi = network.sampled_part(xi)
    optimised = xi[num_chains // 2 :].clone().requires_grad_()
    adam = torch.optim.Adam([optimised], lr=0.02)
    for _ in range(steps):
        if budget.fraction > 0.1:
            break
        _, gradient = network.potential(optimised.detach())
        optimised.grad = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        adam.step()
    return torch.cat([xi[: num_chains // 2], optimised.detach()])


def log_likelihood(state: State) -> Tensor:
    """Of what is sampled, up to a constant: [C] in float64."""
    return 0.5 * state.position.double().square().sum(1) - state.potential


class Chains:
    """What the chains have visited: predictions pool all that moved, with equal weight."""

    def __init__(self, options: HMC, network: BayesianNetwork, sampler: Sampler, generator: torch.Generator) -> None:
        self.options, self.network, self.sampler, self.generator = options, network, sampler, generator
        self.recent: deque[Tensor] = deque(maxlen=50)  # of the warm-up
        self.kept: list[Tensor] = []  # of the sampling phase, thinned
        self.thinning, self.acceptance = 1, math.nan
        self.draws = ChainRecord(len(sampler.state.potential))
        self.probes = probe_inputs(network.x, generator)

    def begin_sampling(self) -> None:
        self.sampler.stop_adapting()  # `recent` serves predictions until the first draw that counts

    def record(self, moved: Transition) -> None:
        if not bool(torch.isfinite(moved.state.potential).any()):
            raise Diverged("no chain has a finite energy")
        position = self.network.completed(moved.state.position, self.generator)
        self.acceptance = moved.acceptance.mean().item()
        if self.sampler.warming:
            self.recent.append(position)
            return
        if self.draws.num_kept % self.thinning == 0:
            self.kept.append(position)
        if len(self.kept) > KEPT_DRAWS:
            self.kept, self.thinning = self.kept[::2], 2 * self.thinning
        self.draws.add(moved, self.watched(position, moved.state))

    def watched(self, position: Tensor, state: State) -> Tensor:
        """f at the probes, log σ², and up to a constant the log-likelihood of what is sampled: [C, Q] in float64."""
        f = self.network.functions(self.probes, position).double()
        log_noise = self.network.noise(position).double().log()
        return torch.cat([f, log_noise[:, None], log_likelihood(state)[:, None]], 1)

    def pooled(self) -> Tensor:
        """At most `num_test_draws` parameter vectors, evenly spread over chains and iterations: [S, P]."""
        visited = torch.stack(self.kept or list(self.recent))[:, self.draws.moving()]
        draws = visited.transpose(0, 1).flatten(0, 1)  # chain by chain
        count = min(len(draws), self.options.num_test_draws)
        return draws[torch.linspace(0, len(draws) - 1, count, device=draws.device).round().long()]

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        xi = self.pooled()
        loc = by_rows(lambda rows: self.network.functions(rows, xi), x, PREDICTION_ROWS)
        return Predictive(loc, self.network.noise(xi).sqrt()[:, None])

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        xi = self.pooled()
        chosen = xi[torch.randint(len(xi), (num_draws,), generator=generator, device=x.device)]
        return by_rows(lambda rows: self.network.functions(rows, chosen), x, PREDICTION_ROWS)

    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        xi = normal(generator, num_draws, self.network.num_parameters, like=x)
        return by_rows(lambda rows: self.network.functions(rows, xi), x)

    def trace(self) -> dict[str, float | Tensor]:
        current = self.sampler.state.position
        return {
            "noise": self.network.noise(current).mean().sqrt().item(),
            "acceptance": self.acceptance,
            "step_size": self.sampler.step_size,
            "leapfrog_steps": self.sampler.trajectory / self.sampler.step_size,
            "expected_diffusion": self.sampler.trajectory * math.sqrt(self.sampler.iteration),
            "burn_in": float(self.sampler.iteration - self.draws.num_kept),
            **self.draws.trace(),
        }
