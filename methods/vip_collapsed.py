"""VIP with its coefficients integrated out and fresh functions at every step: a variant of ours, not the published method.

The model is that of `vip` (Ma, Li, Hernández-Lobato, ICML 2019): S functions of an implicit prior, seen through their mean
m and covariance ΦΦᵀ. There a variational q(a) on one fixed set of functions is trained with the prior's parameters θ.
Here new functions are drawn at every step and the evidence itself is maximised, with a integrated out:

    N/B log N(y_B | m, ΦΦᵀ + σ²I) + log p(θ)

θ cannot adapt to one particular set of functions, which is how a fixed basis over-fits small data. Of a Bayesian network
only the hidden layers are drawn: what the output layer adds to the moments is known (`blocks.networks.process_features`), and
eight networks scatter less than a hundred functions. p(θ) is a Gaussian hyper-prior on the parameters of a network.

Predictions are a mixture over `num_test_bases` sets of functions that are drawn once, each with the exact posterior of its
coefficients given the training rows, at most 20,000 of them. That posterior is renewed inside pulls (`blocks.training.Refresh`): `predict` sees
no training row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fsibench.blocks.draws import some_rows
from fsibench.blocks.evidence import log_evidence
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.linear_process import POSTERIOR_ROWS, Features, MomentPosterior, conditioned, frozen
from fsibench.blocks.priors import BNNPrior, Prior, make_prior, prior_class
from fsibench.blocks.priors.bnn import HYPERPRIOR
from fsibench.blocks.training import Optimiser, Refresh, Schedule, leaf, require_at_least
from fsibench.contract import Between, Budget, Data, Method, Space


@dataclass(frozen=True)
class VIPCollapsed(Method):
    """Moments of fresh prior draws as a Bayesian linear model, trained by its own evidence."""

    name: ClassVar[str] = "vip_collapsed"
    paper: ClassVar[str] = "model of Ma, Li, Hernández-Lobato, Variational implicit processes, ICML 2019"
    variant: ClassVar[str] = "coefficients integrated out, fresh functions at every step, a hyper-prior on θ"
    search: ClassVar[Space] = {
        "num_draws": (4, 8, 16),
        "batch_size": (200, 500, 1000),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "initial_log_noise": Between(-4.0, 0.0),
    }

    prior: str = "bnn"  # any name of `blocks.priors`; others than networks need about 100 draws, 400 at test time
    hidden_units: int = 50
    num_draws: int = 8  # per step: hidden layers of a Bayesian network, functions of other priors
    num_test_draws: int = 20
    num_test_bases: int = 3  # a mixture over so many sets of them
    # Evidence is joint over the batch: the fewer rows, the more the prior alone has to explain them.
    batch_size: int = 1000
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    initial_log_noise: float = -2.0

    def __post_init__(self) -> None:
        prior_class(self.prior)
        require_at_least(2, num_draws=self.num_draws, num_test_draws=self.num_test_draws)
        require_at_least(1, num_test_bases=self.num_test_bases, batch_size=self.batch_size)

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[MomentPosterior]:
        model = CollapsedProcess(self, train, generator)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        rows, refresh = some_rows(len(train), POSTERIOR_ROWS, generator), Refresh()
        for batch in train.batches(self.batch_size, generator):
            loss = -model.objective(batch, generator) / len(train)
            model.last_loss = optimiser.minimise(loss, budget.fraction)
            if refresh.due() or budget.in_last_pull:
                posterior = model.posterior(Data(train.x[rows], train.y[rows]))
            yield posterior


class CollapsedProcess:
    """The prior, the noise, and the draws that predictions are made with."""

    def __init__(self, options: VIPCollapsed, train: Data, generator: torch.Generator) -> None:
        self.options, self.num_data, self.last_loss = options, len(train), math.nan
        hidden = (options.hidden_units,) * 2
        self.prior = make_prior(options.prior, train.x, generator, hidden=hidden, mean_scale=0.0, log_scale=None)
        self.log_noise = leaf(train.x.new_full((1,), options.initial_log_noise))
        self.bases = [self.prior.draw_noise(options.num_test_draws, generator) for _ in range(options.num_test_bases)]

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.prior.parameters, self.log_noise]

    @property
    def noise(self) -> Tensor:
        return noise_variance(self.log_noise)[0]

    def objective(self, batch: Data, generator: torch.Generator) -> Tensor:
        """N/B log N(y | m, ΦΦᵀ + σ²I) + log p(θ); higher is better."""
        draws = self.prior.draw_noise(self.options.num_draws, generator)
        evidence = log_evidence(self.prior, batch.x, batch.y, draws, self.noise)
        return self.num_data / len(batch) * evidence + self.log_hyperprior()

    def log_hyperprior(self) -> Tensor:
        """log p(θ) of a Bayesian network; other priors have none."""
        if not isinstance(self.prior, BNNPrior):
            return self.log_noise.new_zeros(())
        return self.prior.log_hyperprior(*HYPERPRIOR)

    @torch.no_grad()
    def posterior(self, rows: Data) -> MomentPosterior:
        """Predictions of the present θ, conditioned on `rows`."""
        prior, noise = frozen(self.prior), self.noise.item()
        models = [conditioned(features_on(prior, basis), rows.x, rows.y, noise) for basis in self.bases]
        return MomentPosterior(models, prior, {"loss": self.last_loss, "noise": math.sqrt(noise)})


def features_on(prior: Prior, basis: Tensor) -> Features:
    """m and Φ of the draws that belong to `basis`."""
    return lambda x: prior.moments(x, basis)
