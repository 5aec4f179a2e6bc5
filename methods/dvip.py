"""Deep variational implicit processes: layers of linearised implicit processes, one above the other.

Ortega, Rodríguez-Santana, Hernández-Lobato: Deep variational implicit processes, ICLR 2023. Each output d of layer l is a
variational implicit process (`vip`): S functions of the layer's prior, their noise drawn once and kept, give

    f_ld(h) = m_ld(h) + φ_ld(h)ᵀ a_ld,   a_ld ~ N(0, I_S),   q(a_ld) = N(μ_ld, L_ld L_ldᵀ).

An inner layer has as many outputs as there are inputs and adds to them, h_{l+1} = h_l + f_l(h_l); the last layer has one
output, and y = f_L + N(0, σ²). Maximised in all priors, all q and σ² is the doubly stochastic bound

    N/B Σ_n E[ log N(y_n | f_L(h_{L−1,n}), σ²) ] − Σ_ld KL[ q(a_ld) ‖ N(0, I) ],

where the expectation over the last layer is in closed form and one draw per row goes through the inner layers. With one
layer that is `vip` at alpha = 0 without regulariser. The prediction mixes, over draws of the inner coefficients, the Gaussians
of the last layer.

Prior: Bayesian networks with one mean and one scale per layer of weights (`bnn_tied`), as the authors' code has it.
Deviations: outputs of a layer share the prior's parameters but have networks of their own, where theirs are outputs of one
network; e_l of the biases of a layer is one vector for all functions of a prior, theirs has one for each; no noise between
layers (theirs has variance e⁻⁵); leaky ReLU; float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fsibench.blocks.coefficients import cholesky_factor, coefficient_kl
from fsibench.blocks.divergences import alpha_energy
from fsibench.blocks.draws import by_rows, normal
from fsibench.blocks.likelihoods import noise_variance
from fsibench.blocks.priors import Prior, make_prior, prior_class
from fsibench.blocks.training import Optimiser, Schedule, leaf, require_at_least
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.predictive import Predictive

# Values of hidden units at a time, in predictions: 20 MB.
CHUNK_ELEMENTS = 5_000_000


@dataclass(frozen=True)
class DVIP(Method):
    """Layers of variational implicit processes, trained by a doubly stochastic bound."""

    name: ClassVar[str] = "dvip"
    paper: ClassVar[str] = "Ortega et al., Deep variational implicit processes, ICLR 2023"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "layers": 3, "num_draws": 20, "hidden_units": 10, "batch_size": 100, "learning_rate": 1e-3,
            "schedule": "constant", "initial_log_noise": -5.0, "initial_inner_log_scale": math.log(1e-5),
            "num_test_draws": 100,
        },
    }  # fmt: skip
    search: ClassVar[Space] = {
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "batch_size": (50, 100, 200, 500),
        "num_draws": (10, 20, 50),
        "initial_log_noise": Between(-5.0, 0.0),
        "initial_inner_log_scale": Between(-11.0, 0.0),
    }

    layers: int = 2
    prior: str = "bnn_tied"  # any name of `blocks.priors`
    num_draws: int = 20  # S
    hidden_units: int = 10
    batch_size: int = 100
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    initial_log_noise: float = -2.0
    initial_inner_log_scale: float = -5.0  # of the diagonal of L_ld in inner layers
    num_test_draws: int = 50

    def __post_init__(self) -> None:
        prior_class(self.prior)
        require_at_least(2, num_draws=self.num_draws)
        require_at_least(
            1, layers=self.layers, hidden_units=self.hidden_units, batch_size=self.batch_size,
            num_test_draws=self.num_test_draws,
        )  # fmt: skip

    def published_column(self) -> str:
        return f"DVIP-{self.layers}" if self.layers > 1 and self.prior in ("bnn", "bnn_tied") else ""  # one layer is `vip`

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[DeepProcess]:
        model = DeepProcess(self, train, generator)
        optimiser = Optimiser(model.parameters, self.learning_rate, self.schedule)
        for batch in train.batches(self.batch_size, generator):
            model.last_loss = optimiser.minimise(-model.bound(batch, generator) / len(train), budget.fraction)
            yield model


class Layer:
    """D' implicit processes on the same inputs: one prior, basis functions and q(a) for each output."""

    def __init__(
        self, options: DVIP, x: Tensor, num_outputs: int, log_scale: float, generator: torch.Generator
    ) -> None:
        self.shape = (num_outputs, options.num_draws)
        self.prior: Prior = make_prior(options.prior, x, generator, hidden=(options.hidden_units,) * 2)
        self.basis = self.prior.draw_noise(num_outputs * options.num_draws, generator)
        self.q_mean = leaf(x.new_zeros(self.shape))  # μ, [D', S]
        start = log_scale * torch.eye(options.num_draws, dtype=x.dtype, device=x.device)
        self.q_factor = leaf(start.repeat(num_outputs, 1, 1))  # L, with the log of its diagonal, [D', S, S]

    @property
    def parameters(self) -> list[Tensor]:
        return [*self.prior.parameters, self.q_mean, self.q_factor]

    def factor(self) -> Tensor:
        return cholesky_factor(self.q_factor)

    def kl(self) -> Tensor:
        """Σ_d KL[q(a_d) ‖ N(0, I)]"""
        return torch.stack([coefficient_kl(*each) for each in zip(self.q_mean, self.q_factor, strict=True)]).sum()

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """m(x) [D', N] and Φ(x) [D', N, S]."""
        f = self.prior.functions(x, self.basis).view(*self.shape, len(x))
        mean = f.mean(1)
        return mean, ((f - mean[:, None]) / math.sqrt(self.shape[1] - 1)).mT

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(x) under q, [D', N] each."""
        mean, features = self.features(x)
        shift = (features @ self.q_mean[:, :, None])[..., 0]
        return mean + shift, (features @ self.factor()).square().sum(-1)

    def coefficients(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """Draws of a, [T, D', S]."""
        eps = normal(generator, num_draws, *self.shape, like=self.q_mean)
        return self.q_mean + (self.factor() @ eps[..., None])[..., 0]

    def functions(self, h: Tensor, a: Tensor) -> Tensor:
        """f_t(h_t) for inputs [T, N, D], or [N, D] that all draws share, and coefficients [T, D', S]: [T, N, D']."""
        if h.dim() == 2:
            mean, features = self.features(h)
            return mean.mT + torch.einsum("dns,tds->tnd", features, a)
        T, N, _ = h.shape
        mean, features = self.features(h.flatten(0, 1))
        features = features.view(len(features), T, N, -1)
        return mean.view(-1, T, N).permute(1, 2, 0) + torch.einsum("dtns,tds->tnd", features, a)


class DeepProcess:
    """The layers and the noise."""

    def __init__(self, options: DVIP, train: Data, generator: torch.Generator) -> None:
        self.options, self.num_data, self.last_loss = options, len(train), math.nan
        self.inner = [
            Layer(options, train.x, train.num_inputs, options.initial_inner_log_scale, generator)
            for _ in range(options.layers - 1)
        ]
        self.last = Layer(options, train.x, 1, 0.0, generator)
        self.log_noise = leaf(train.x.new_full((1,), options.initial_log_noise))

    @property
    def parameters(self) -> list[Tensor]:
        return [self.log_noise, *(tensor for layer in (*self.inner, self.last) for tensor in layer.parameters)]

    @property
    def noise(self) -> Tensor:
        return noise_variance(self.log_noise)[0]

    def kl(self) -> Tensor:
        return torch.stack([layer.kl() for layer in (*self.inner, self.last)]).sum()

    def bound(self, batch: Data, generator: torch.Generator) -> Tensor:
        """An estimate of the evidence bound of all rows; higher is better."""
        h = batch.x  # [B, D]
        for layer in self.inner:
            mean, variance = layer.moments(h)
            # a fresh draw for each row: h + m + φᵀμ + √v ε; a variance of zero has no derivative under the root
            step = mean + (variance + 1e-12).sqrt() * normal(generator, *mean.shape, like=mean)
            h = h + step.mT
        mean, variance = self.last.moments(h)
        data_term = alpha_energy(batch.y, mean, variance, self.noise, alpha=0.0).sum()
        return self.num_data / len(batch) * data_term - self.kl()

    def hidden(self, x: Tensor, coefficients: list[Tensor], num_draws: int) -> Tensor:
        """Inputs of the last layer for each draw of the inner coefficients, [T, N, D]."""
        h = x  # the first layer sees the same inputs in every draw
        for layer, a in zip(self.inner, coefficients, strict=True):
            h = h + layer.functions(h, a)
        return h if self.inner else x.expand(num_draws, *x.shape)

    def chunk_rows(self, x: Tensor, num_draws: int) -> int:
        """Rows at a time: a row passes all basis functions of all outputs, once for each draw."""
        outputs = x.shape[1] if self.inner else 1
        each = num_draws * outputs * self.options.num_draws * self.options.hidden_units
        return max(1, CHUNK_ELEMENTS // each)

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        T = self.options.num_test_draws if self.inner else 1
        coefficients = [layer.coefficients(T, generator) for layer in self.inner]

        def at(rows: Tensor) -> Tensor:
            h = self.hidden(rows, coefficients, T)
            mean, variance = self.last.moments(h.flatten(0, 1))  # [1, T N]
            return torch.stack([mean.view(T, -1), (variance + self.noise).sqrt().view(T, -1)])

        loc, scale = by_rows(at, x, self.chunk_rows(x, T))
        return Predictive(loc, scale)

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        coefficients = [layer.coefficients(num_draws, generator) for layer in self.inner]
        a = self.last.coefficients(num_draws, generator)

        def at(rows: Tensor) -> Tensor:
            return self.last.functions(self.hidden(rows, coefficients, num_draws), a)[..., 0]

        return by_rows(at, x, self.chunk_rows(x, num_draws))

    @torch.no_grad()
    def trace(self) -> dict[str, float | Tensor]:
        return {"loss": self.last_loss, "kl": self.kl().item(), "noise": self.noise.sqrt().item()}
