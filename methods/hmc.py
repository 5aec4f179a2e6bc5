"""Hamiltonian Monte Carlo over the weights of a Bayesian neural network, judged by its function values.

Neal: Bayesian learning for neural networks, 1996. The posterior of weights w, scales s and noise σ is sampled with an
exact Metropolis test, full batches and many chains at once (`blocks.hmc`):

    U = ½/σ² Σ_n (y_n − f_w(x_n))² + N/2 log σ² − log p(w, s, σ)

Everything is sampled in coordinates ξ whose prior is N(0, I), so that one step size suits all layers and a quarter
period of the prior, π/2, is a natural first trajectory length:

    W_l = s_l a_d ξ/√fan_in,   b = ξ,   log s_l = t ξ,   log a_d = t' ξ,   log σ² = c + d ξ

Priors: `hierarchical` as above, with a scale per layer and per input (the default: like the length scales of a
Gaussian process they let data decide which inputs matter), `gaussian` with all scales 1, and `sip`, the Bayesian
network prior that SIP has learned on the same rows: W = Mu + exp(R) ξ with point-valued biases, as in the SIP paper.
That paper's settings are `preset=seed`: one chain, 25 leapfrog steps of 5e-5 in the raw weights, 10,000 iterations.
They move by about ε L √iterations = 0.13 in each weight, which `trace` reports as `expected_diffusion`.

Half of the chains start at draws of the prior, half after a short optimisation from other draws. Convergence is
judged on f at probe inputs on and beside the training rows (weights are not identified: units can be permuted),
on log σ² and on the log-likelihood; `diagnostics_failed` is 1 when R-hat exceeds 1.05, an effective size is below 100,
E-BFMI is below 0.3 or more than one transition in a thousand diverges. HMC is exact for its model: constant noise.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks import diagnostics
from fsibench.blocks.hmc import Sampler, Transition
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE
from fsibench.blocks.networks import SLOPE, num_weights, split_weights, weight_shapes
from fsibench.contract import Budget, Data, Method
from fsibench.errors import Diverged
from fsibench.predictive import Predictive

CHUNK_ROWS = 200
# Draws kept per chain; beyond it every second one is dropped, so that memory stays bounded.
KEPT_DRAWS = 500
# A quarter of the prior's quarter period: anything shorter is a random walk in the directions that data leave free.
SHORTEST_TRAJECTORY = 0.125 * math.pi


@dataclass(frozen=True)
class HMC(Method):
    """Batched-chain Hamiltonian Monte Carlo with function-space convergence diagnostics."""

    name: ClassVar[str] = "hmc"
    paper: ClassVar[str] = "Neal, Bayesian learning for neural networks, 1996; ChEES: Hoffman et al., AISTATS 2021"
    max_rows: ClassVar[int | None] = 15_000  # every leapfrog step passes over all rows
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # the SIP paper's appendix
        "seed": {
            "prior": "sip", "num_chains": 1, "step_size": 5e-5, "num_leapfrog": 25, "coordinates": "raw",
            "num_iterations": 10_000, "warm_up": 0.0, "start_steps": 0,
        },
    }  # fmt: skip

    prior: Literal["hierarchical", "gaussian", "sip"] = "hierarchical"
    hidden_units: int = 50
    hidden_layers: int = 1
    activation: Literal["tanh", "leaky_relu"] = "tanh"  # prior=sip always takes the leaky ReLU of that prior
    num_chains: int = 8
    warm_up: float = 0.3  # share of the budget
    start_steps: int = 300  # of Adam, for the second half of the chains
    coordinates: Literal["whitened", "raw"] = "whitened"  # in which the mass matrix is the identity
    step_size: float | None = None  # None: adapted
    num_leapfrog: int | None = None  # None: adapted
    max_leapfrog: int = 256
    target_acceptance: float = 0.8
    num_iterations: int | None = None  # after the warm-up; None: until the budget ends
    layer_spread: float = 0.3  # t, prior sd of the log scale of a layer
    input_spread: float = 0.5  # t', of an input
    noise_centre: float = -3.2  # c: a noise sd of 0.2
    noise_spread: float = 2.0  # d
    sip_steps: int = 2000  # of training for prior=sip
    num_test_draws: int = 500

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Chains]:
        network = self.network(train, budget, generator)
        start = starting_points(network, self.num_chains, self.start_steps, budget, generator)
        mass = network.raw_inverse_mass() if self.coordinates == "raw" else None
        sampler = Sampler(
            network.potential, start, generator, mass, self.step_size, self.num_leapfrog, self.target_acceptance,
            shortest_length=SHORTEST_TRAJECTORY, max_leapfrog=self.max_leapfrog,
        )  # fmt: skip
        chains = Chains(self, network, sampler, generator)
        refreshed = False
        while self.num_iterations is None or chains.num_kept < self.num_iterations:
            if sampler.warming and not refreshed and budget.fraction > 0.5 * self.warm_up:
                sampler.restart_step_size()
                refreshed = True
            if sampler.warming and budget.fraction >= self.warm_up:
                chains.begin_sampling()
            chains.record(sampler.advance())
            yield chains

    def network(self, train: Data, budget: Budget, generator: torch.Generator) -> BayesianNetwork:
        if self.prior == "sip":
            return learned_by_sip(self, train, budget, generator)
        widths = (train.num_inputs, *([self.hidden_units] * self.hidden_layers), 1)
        scales = torch.cat([
            torch.full((fan_in * fan_out,), fan_in**-0.5) for fan_in, fan_out in weight_shapes(widths)
        ])
        biases = torch.zeros(sum(widths[1:]))
        hierarchical = self.prior == "hierarchical"
        means = torch.zeros_like(scales)
        return BayesianNetwork(self, train, widths, means, scales, biases, biases + 1.0, self.activation, hierarchical)


def learned_by_sip(options: HMC, train: Data, budget: Budget, generator: torch.Generator) -> BayesianNetwork:
    """The model whose prior SIP learns, at its own size (2 × 50 units): at most `sip_steps` steps of it, and at most half of the budget."""
    sip = importlib.import_module("fsibench.methods.sip").SIP(prior="bnn")
    steps = Budget(steps=options.sip_steps)
    for model in sip.fit(train, steps, generator):  # noqa: B007
        steps.steps_done += 1
        if steps.exhausted or budget.fraction > 0.5:
            break
    prior = model.prior
    biases = prior.biases.detach()
    means, scales = prior.means.detach(), prior.log_scales.detach().exp()
    return BayesianNetwork(
        options, train, prior.widths, means, scales, biases, torch.zeros_like(biases), "leaky_relu", hierarchical=False
    )


class BayesianNetwork:
    """log p(y, ξ) and its gradient for a batch of parameter vectors ξ = [weights | biases | log scales | log noise].

    Weights are means + scales · (their factors) · ξ, biases bias_means + bias_scales · ξ; a bias scale of zero makes
    biases constants. Gradients are written out: half of the time of an autograd tape.
    """

    def __init__(
        self,
        options: HMC,
        train: Data,
        widths: tuple[int, ...],
        means: Tensor,
        scales: Tensor,
        bias_means: Tensor,
        bias_scales: Tensor,
        activation: str,
        hierarchical: bool,
    ) -> None:
        self.options, self.train, self.widths = options, train, widths
        self.means, self.scales = means.to(train.x), scales.to(train.x)
        self.bias_means, self.bias_scales = bias_means.to(train.x), bias_scales.to(train.x)
        self.activation, self.hierarchical = activation, hierarchical
        num_layers = len(widths) - 1
        self.num_scales = num_layers + widths[0] if hierarchical else 0
        self.sizes = [num_weights(widths), sum(widths[1:]), self.num_scales, 1]
        self.num_parameters = sum(self.sizes)

    def raw_inverse_mass(self) -> Tensor:
        """In terms of ξ, the inverse mass 1/scale² that is the identity for the weights themselves."""
        fixed = self.bias_scales == 0
        bias_mass = torch.where(fixed, torch.ones_like(self.bias_scales), self.bias_scales.clamp_min(1e-30) ** -2)
        others = torch.ones(self.num_scales + 1, dtype=self.scales.dtype, device=self.scales.device)
        return torch.cat([self.scales**-2, bias_mass, others])

    # Parameters ---------------------------------------------------------------------------------------------------

    def unpack(self, xi: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor, Tensor]:
        """Scaled noise-to-weight factors and weights [C, fan_in, fan_out], biases [C, 1, fan_out], e^λ and σ² [C]."""
        w, b, s, n = torch.split_with_sizes(xi, self.sizes, dim=1)
        factors = split_weights(self.scales.expand_as(w), self.widths)
        if self.hierarchical:
            layer, per_input = s[:, : len(self.widths) - 1], s[:, len(self.widths) - 1 :]
            layer = torch.exp(self.options.layer_spread * layer)  # [C, L]
            factors = [factor * layer[:, index, None, None] for index, factor in enumerate(factors)]
            factors[0] = factors[0] * torch.exp(self.options.input_spread * per_input)[:, :, None]
        centres = split_weights(self.means, self.widths)
        noises = split_weights(w, self.widths)
        weights = [torch.addcmul(m, f, e) for m, f, e in zip(centres, factors, noises, strict=True)]
        biases = torch.split_with_sizes(self.bias_means + self.bias_scales * b, list(self.widths[1:]), dim=1)
        exponential = torch.exp(self.options.noise_centre + self.options.noise_spread * n[:, 0].double())  # e^λ, [C]
        return factors, weights, [bias[:, None] for bias in biases], exponential, exponential + MINIMUM_NOISE_VARIANCE

    def forward(self, x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> list[Tensor]:
        """Inputs of every layer and last the output [C, N, 1]."""
        outputs = [x.expand(len(weights[0]), *x.shape)]
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            h = torch.baddbmm(bias, outputs[-1], weight)
            if layer < len(weights) - 1:
                h = h.tanh_() if self.activation == "tanh" else torch.nn.functional.leaky_relu_(h, SLOPE)
            outputs.append(h)
        return outputs

    def functions(self, x: Tensor, xi: Tensor) -> Tensor:
        """f(x) of each parameter vector: [C, N]."""
        _, weights, biases, _, _ = self.unpack(xi)
        return self.forward(x, weights, biases)[-1].squeeze(-1)

    def noise(self, xi: Tensor) -> Tensor:
        """σ² of each parameter vector: [C]."""
        return self.unpack(xi)[-1].to(xi.dtype)

    # Energy -------------------------------------------------------------------------------------------------------

    def potential(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """U(ξ) [C] in float64 and ∇U [C, P]."""
        factors, weights, biases, exponential, noise = self.unpack(xi)
        outputs = self.forward(self.train.x, weights, biases)
        residual = outputs[-1] - self.train.y[:, None]  # [C, N, 1]
        squares = residual.double().square().sum((1, 2))  # [C]
        N = len(self.train)
        U = 0.5 * squares / noise + 0.5 * N * noise.log() + 0.5 * xi.double().square().sum(1)
        # ∂U/∂f = (f − y)/σ²;  ∂U/∂λ = (N/(2σ²) − Σ(y − f)²/(2σ⁴)) e^λ
        g = residual / noise.to(residual.dtype)[:, None, None]
        noise_gradient = 0.5 * (N / noise - squares / noise.square()) * exponential * self.options.noise_spread
        weight_gradients, bias_gradients = self.backward(g, outputs, weights)
        parts = [(g * f).flatten(1) for g, f in zip(weight_gradients, factors, strict=True)]
        parts += [self.bias_scales * torch.cat(bias_gradients, 1)]
        parts += self.scale_gradients(weight_gradients, weights)
        parts += [noise_gradient[:, None].to(xi.dtype)]
        return U, torch.cat(parts, 1) + xi

    def backward(self, g: Tensor, outputs: list[Tensor], weights: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """∂U/∂W_l [C, fan_in, fan_out] and ∂U/∂b_l [C, fan_out], from ∂U/∂f = g [C, N, 1]."""
        weight_gradients, bias_gradients = [], []
        for layer in range(len(weights) - 1, -1, -1):
            weight_gradients.append(torch.bmm(outputs[layer].mT, g))
            bias_gradients.append(g.sum(1))
            if layer == 0:
                break
            g = g * weights[layer].mT if g.shape[-1] == 1 else torch.bmm(g, weights[layer].mT)
            if self.activation == "tanh":
                g = torch.ops.aten.tanh_backward(g, outputs[layer])
            else:
                g = torch.ops.aten.leaky_relu_backward(g, outputs[layer], SLOPE, True)
        return weight_gradients[::-1], bias_gradients[::-1]

    def scale_gradients(self, weight_gradients: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        """∂U/∂ξ of the log scales: W is proportional to e^(t ξ), so the derivative is t Σ ∂U/∂W · W."""
        if not self.hierarchical:
            return []
        products = [gradient * weight for gradient, weight in zip(weight_gradients, weights, strict=True)]
        layers = torch.stack([product.sum((1, 2)) for product in products], 1)  # [C, L]
        return [self.options.layer_spread * layers, self.options.input_spread * products[0].sum(2)]


def starting_points(
    network: BayesianNetwork, num_chains: int, steps: int, budget: Budget, generator: torch.Generator
) -> Tensor:
    """Dispersed starts [C, P]: draws of the prior, the second half of them after `steps` of Adam on U, or fewer when
    a tenth of the budget is spent.

    The noise starts at the size of the residuals: misfits of many standard deviations would throw chains far out.
    """
    shape = (num_chains, network.num_parameters)
    xi = torch.randn(shape, generator=generator, dtype=network.train.x.dtype, device=network.train.x.device)
    misfit = (network.functions(network.train.x, xi) - network.train.y).square().mean(1)  # [C]
    log_misfit = misfit.clamp_min(MINIMUM_NOISE_VARIANCE).log()
    xi[:, -1] = (log_misfit - network.options.noise_centre) / network.options.noise_spread
    optimised = xi[num_chains // 2 :].clone().requires_grad_()
    adam = torch.optim.Adam([optimised], lr=0.02)
    for _ in range(steps):
        if budget.fraction > 0.1:
            break
        _, gradient = network.potential(optimised.detach())
        optimised.grad = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        adam.step()
    return torch.cat([xi[: num_chains // 2], optimised.detach()])


class Chains:
    """What the chains have visited: predictions pool all of them with equal weight."""

    def __init__(self, options: HMC, network: BayesianNetwork, sampler: Sampler, generator: torch.Generator) -> None:
        self.options, self.network, self.sampler = options, network, sampler
        self.recent: deque[Tensor] = deque(maxlen=50)  # of the warm-up
        self.kept: list[Tensor] = []  # of the sampling phase, thinned
        self.thinning, self.num_kept, self.divergences = 1, 0, 0.0
        self.acceptance = math.nan
        self.histories: list[Tensor] = []  # quantities under watch, [C, Q] each
        self.energies: list[Tensor] = []
        self.probes = probe_inputs(network.train, generator)

    def begin_sampling(self) -> None:
        self.sampler.stop_adapting()
        self.recent.clear()

    def record(self, moved: Transition) -> None:
        position = moved.state.position
        if not bool(torch.isfinite(moved.state.potential).any()):
            raise Diverged("no chain has a finite energy")
        self.acceptance = moved.acceptance.mean().item()
        if self.sampler.warming:
            self.recent.append(position)
            return
        if self.num_kept % self.thinning == 0:
            self.kept.append(position)
        if len(self.kept) > KEPT_DRAWS:
            self.kept, self.thinning = self.kept[::2], 2 * self.thinning
        self.num_kept += 1
        self.divergences += moved.divergent.double().sum().item()
        self.energies.append(moved.energy)
        self.histories.append(self.watched(position, moved.state.potential))

    def watched(self, position: Tensor, potential: Tensor) -> Tensor:
        """f at the probes, log σ², and the log-likelihood up to a constant: [C, Q] in float64."""
        f = self.network.functions(self.probes, position).double()
        log_noise = self.network.noise(position).double().log()
        log_likelihood = 0.5 * position.double().square().sum(1) - potential
        return torch.cat([f, log_noise[:, None], log_likelihood[:, None]], 1)

    def pooled(self) -> Tensor:
        """At most `num_test_draws` parameter vectors, evenly spread over chains and iterations: [S, P]."""
        draws = torch.stack(self.kept or list(self.recent)).transpose(0, 1).flatten(0, 1)  # chain by chain
        count = min(len(draws), self.options.num_test_draws)
        return draws[torch.linspace(0, len(draws) - 1, count, device=draws.device).round().long()]

    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        xi = self.pooled()
        loc = torch.cat([self.network.functions(rows, xi) for rows in x.split(CHUNK_ROWS)], 1)
        return Predictive(loc, self.network.noise(xi).sqrt()[:, None])

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        xi = self.pooled()
        chosen = torch.randint(len(xi), (num_draws,), generator=generator, device=x.device)
        return torch.cat([self.network.functions(rows, xi[chosen]) for rows in x.split(CHUNK_ROWS)], 1)

    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        shape = (num_draws, self.network.num_parameters)
        xi = torch.randn(shape, generator=generator, dtype=x.dtype, device=x.device)
        return torch.cat([self.network.functions(rows, xi) for rows in x.split(CHUNK_ROWS)], 1)

    def trace(self) -> dict[str, float | Tensor]:
        current = self.sampler.state.position
        explained: dict[str, float | Tensor] = {
            "noise": self.network.noise(current).mean().sqrt().item(),
            "acceptance": self.acceptance,
            "step_size": self.sampler.step_size,
            "leapfrog_steps": self.sampler.trajectory / self.sampler.step_size,
            "expected_diffusion": self.sampler.trajectory * math.sqrt(self.sampler.iteration),
            "draws": float(self.num_kept * len(current)),
            "diagnostics_failed": 1.0,
        }
        if self.num_kept >= 8:  # four per half chain are the least that a variance needs to mean anything
            explained.update(self.convergence())
        return explained

    def convergence(self) -> dict[str, float | Tensor]:
        """The diagnostics of the draws so far, each at its worst over the functions under watch."""
        history = torch.stack(self.histories)  # [T, C, Q]
        rhat = diagnostics.rhat(history)  # [Q]
        bulk, tail = diagnostics.bulk_ess(history), diagnostics.tail_ess(history)
        ebfmi = diagnostics.ebfmi(torch.stack(self.energies)).min().item()
        divergent_share = self.divergences / (self.num_kept * history.shape[1])
        functions = slice(0, len(self.probes))
        worst = {
            "rhat": rhat[functions].max().item(),
            "rhat_noise": rhat[-2].item(),
            "rhat_log_likelihood": rhat[-1].item(),
            "ess_bulk": torch.nan_to_num(bulk[functions]).min().item(),
            "ess_tail": torch.nan_to_num(tail[functions]).min().item(),
            "ebfmi": ebfmi,
            "divergences": self.divergences,
        }
        passed = (
            max(worst["rhat"], worst["rhat_noise"], worst["rhat_log_likelihood"]) <= 1.05
            and min(worst["ess_bulk"], worst["ess_tail"]) >= 100.0
            and ebfmi >= 0.3
            and divergent_share <= 1e-3
        )
        return {**worst, "diagnostics_failed": 0.0 if passed else 1.0}


def probe_inputs(train: Data, generator: torch.Generator) -> Tensor:
    """Where functions are watched: 50 training rows, and 50 more moved by half a standard deviation in every input,
    about as far as a new row is from its nearest training row."""
    rows = torch.randint(len(train), (2, 50), generator=generator, device=train.x.device)
    moved = torch.randn(50, train.num_inputs, generator=generator, dtype=train.x.dtype, device=train.x.device)
    return torch.cat([train.x[rows[0]], train.x[rows[1]] + 0.5 * moved])
