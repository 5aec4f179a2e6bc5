"""Deep ensembles: a handful of networks from different starts, and the mixture of what they predict.

Lakshminarayanan, Pritzel, Blundell: Simple and scalable predictive uncertainty estimation using deep ensembles,
NeurIPS 2017. Each of M networks has two outputs, the mean and the variance of y, and minimises the proper score

    −log p_m(y | x) = ½ log σ_m²(x) + (y − μ_m(x))² / (2 σ_m²(x)) + const                                  (their eq. 1)

with σ² = softplus(second output) + 10⁻⁶. The prediction is 1/M Σ_m N(μ_m(x), σ_m²(x)). `noise=homoscedastic` replaces
the second output by one learned variance per member.

Adversarial training, optional in their algorithm 1, adds the score at x' = x + ε · sign(∂ score / ∂x), with ε in units
of the range of each input; `adversarial=0` leaves it out, `preset=paper` has it.

Deviations: all members are trained in one batched pass, so they share batches and differ by their start. The paper stops
after 40 epochs; here training lasts as long as the budget, and members would over-fit small data. So each member leaves
out a tenth of the rows, a different tenth each, and predicts with the parameters that had the best score on
them (`validation_share=0`: all rows and the current parameters). The paper evaluates a Gaussian with the mixture's
moments; here the mixture itself is the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.batched import batched_network, starting_parameters
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE, gaussian_log_density, noise_variance
from fsibench.blocks.training import Optimiser, Schedule, leaf, require_at_least
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

# Rows that a member leaves out, and steps between two looks at them, at most: enough to compare parameters.
MOST_VALIDATION_ROWS = 1000
MOST_STEPS_BETWEEN_LOOKS = 100
# Log noise variance at the start of members with noise=homoscedastic, as the other methods have it.
INITIAL_LOG_NOISE = -2.0


@dataclass(frozen=True)
class Ensemble(Method):
    """Networks from different starts, each with a variance of its own, mixed with equal weights."""

    name: ClassVar[str] = "ensemble"
    paper: ClassVar[str] = "Lakshminarayanan, Pritzel, Blundell, Deep ensembles, NeurIPS 2017"
    reproduces: ClassVar[str] = "deep ensemble"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # The printed rate is 0.1. With standardised rows that does not hold: members leave the data by 50 standard deviations in
        # 1,500 steps (boston, yacht), so it is a tenth of that; `ensemble[preset=paper,learning_rate=0.1]` is as printed.
        "paper": {
            "num_networks": 5, "hidden_layers": 1, "batch_size": 100, "learning_rate": 0.01, "schedule": "constant",
            "adversarial": 0.01, "validation_share": 0.0,
        },
    }  # fmt: skip
    search: ClassVar[Space] = {
        "hidden_layers": (1, 2, 3),
        "batch_size": (25, 50, 100, 200),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "num_networks": (5, 10, 20),
        "validation_share": Between(0.05, 0.3),
    }

    noise: Literal["heteroscedastic", "homoscedastic"] = "heteroscedastic"
    num_networks: int = 10  # M
    hidden_layers: int = 2
    hidden_units: int = 50
    batch_size: int = 50
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    adversarial: float = 0.0  # ε
    validation_share: float = 0.1

    def __post_init__(self) -> None:
        require_at_least(
            1, num_networks=self.num_networks, hidden_layers=self.hidden_layers, hidden_units=self.hidden_units,
            batch_size=self.batch_size,
        )  # fmt: skip
        if not 0.0 <= self.validation_share <= 0.5:
            raise ValueError(f"validation_share is a number from 0 to 0.5, got {self.validation_share}")

    def published_column(self) -> str:
        return self.reproduces if self.noise == "heteroscedastic" else ""

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[Networks]:
        model = Networks(self, train, generator)
        optimiser = Optimiser([model.current], self.learning_rate, self.schedule)
        rows = torch.arange(len(train), device=train.x.device)
        steps_between_looks = min(math.ceil(len(train) / self.batch_size), MOST_STEPS_BETWEEN_LOOKS)
        for step, batch in enumerate(Data(train.x, rows).batches(self.batch_size, generator), 1):
            model.last_loss = optimiser.minimise(model.loss(batch.x, batch.y), budget.fraction)
            if step % steps_between_looks == 0 or step & (step - 1) == 0:  # powers of two: early looks
                model.keep_the_best()
            yield model


class Networks:
    """M networks: their parameters now, and those with which each predicts."""

    def __init__(self, options: Ensemble, train: Data, generator: torch.Generator) -> None:
        self.options, self.train, self.last_loss = options, train, math.nan
        outputs = 2 if options.noise == "heteroscedastic" else 1
        self.widths = (train.num_inputs, *(options.hidden_units,) * options.hidden_layers, outputs)
        M = options.num_networks
        start = starting_parameters(M, self.widths, "leaky_relu", 0.1, generator, train.x.dtype)
        # one more column: λ, the log noise variance of each member, idle when the variance is an output
        self.current = leaf(torch.cat([start, torch.full_like(start[:, :1], INITIAL_LOG_NOISE)], 1))
        self.best = self.current.detach().clone()
        self.best_score = torch.full_like(start[:, 0], math.inf)
        self.left_out = left_out_rows(M, len(train), options.validation_share, generator)  # [M, n]
        self.takes_part = torch.ones(M, len(train), dtype=train.x.dtype, device=train.x.device)
        self.takes_part.scatter_(1, self.left_out, 0.0)
        self.reach = options.adversarial * (train.x.amax(0) - train.x.amin(0)) if options.adversarial else None

    def moments(self, x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """μ_m(x) and σ_m²(x), both [M, N], for x [N, D] or [M, N, D]."""
        output = batched_network(x, parameters[:, :-1], self.widths)
        if self.options.noise == "homoscedastic":
            return output[..., 0], noise_variance(parameters[:, -1:]).expand_as(output[..., 0])
        return output[..., 0], functional.softplus(output[..., 1]) + MINIMUM_NOISE_VARIANCE

    def scores(self, x: Tensor, y: Tensor, parameters: Tensor) -> Tensor:
        """−log p_m(y | x), [M, N]."""
        return -gaussian_log_density(y, *self.moments(x, parameters))

    def loss(self, x: Tensor, rows: Tensor) -> Tensor:
        """Mean score of each member over the rows that it may see, summed over members, for they share nothing."""
        y, weights = self.train.y[rows], self.takes_part[:, rows]  # [B], [M, B]
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1.0)
        score = (self.scores(x, y, self.current) * weights).sum()
        if self.reach is None:
            return score
        return score + (self.scores(self.adversary(x, y), y, self.current) * weights).sum()

    def adversary(self, x: Tensor, y: Tensor) -> Tensor:
        """x' = x + ε sign(∂ score / ∂x) of each member, [M, B, D]."""
        assert self.reach is not None
        x = x.expand(len(self.current), *x.shape).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.scores(x, y, self.current.detach()).sum(), x)
        return (x + self.reach * gradient.sign()).detach()

    @torch.no_grad()
    def keep_the_best(self) -> None:
        """Each member keeps its parameters if they score better than all before on the rows it leaves out."""
        if self.left_out.shape[1] == 0:
            self.best.copy_(self.current)
            return
        score = self.scores(self.train.x[self.left_out], self.train.y[self.left_out], self.current).mean(1)  # [M]
        better = score < self.best_score
        self.best[better] = self.current[better]
        self.best_score = torch.where(better, score, self.best_score)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        mean, variance = self.moments(x, self.best)
        return Predictive(mean, variance.sqrt())

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Members in random order, with repetition where more are asked for than there are."""
        mean, _ = self.moments(x, self.best)
        members = [torch.randperm(len(mean), generator=generator, device=x.device) for _ in range(0, num_draws, len(mean))]
        return mean[torch.cat(members)[:num_draws]]

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        explained: dict[str, float | Tensor] = {"loss": self.last_loss}
        if self.left_out.shape[1]:
            explained["validation_score"] = self.best_score.mean().item()
        if self.options.noise == "homoscedastic":
            explained["noise"] = noise_variance(self.best[:, -1]).mean().sqrt().item()
        return explained


def left_out_rows(num_networks: int, num_data: int, share: float, generator: torch.Generator) -> Tensor:
    """Row numbers [M, n] that each member leaves out: consecutive parts of one permutation, from its start again when it ends."""
    count = min(max(1, round(share * num_data)), MOST_VALIDATION_ROWS, num_data - 1) if share > 0.0 else 0
    order = torch.randperm(num_data, generator=generator, device=generator.device)
    return order[torch.arange(num_networks * count, device=order.device) % num_data].view(num_networks, count)
