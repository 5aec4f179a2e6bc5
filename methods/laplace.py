"""Linearised Laplace: a trained network, a Gaussian around its weights, predictions of the network linearised there.

Daxberger, Kristiadi, Immer, Eschenhagen, Bauer, Hennig: Laplace redux, NeurIPS 2021; Immer, Korzepa, Bauer: Improving
predictions of Bayesian neural nets via local linearization, AISTATS 2021; MacKay, Neural Computation 1992. With the
weights w* of highest posterior density under w ~ N(0, I/δ) and y = f(x; w) + N(0, σ²), and J the Jacobian of f at w*,

    Σ⁻¹ = JᵀJ/σ² + δ I                                        the generalised Gauss-Newton matrix, exact and full
    y | x ~ N( f(x; w*), j(x)ᵀ Σ j(x) + σ² )                                             the linearised prediction

`layers=last` takes the weights of the output layer for random and the others for given. Both hyper-parameters maximise
Laplace's estimate of the evidence, with λ_i the eigenvalues of JᵀJ/σ² and γ = Σ λ_i/(λ_i + δ):

    log p(y) ≈ log p(y | w*) + log p(w*) − ½ log |Σ⁻¹/2π|,   maximal where  δ = γ/‖w*‖²,  σ² = Σ(y − f)²/(N − γ)   (MacKay)

Training and evidence take turns (Immer, Bauer, Fortuin, Rätsch, Khan, ICML 2021): steps of Adam on the posterior density,
and after 1, 4, 16, ... of them and at some shares of the budget a new w*, a new J, new hyper-parameters. Rows enter
through JᵀJ or JJᵀ, whichever is smaller. Everything but the training itself is in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fsibench.blocks.batched import batched_network, starting_parameters
from fsibench.blocks.draws import by_rows, chunks, normal
from fsibench.blocks.jacobians import Linearisation, linearise
from fsibench.blocks.likelihoods import LOG_2PI, MINIMUM_NOISE_VARIANCE
from fsibench.blocks.training import Optimiser, Schedule, leaf, require_at_least
from fsibench.contract import Between, Budget, Data, Method, Space
from fsibench.errors import Diverged
from fsibench.predictive import Predictive

# Shares of the budget at which the posterior is made anew, besides powers of four of the steps.
RENEWALS = (0.25, 0.5, 0.75, 0.95)
PRECISIONS = (1e-4, 1e6)
# Eigenvalues of JJᵀ below this share of the largest are rounding errors.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Laplace(Method):
    """Network with a Gaussian of full Gauss-Newton precision around its weights; hyper-parameters by evidence."""

    name: ClassVar[str] = "laplace"
    paper: ClassVar[str] = "Daxberger et al., Laplace redux, NeurIPS 2021"
    reproduces: ClassVar[str] = "Laplace"
    max_rows: ClassVar[int | None] = 100_000
    search: ClassVar[Space] = {
        "hidden_layers": (1, 2),
        "batch_size": (25, 50, 100, 200),
        "learning_rate": Between(1e-3, 3e-2, log=True),
        "initial_precision": Between(0.01, 10.0, log=True),
        "initial_noise": Between(0.01, 1.0, log=True),
    }

    layers: Literal["all", "last"] = "all"
    hidden_layers: int = 1
    hidden_units: int = 50
    batch_size: int = 25
    learning_rate: float = 0.00438
    schedule: Schedule = "cosine"
    initial_precision: float = 0.159  # δ
    initial_noise: float = 0.21  # σ²

    def __post_init__(self) -> None:
        require_at_least(
            1, hidden_layers=self.hidden_layers, hidden_units=self.hidden_units, batch_size=self.batch_size
        )
        if not (self.initial_precision > 0.0 and self.initial_noise > 0.0):
            raise ValueError("initial_precision and initial_noise must be positive")

    def fit(self, train: Data, budget: Budget, generator: torch.Generator) -> Iterator[LinearisedNetwork]:
        widths = (train.num_inputs, *(self.hidden_units,) * self.hidden_layers, 1)
        flat = leaf(starting_parameters(1, widths, "tanh", 0.1, generator, train.x.dtype))  # [1, P]
        optimiser = Optimiser([flat], self.learning_rate, self.schedule)
        network = Network(flat.detach()[0], widths, self.layers)
        posterior = network.posterior(train, self.initial_precision, self.initial_noise)
        next_step, renewals = 1, list(RENEWALS)
        for step, batch in enumerate(train.batches(self.batch_size, generator), 1):
            f = batched_network(batch.x, flat, widths, "tanh")[0, :, 0]  # [B]
            # −σ²/N log p(y, w) = ½ mean (y − f)² + ½ δσ²/N ‖w‖² + const
            decay = posterior.precision * posterior.noise / len(train)
            loss = 0.5 * (batch.y - f).square().mean() + 0.5 * decay * flat.square().sum()
            value = optimiser.minimise(loss, budget.fraction)
            due = bool(renewals) and budget.fraction >= renewals[0]
            if step == next_step or due:
                network = Network(flat.detach()[0].clone(), widths, self.layers)
                posterior = network.posterior(train, posterior.precision, posterior.noise, value).of_highest_evidence()
                next_step *= 4 if step == next_step else 1
                renewals = [share for share in renewals if share > budget.fraction]
            yield posterior


@dataclass(frozen=True)
class Network:
    """Weights at which to linearise, and which of them are random."""

    flat: Tensor
    widths: tuple[int, ...]
    layers: Literal["all", "last"]

    @property
    def random(self) -> slice:
        """Where the random weights are among the flat parameters: the output layer and its bias come last."""
        return slice(None) if self.layers == "all" else slice(-self.widths[-2] - 1, None)

    def linearised(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x; w*) [N] and J [N, P] in the random weights, float64."""
        linearisation: Linearisation = linearise(x.double(), self.flat.double(), self.widths)
        return linearisation.value, linearisation.jacobian()[:, self.random]

    def posterior(self, train: Data, precision: float, noise: float, loss: float = math.nan) -> LinearisedNetwork:
        """The Gaussian around w* given the training rows."""
        num_random = len(self.flat[self.random])
        if len(train) <= num_random:
            f, J = self.linearised(train.x)
            square = float((train.y - f).square().sum())
            s, U = torch.linalg.eigh(finite(J @ J.mT))  # J = U √s Vᵀ
            kept = s > NEGLIGIBLE * s[-1]
            s, V = s[kept], J.mT @ (U[:, kept] / s[kept].sqrt())
        else:
            square, gram = 0.0, torch.zeros(num_random, num_random, dtype=torch.float64, device=train.x.device)
            for x, y in chunks(train.x, train.y):
                f, J = self.linearised(x)
                gram += J.mT @ J
                square += float((y - f).square().sum())
            s, V = torch.linalg.eigh(finite(gram))
        return LinearisedNetwork(self, s.clamp_min(0.0), V, len(train), square, precision, noise, loss)


def finite(matrix: Tensor) -> Tensor:
    if not bool(torch.isfinite(matrix).all()):
        raise Diverged("the derivatives of the network are not finite")
    return matrix


@dataclass(frozen=True)
class LinearisedNetwork:
    """N(w*, Σ) and what it implies. JᵀJ = V diag(s) Vᵀ with V [P, r], r ≤ P, and Σ = 1/δ in all other directions."""

    network: Network
    s: Tensor  # [r]
    V: Tensor  # [P, r]
    num_data: int
    square: float  # Σ (y − f)² over the training rows
    precision: float  # δ
    noise: float  # σ²
    loss: float

    @property
    def weights(self) -> Tensor:
        return self.network.flat[self.network.random].double()

    def log_evidence(self) -> float:
        """Laplace's estimate, with |Σ⁻¹| = δ^{P − r} Π (δ + s_i/σ²)."""
        r, num_random = len(self.s), len(self.weights)
        log_likelihood = -0.5 * self.num_data * (LOG_2PI + math.log(self.noise)) - 0.5 * self.square / self.noise
        log_prior = 0.5 * num_random * math.log(self.precision) - 0.5 * self.precision * float(self.weights @ self.weights)
        log_determinant = float((self.precision + self.s / self.noise).log().sum())
        return log_likelihood + log_prior - 0.5 * (log_determinant + (num_random - r) * math.log(self.precision))

    def of_highest_evidence(self, iterations: int = 100) -> LinearisedNetwork:
        """The same with δ = γ/‖w*‖² and σ² = Σ(y − f)²/(N − γ), by fixed-point iteration."""
        precision, noise, norm = self.precision, self.noise, float(self.weights @ self.weights)
        for _ in range(iterations):
            gamma = float((self.s / (self.s + precision * noise)).sum())
            precision = min(max(gamma / max(norm, 1e-12), PRECISIONS[0]), PRECISIONS[1])
            noise = max(self.square / max(self.num_data - gamma, 1e-3), MINIMUM_NOISE_VARIANCE)
        return LinearisedNetwork(
            self.network, self.s, self.V, self.num_data, self.square, precision, noise, self.loss
        )

    @property
    def variances(self) -> Tensor:
        """Eigenvalues of Σ along V, [r]."""
        return 1.0 / (self.precision + self.s / self.noise)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean f(x; w*) and variance jᵀΣj of the linearised function, [N] each."""

        def at(rows: Tensor) -> Tensor:
            f, J = self.network.linearised(rows)
            along = J @ self.V  # [N, r]
            outside = (J.square().sum(1) - along.square().sum(1)).clamp_min(0.0) / self.precision
            if len(self.s) == len(self.weights):  # V spans everything, and the difference is rounding error
                outside = torch.zeros_like(outside)
            return torch.stack([f, along.square() @ self.variances + outside])

        mean, variance = by_rows(at, x)
        return mean, variance

    @torch.no_grad()
    def predict(self, x: Tensor, generator: torch.Generator) -> Predictive:
        mean, variance = self.moments(x)
        return Predictive(mean[None].to(x.dtype), (variance + self.noise).sqrt()[None].to(x.dtype))

    @torch.no_grad()
    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """f(x; w*) + J (w − w*) with w − w* = [V √Λ Vᵀ + (I − V Vᵀ)/√δ] ε, ε ~ N(0, I)."""
        eps = normal(generator, num_draws, len(self.weights), like=self.V)
        scale, along = self.precision**-0.5, eps @ self.V  # [S, r]
        step = scale * eps + (along * (self.variances.sqrt() - scale)) @ self.V.mT  # [S, P]

        def at(rows: Tensor) -> Tensor:
            f, J = self.network.linearised(rows)
            return torch.addmm(f, step, J.mT)

        return by_rows(at, x).to(x.dtype)

    def trace(self) -> dict[str, float | Tensor]:
        return {
            "loss": self.loss,
            "noise": self.noise**0.5,
            "prior_scale": self.precision**-0.5,
            "log_evidence": self.log_evidence(),
        }
