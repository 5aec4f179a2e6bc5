"""Monte Carlo dropout: a network that is trained with dropout keeps it when it predicts.

Gal, Ghahramani: Dropout as a Bayesian approximation: representing model uncertainty in deep learning, ICML 2016. Every
weight matrix is q(W) = M diag(z), z Bernoulli with rate p of zeros: inputs and hidden units drop out. With prior length
scale l and noise precision τ, the bound on the evidence is, divided by −τN,

    1/N Σ_n ½ (y_n − f(x_n))² + λ Σ ‖M‖²,   λ = l² (1 − p) / (2 N τ)                                     (their eq. 4, 7)

and the prediction is the mixture over T passes with dropout on, 1/T Σ_t N(y | f_t(x), 1/τ)                     (eq. 8)

p and τ are chosen on validation rows, and a fresh network is trained on all rows with the choice. The first part of
the budget (`search_share`) is the search: one network per rate, all in one batched pass on 80 % of the rows; for each
the τ of highest log-likelihood on the others; the best of them counts.

Deviations: τ is searched on a fine grid where the paper takes a few values for each data set, and so one network serves
all τ of a rate (λ, of the order 1e-7 with l = 0.01, follows the τ found so far). Leaky ReLU in place of ReLU. The
released script minimises the square without its ½, which halves the weight of the decay. Units that are kept are
scaled by 1/(1 − p). Biases decay too. A mask of a test pass is shared by all inputs: passes are functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fsibench.blocks.batched import batched_network, starting_parameters
from fsibench.blocks.draws import by_rows, uniform
from fsibench.blocks.likelihoods import LOG_2PI, MINIMUM_NOISE_VARIANCE
from fsibench.blocks.training import Optimiser, Schedule, leaf, require_at_least
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

# The share of rows that rates and precisions are chosen on, and how many rows and passes are enough to tell them apart.
MOST_VALIDATION_ROWS = 1000
VALIDATION_PASSES = 50


@dataclass(frozen=True)
class Dropout(Method):
    """A network with dropout at test time; rate and precision by validation, then trained on all rows."""

    name: ClassVar[str] = "dropout"
    paper: ClassVar[str] = "Gal, Ghahramani, Dropout as a Bayesian approximation, ICML 2016"
    reproduces: ClassVar[str] = "dropout"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"batch_size": 128, "learning_rate": 1e-3, "schedule": "constant", "num_test_draws": 10_000},
    }
    search: ClassVar[Space] = {
        "hidden_layers": (1, 2, 3),
        "batch_size": (25, 50, 100, 200),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "length_scale": Between(1e-3, 1.0, log=True),
        "search_share": Between(0.2, 0.7),
    }

    rates: tuple[float, ...] = (0.005, 0.01, 0.05, 0.1)
    hidden_layers: int = 1
    hidden_units: int = 50
    batch_size: int = 50
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    length_scale: float = 0.01  # l
    search_share: float = 0.5  # of the budget
    num_test_draws: int = 200  # T

    def __post_init__(self) -> None:
        require_at_least(
            1, hidden_layers=self.hidden_layers, hidden_units=self.hidden_units, batch_size=self.batch_size,
            num_test_draws=self.num_test_draws, rates=len(self.rates),
        )  # fmt: skip
        if not all(0.0 <= rate < 1.0 for rate in self.rates):
            raise ValueError(f"rates are numbers from 0 to less than 1, got {self.rates}")
        if not 0.0 < self.search_share < 1.0:
            raise ValueError(f"search_share lies strictly between 0 and 1, got {self.search_share}")

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[DropoutNetworks]:
        validation, rest = train.held_out(generator, at_most=MOST_VALIDATION_ROWS)
        searched = DropoutNetworks(self, self.rates, train, generator)
        share = self.search_share
        for step, posterior in enumerate(searched.trained(rest, budget, 0.0, share, generator), 1):
            if step & (step - 1) == 0:  # after 1, 2, 4, ... steps
                posterior.choose(validation, generator)
            yield posterior
        searched.choose(validation, generator)
        final = DropoutNetworks(self, (self.rates[searched.chosen],), train, generator)
        final.precisions[0] = searched.precisions[searched.chosen]
        yield from final.trained(train, budget, share, 1.0, generator)


class DropoutNetworks:
    """One network for each rate, the precision found for each, and which of them predicts."""

    def __init__(
        self, options: Dropout, rates: tuple[float, ...], train: Data, generator: torch.Generator
    ) -> None:
        self.options, self.last_loss, self.chosen = options, math.nan, 0
        self.widths = (train.num_inputs, *(options.hidden_units,) * options.hidden_layers, 1)
        self.flat = leaf(starting_parameters(len(rates), self.widths, "leaky_relu", 0.1, generator, train.x.dtype))
        self.keep = 1.0 - torch.tensor(rates, dtype=train.x.dtype, device=train.x.device)  # [R]
        self.precisions = torch.ones_like(self.keep)  # τ

    def trained(
        self, data: Data, budget: Budget, begin: float, end: float, generator: torch.Generator
    ) -> Iterator[DropoutNetworks]:
        """Steps of Adam between two shares of the budget, with a learning-rate schedule of its own; at least one."""
        optimiser = Optimiser([self.flat], self.options.learning_rate, self.options.schedule)
        for batch in data.batches(self.options.batch_size, generator):
            fraction = budget.fraction
            self.last_loss = optimiser.minimise(
                self.loss(batch, len(data), generator), min((fraction - begin) / (end - begin), 1.0)
            )
            yield self
            if end < 1.0 and budget.fraction >= end:
                return

    def loss(self, batch: Data, num_data: int, generator: torch.Generator) -> Tensor:
        """Sum over the networks, which share nothing, of the mean halved square and the decay."""
        f = self.passes(batch.x, self.flat, self.keep, len(batch), generator)  # [R, B]
        # λ = l² (1 − p) / (2 N τ)
        decay = self.options.length_scale**2 * self.keep / (2.0 * num_data * self.precisions)  # [R]
        return 0.5 * (batch.y - f).square().mean(1).sum() + (decay * self.flat.square().sum(1)).sum()

    def passes(self, x: Tensor, flat: Tensor, keep: Tensor, num_masks: int, generator: torch.Generator) -> Tensor:
        """f with dropout, [M, N]: a mask for each row of x, or with `num_masks` = 1 one for all."""
        masks = []
        for width in self.widths[:-1]:
            kept = uniform(generator, len(flat), num_masks, width, like=x) < keep[:, None, None]
            masks.append(kept / keep[:, None, None])
        return batched_network(x, flat, self.widths, masks=masks)[..., 0]

    @torch.no_grad()
    def choose(self, validation: Data, generator: torch.Generator) -> None:
        """The precision of highest validation log-likelihood for each rate, and the best rate."""
        reached = []
        for network in range(len(self.flat)):
            f = self.functions(network, validation.x, VALIDATION_PASSES, generator)
            self.precisions[network], log_likelihood = best_precision(f, validation.y)
            reached.append(log_likelihood)
        self.chosen = max(range(len(reached)), key=reached.__getitem__)

    def functions(self, network: int, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        flat = self.flat[network].expand(num_draws, -1)
        return self.passes(x, flat, self.keep[network].expand(num_draws), 1, generator)  # [T, N]

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        state = generator.get_state()

        def at(rows: Tensor) -> Tensor:
            generator.set_state(state)  # the same masks for every chunk: one function
            return self.functions(self.chosen, rows, num_draws, generator)

        return by_rows(at, x)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, self.options.num_test_draws, generator), self.precisions[self.chosen].rsqrt())

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        return {
            "loss": self.last_loss,
            "rate": 1.0 - self.keep[self.chosen].item(),
            "noise": self.precisions[self.chosen].rsqrt().item(),
        }


def best_precision(f: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """The τ that maximises mean_n log 1/T Σ_t N(y_n | f_t, 1/τ) for passes f [T, N], and that maximum."""
    squares = (y - f).square()
    precisions = torch.logspace(-1.0, -math.log10(MINIMUM_NOISE_VARIANCE), 71, dtype=f.dtype, device=f.device)
    log_likelihoods = torch.stack([
        (torch.logsumexp(-0.5 * tau * squares, 0) - math.log(len(f)) + 0.5 * (tau.log() - LOG_2PI)).mean()
        for tau in precisions
    ])
    best = int(log_likelihoods.argmax())
    return precisions[best], float(log_likelihoods[best])
