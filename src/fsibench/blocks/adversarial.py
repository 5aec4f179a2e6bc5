"""Log-density ratios of implicit distributions, by classification.

A classifier T that separates draws of q (label 1) from draws of p (label 0) with cross-entropy has its optimum at
T = log q − log p. The ratio is then differentiated through the draws only: the classifier is a constant there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fsibench.blocks.divergences import diagonal_gaussian_kl
from fsibench.blocks.draws import normal
from fsibench.blocks.mlp import MLP, mlp_backward, mlp_forward
from fsibench.blocks.networks import activation, through_activation
from fsibench.blocks.training import Optimiser, Schedule, finite_or_diverged

# Added to every variance: draws that have collapsed to a point stay finite.
SMALLEST_VARIANCE = 1e-12


class Discriminator:
    """T: draws [S, M] -> log-ratio [S], a leaky-ReLU network with its own optimiser."""

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        learning_rate: float,
        schedule: Schedule = "constant",
        hidden_units: int = 50,
        weight_scale: float | None = 0.05,
        bias_scale: float = 0.05,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.network = MLP((num_inputs, hidden_units, hidden_units, 1), weight_scale, bias_scale, generator, dtype)
        self._optimiser = Optimiser([self.network.flat], learning_rate, schedule)

    @torch.no_grad()
    def improve(self, first: Tensor, second: Tensor, fraction: float) -> float:
        """One Adam step towards log(first / second) on draws taken as data; returns the cross-entropy before it."""
        return self._step(*self.cross_entropy_gradient(first, second), fraction)

    def cross_entropy_gradient(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """½ [ mean softplus(−T(first)) + mean softplus(T(second)) ], and its gradient in the flat parameters."""
        gradient = torch.empty_like(self.network.flat)
        layers = self.network.layers(self.network.flat)
        inputs, logits = mlp_forward(torch.cat([first, second]), layers)
        value, g = _cross_entropy(logits, len(first))
        mlp_backward(g, layers, inputs, slots=self.network.layers(gradient), wants_x=False)
        return value, gradient

    def _step(self, value: Tensor, gradient: Tensor, fraction: float) -> float:
        number = finite_or_diverged(value, "discriminator's loss")
        self.network.flat.grad = gradient
        self._optimiser.step(fraction)
        return number

    @torch.no_grad()
    def improve_on_gaussian(
        self, standardised: Tensor, fraction: float, generator: torch.Generator, hidden: list[Tensor] | None = None
    ) -> float:
        """The same against as many standard normal vectors, in antithetic pairs g and −g.

        `hidden`: activations that `log_ratio` has found for these draws with the present T. A layer without bias is
        odd, so each pair costs one product with the first layer, forwards and backwards; gradients are written out.
        """
        pairs = normal(generator, (len(standardised) + 1) // 2, standardised.shape[1], like=standardised)  # [H, M]
        if hidden is None:
            self.log_ratio(standardised, hidden := [])
        return self._step(*self.gaussian_gradient(standardised, hidden, pairs), fraction)

    def gaussian_gradient(self, draws: Tensor, hidden: list[Tensor], pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy and its gradient in the flat parameters, for draws [S, M] against g and −g of `pairs` [H, M]."""
        S, H = len(draws), len(pairs)
        gradient = torch.empty_like(self.network.flat)
        (W1, b1), (W2, b2), (W3, b3) = self.network.layers(self.network.flat)
        (dW1, db1), (dW2, db2), (dW3, db3) = self.network.layers(gradient)
        g_W = pairs @ W1  # [H, units]
        first = torch.cat([hidden[0], activation(torch.cat([b1 + g_W, b1 - g_W[: S - H]]))])  # [2 S, units]
        second = torch.cat([hidden[1], activation(torch.addmm(b2, first[S:], W2))])
        value, g = _cross_entropy(torch.addmm(b3, second, W3), S)  # [2 S, 1]
        torch.mm(second.t(), g, out=dW3)
        torch.sum(g, 0, out=db3)
        g = through_activation(g * W3.t(), second)
        torch.mm(first.t(), g, out=dW2)
        torch.sum(g, 0, out=db2)
        g = through_activation(g @ W2.t(), first)
        torch.sum(g, 0, out=db1)
        difference = g[S : S + H]
        difference[: S - H] -= g[S + H :]
        torch.mm(draws.t(), g[:S], out=dW1)
        dW1.addmm_(pairs.t(), difference)
        return value, gradient

    def log_ratio(self, draws: Tensor, hidden: list[Tensor] | None = None) -> Tensor:
        """T at draws [S, M], differentiable in the draws and constant in the network: [S]. `hidden` as in `MLP`."""
        return self.network(draws, frozen=True, hidden=hidden).squeeze(1)


def _cross_entropy(logits: Tensor, num_first: int) -> tuple[Tensor, Tensor]:
    """½ [ mean softplus(−T) of the first rows + mean softplus(T) of the others ], and its gradient in T [R, 1].

    That is −½ σ(−T) and ½ σ(T), each over the number of its rows. Overwrites the logits.
    """
    first, second = logits[:num_first], logits[num_first:]
    first.neg_()  # now the wrong answer has a positive sign in both classes
    wrong = functional.softplus(logits)
    value = 0.5 * (wrong[:num_first].mean() + wrong[num_first:].mean())
    logits.sigmoid_()
    first.mul_(-0.5 / len(first))
    second.mul_(0.5 / len(second))
    return value, logits


class Moments:
    """Coordinate-wise mean and variance of draws [S, M]: the Gaussian of adaptive contrast.

    With q̄ the Gaussian that has the moments of the draws of q, E_q log q̄/p̄ is the divergence of two Gaussians. As a
    function of the draws it has the same value and the same gradient as the mean of log q̄ − log p̄ over the draws
    with the moments held constant, and costs less.
    """

    def __init__(self, draws: Tensor) -> None:
        moments: tuple[Tensor, Tensor, Tensor] = _MomentsFunction.apply(draws)  # type: ignore[no-untyped-call]
        self.mean, self.variance, self.standardised = moments  # [M], [M], and the draws themselves [S, M]
        self.scale = self.variance.detach().sqrt()

    def standardise(self, draws: Tensor) -> Tensor:
        """Other draws by these moments."""
        return (draws - self.mean.detach()) / self.scale

    def divergence(self, mean: Tensor | float, log_variance: Tensor) -> Tensor:
        """KL( N(these moments) ‖ N(mean, e^log_variance) ), with gradients to the draws and to both arguments."""
        return diagonal_gaussian_kl(self.mean, self.variance.log(), mean, log_variance)


def _standardise(draws: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, variance, (w − m)/s and s of draws [S, M], coordinate by coordinate."""
    mean = draws.mean(0)
    centred = draws - mean
    variance = centred.square().mean(0).add_(SMALLEST_VARIANCE)
    scale = variance.sqrt()
    return mean, variance, centred.div_(scale), scale


class _MomentsFunction(torch.autograd.Function):
    """Mean, variance and standardised draws in few passes over the draws, forwards and backwards.

    Gradients of the mean and the variance are exact; standardised draws count the moments as constants.
    """

    @staticmethod
    def forward(ctx: Any, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance, standardised, scale = _standardise(draws)
        ctx.save_for_backward(standardised, scale)
        return mean, variance, standardised

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        standardised, scale = ctx.saved_tensors
        of_mean, of_variance, of_standardised = gradients
        # 1/S ∂mean + 2/S (w − m) ∂variance + ∂standardised / scale
        share = 1.0 / len(standardised)
        gradient = torch.addcmul(share * of_mean, standardised, 2.0 * share * scale * of_variance)
        return gradient.addcmul_(of_standardised, scale.reciprocal())


@dataclass(frozen=True)
class Contrasted:
    """The divergence of draws from a Gaussian prior, and what a discriminator may then learn from at no further cost."""

    kl: Tensor
    standardised: Tensor  # [S, M]
    hidden: list[Tensor]  # activations of T there


def adaptive_contrast(draws: Tensor, log_prior: Tensor, discriminator: Discriminator) -> Contrasted:
    """E_q log q(w)/p(w) = E_q T(w̃) + KL( N(m, s²) ‖ N(0, e^τ) ), with m, s² the moments of the draws w [S, M].

    `Moments` and `Discriminator.log_ratio` in a single step of autograd, gradients included; they reach the draws and τ.
    """
    kept: list[Tensor] = []
    kl: Tensor = _AdaptiveContrast.apply(draws, log_prior, discriminator.network, kept)  # type: ignore[no-untyped-call]
    standardised, *hidden = kept
    return Contrasted(kl, standardised, hidden)


class _AdaptiveContrast(torch.autograd.Function):
    """∂w = 1/S [ T'(w̃)/s + m e^{−τ} + w̃ s (e^{−τ} − 1/s²) ], moments being constants in w̃; ∂τ = ½ Σ [1 − (s² + m²) e^{−τ}]."""

    @staticmethod
    def forward(ctx: Any, draws: Tensor, log_prior: Tensor, network: MLP, kept: list[Tensor]) -> Tensor:
        share, tau = 1.0 / len(draws), log_prior.item()
        precision = (-log_prior).exp().item()
        mean, variance, standardised, scale = _standardise(draws)
        layers = network.layers(network.flat.detach())
        inputs, log_ratio = mlp_forward(standardised, layers)
        kept.extend(inputs)
        second_moment = torch.addcmul(variance, mean, mean).sum() * precision
        log_variances = scale.log().sum() * 2.0
        M = len(mean)
        value = log_ratio.mean() + 0.5 * (second_moment - log_variances + M * (tau - 1.0))
        g = mlp_backward(torch.full_like(log_ratio, share), layers, inputs)
        assert g is not None
        inverse = scale.reciprocal()
        of_draws = torch.addcmul(mean * (share * precision), standardised, (scale * precision - inverse).mul_(share))
        ctx.save_for_backward(of_draws.addcmul_(g, inverse), 0.5 * (M - second_moment))
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_draws, of_log_prior = ctx.saved_tensors
        return of_draws.mul_(gradients[0]), of_log_prior * gradients[0], None, None
