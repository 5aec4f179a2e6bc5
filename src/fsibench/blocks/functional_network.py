"""A Bayesian network as the posterior process of functional variational inference: what fBNN and its variants share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fsibench.blocks.draws import Box
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.priors import BNNPrior, Prior, make_prior
from fsibench.blocks.training import leaf
from fsibench.predictive import Predictive

# Of the prior network's biases, constants that are drawn once: the size of a standardised input, so that units bend
# at different places of its range.
BIAS_SCALE = 1.0


def process_prior(
    name: str,
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
    hidden: tuple[int, ...],
    scale: float | None,
    stop: Callable[[], bool],
) -> Prior:
    """The prior p that a posterior process is compared with; no gradient reaches it later.

    Of a Bayesian network the one factor on all scales is `scale`, or the one of highest evidence; a Gaussian process is
    fitted by type-II maximum likelihood; other priors, and networks with nothing to learn, stay as they start.
    """
    prior = make_prior(name, x, generator, hidden=hidden, mean_scale=0.0, log_scale=None, bias_scale=BIAS_SCALE)
    if not isinstance(prior, BNNPrior) or not prior.parameters:  # the latter: a fixed prior
        if name == "gp":
            prior.fit_evidence(x, y, generator, max_steps=0, stop=stop)
    elif scale is None:
        prior.fit_scale(x, y, generator)
    else:
        with torch.no_grad():
            prior.log_scales += math.log(scale)
    return prior


class FunctionalNetwork:
    """q: a network with independent Gaussian weights, one weight vector for each function, and the noise of y."""

    def __init__(
        self,
        x: Tensor,
        prior: Prior,
        generator: torch.Generator,
        hidden: tuple[int, ...],
        log_scale: float,
        log_noise: float,
        num_test_draws: int,
    ) -> None:
        self.prior, self.num_test_draws = prior, num_test_draws
        self.box = Box.around(x)  # where measurement points beside the batch come from
        self.q = BNNPrior(x.shape[1], generator, hidden, None, (log_scale, 0.0), 0.0, x.dtype)
        self.log_noise = leaf(x.new_full((1,), log_noise))
        self.last: dict[str, float | Tensor] = {}

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.q.parameters, self.log_noise]

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.q.draw(x, num_draws, generator)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        return Predictive(self.draw(x, self.num_test_draws, generator), noise_variance(self.log_noise).sqrt())

    @torch.no_grad()
    def draw_prior(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        return self.prior.draw(x, num_draws, generator)

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        noise = noise_variance(self.log_noise).sqrt().item()
        return {**self.last, "noise": noise, "weight_scale": self.q.log_scales.exp().mean().item()}
