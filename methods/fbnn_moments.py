"""fBNN with a KL between Gaussians of equal moments: a variant of ours, not the published method.

The model and the bound are those of `fbnn` (Sun, Zhang, Shi, Grosse, ICLR 2019). Where that estimates the gradient of the KL
by spectral Stein scores, here q and p are taken as Gaussians with the moments of their processes at the measurement points:

    −1/B Σ_n E_q log N(y_n | f(x_n), σ²) + β/N KL[ N(m_q, K_q + g²I) ‖ N(m_p, K_p + g²I) ]

Draws of the hidden layers give the moments without error of the output layer (`blocks.networks.process_features`), so KL and
data term are closed forms; what is not Gaussian in q and p is ignored. Where the prior is a network of the same shape,
q and p share the noise of their hidden layers at every step: the KL of p with itself is 0, not what two sets of draws
differ by (15.6 nats at 50 of them). For prior=gp the moments of p are exact.

The KL at a batch is less than that of the process: with weight 1/N and 100 points the noise is under-estimated the longer
it trains, with 200 hardly, on small tables still. With `stop=validated`, held-out rows choose how far a fit goes and the least
noise of its predictions (`blocks.validated`). Evidence fits the prior before the first step, as in `fbnn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.functional_network import FunctionalNetwork, process_prior
from fsibench.blocks.gaussian import factor, moment_kl
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.linalg import add_to_diagonal, lower_gram
from fsibench.blocks.priors import BNNPrior, GaussianProcessPrior, Prior, prior_class
from fsibench.blocks.stopping import Plan
from fsibench.blocks.training import Optimiser, Schedule, require_at_least, warm_up
from fsibench.blocks.validated import Training, fitted
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive


@dataclass(frozen=True)
class FBNNMoments(Method):
    """Functional variational BNN; the KL between Gaussians with the moments of both processes."""

    name: ClassVar[str] = "fbnn_moments"
    paper: ClassVar[str] = "model of Sun et al., Functional variational Bayesian neural networks, ICLR 2019"
    variant: ClassVar[str] = "KL between Gaussians with the moments of q and p, in place of spectral Stein scores"
    search: ClassVar[Space] = {
        "num_draws": (10, 15, 30, 50),
        "batch_size": (50, 100, 200, 400),
        "num_random": (1, 5, 20),
        "injected_noise": Between(0.001, 0.1, log=True),
        "hidden_layers": (1, 2),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "warm_up": Between(0.0, 0.2),
        "initial_log_scale": Between(-6.0, -1.0),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: str = "bnn"  # any name of `blocks.priors`
    num_draws: int = 15  # of the hidden layers, per step; 50 take three times as long and were no better
    num_test_draws: int = 200
    batch_size: int = 200
    num_random: int = 5
    injected_noise: float = 0.01  # g
    hidden_units: int = 50
    hidden_layers: int = 2
    learning_rate: float = 1.5e-2
    schedule: Schedule = "cosine"
    # How far a fit goes and the least noise of its predictions: found on held-out rows where there are 20 to 2,000; or the whole budget, and as learned.
    stop: Literal["validated", "budget"] = "validated"
    warm_up: float = 0.2
    initial_log_scale: float = -3.0  # of the weights' standard deviations under q
    initial_log_noise: float = -2.0

    def __post_init__(self) -> None:
        prior_class(self.prior)
        require_at_least(2, num_draws=self.num_draws)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[MomentNetwork]:
        hidden, stop = (self.hidden_units,) * self.hidden_layers, lambda: budget.fraction > 1.0 / 3.0
        prior = process_prior(self.prior, train.x, train.y, generator, hidden, scale=None, stop=stop)

        def start() -> MomentTraining:
            return MomentTraining(MomentNetwork(self, train.x, prior, generator))

        yield from fitted(start, self, train, budget, generator, self.warm_up)


class MomentNetwork(FunctionalNetwork):
    """q and its KL to the prior, both as Gaussians."""

    def __init__(self, options: FBNNMoments, x: Tensor, prior: Prior, generator: torch.Generator) -> None:
        hidden = (options.hidden_units,) * options.hidden_layers
        super().__init__(
            x, prior, generator, hidden, options.initial_log_scale, options.initial_log_noise,
            options.num_test_draws,
        )  # fmt: skip
        self.options = options
        self.noise_floor = 0.0  # least noise variance of predictions

    @property
    def learned_noise(self) -> float:
        return noise_variance(self.log_noise).item()

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        noise = noise_variance(self.log_noise).clamp(min=self.noise_floor)
        return Predictive(self.draw(x, self.num_test_draws, generator), noise.sqrt())

    def terms(self, batch: Data, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean expected log-likelihood of the batch, and the KL at batch and random points."""
        points = torch.cat([batch.x, self.box.draw(self.options.num_random, generator)])
        noise = self.q.draw_noise(self.options.num_draws, generator)
        mean, features = self.q.moments(points, noise)
        B = len(batch)
        variance = features[:B].square().sum(1)
        data_term = alpha_energy(batch.y, mean[None, :B], variance, noise_variance(self.log_noise), alpha=0.0).mean()
        g = self.options.injected_noise
        return data_term, moment_kl(mean, features, *self.prior_moments(points, noise, generator), g**2)

    @torch.no_grad()
    def prior_moments(self, points: Tensor, noise: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mean of p and the Cholesky factor of its covariance with g²I added; `noise` is that of q's networks."""
        if isinstance(self.prior, GaussianProcessPrior):
            L = self.prior.process.factor(points, self.options.injected_noise**2)
            return torch.zeros_like(L[0]), L
        prior = self.prior
        shared = isinstance(prior, BNNPrior) and prior.widths == self.q.widths and prior.bias_log_scales is None
        if not shared:
            noise = self.prior.draw_noise(4 * self.options.num_draws, generator)
        mean, features = self.prior.moments(points, noise)
        return mean, factor(add_to_diagonal(lower_gram(features), self.options.injected_noise**2))


class MomentTraining(Training[MomentNetwork]):
    """A network and its optimiser."""

    def steps(self, data: Data, shares: Iterable[float], plan: Plan, generator: torch.Generator) -> Iterator[MomentNetwork]:
        options, model = self.model.options, self.model
        optimiser = Optimiser(model.parameters, options.learning_rate, plan.schedule)
        for share, batch in zip(shares, data.batches(options.batch_size, generator), strict=False):
            self.share = share
            data_term, kl = model.terms(batch, generator)
            loss = warm_up(share, plan.warm_up) / len(data) * kl - data_term
            model.last = {"loss": optimiser.minimise(loss, share), "kl": kl.detach()}
            self.num_steps += 1
            yield model
