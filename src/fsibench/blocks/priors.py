"""Implicit processes: priors over functions, known by their draws.

A prior draws noise once and is then an ordinary function of its inputs: the same noise gives the same functions at any
inputs, and gradients reach both the inputs and the prior's parameters. Every method that takes a prior takes any of
these objects, so "same prior, other inference" is one option.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fsibench.blocks.conditionals import Conditional, gaussian_conditional, low_rank_conditional
from fsibench.blocks.linalg import JITTER
from fsibench.blocks.networks import (
    MLP,
    DropoutMasks,
    kept_scale,
    num_weights,
    process_features,
    sampled_network,
    weight_shapes,
)
from fsibench.errors import UsageError


class Prior(abc.ABC):
    """A distribution over functions of one output."""

    @property
    @abc.abstractmethod
    def parameters(self) -> list[Tensor]:
        """Leaf tensors to train; empty when the prior is fixed."""

    @abc.abstractmethod
    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        """What makes one draw differ from another, of shape [S, ...]."""

    @abc.abstractmethod
    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        """f_s(x) for the functions that belong to `noise`: x [N, D] -> [S, N]; differentiable."""

    def log_hyperprior(self, means: float, scales: float) -> Tensor:
        """log p(θ) up to a constant: Gaussians around a process of unit scale, of these relative widths."""
        raise UsageError(f"{type(self).__name__} has no hyper-prior on its parameters.")

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Fresh functions at x: [S, N]."""
        return self.functions(x, self.draw_noise(num_draws, generator))

    def condition(
        self,
        x: Tensor,
        z: Tensor,
        u: Tensor,
        noise: Tensor,
        dropout: DropoutMasks | None = None,
        jitter: float = JITTER,
    ) -> Conditional:
        """p(f(x) | f(z) = u) under a Gaussian process with the moments of the functions that belong to `noise`."""
        f = self.functions(torch.cat([x, z]), noise, dropout)  # one pass for both
        f_x, f_z = torch.split_with_sizes(f, [len(x), len(z)], 1)
        mean, variance = gaussian_conditional(f_x, f_z, u, jitter)
        return Conditional(mean, variance, f_z)


class BNNPrior(Prior):
    """Bayesian neural network: W_l = Mu_l + exp(R_l) ∘ E_l with standard normal E, trained constant biases.

    exp(R) is a standard deviation. Means start as N(0, mean_scale²), R as N(a, b²) for `log_scale` = (a, b), biases as
    N(0, bias_scale²). `log_scale=None` starts every layer at the scale that keeps the size of activations, 1/√fan_in
    up to a constant.
    """

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        hidden: Sequence[int] = (50, 50),
        mean_scale: float = 0.05,
        log_scale: tuple[float, float] | None = (-5.0, 2.0),
        bias_scale: float = 0.3,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.widths = (num_inputs, *hidden, 1)
        P = num_weights(self.widths)
        normal = torch.randn(2, P, generator=generator, dtype=dtype, device=generator.device)
        biases = torch.randn(sum(self.widths[1:]), generator=generator, dtype=dtype, device=generator.device)
        # s₀, [P]: the scale that keeps the size of activations
        self.kept_scales = torch.cat([
            normal.new_full((fan_in * fan_out,), kept_scale(fan_in)) for fan_in, fan_out in weight_shapes(self.widths)
        ])
        log_scales = self.kept_scales.log() if log_scale is None else log_scale[0] + log_scale[1] * normal[1]
        self.means = (mean_scale * normal[0]).requires_grad_(True)  # Mu, [P]
        self.log_scales = log_scales.requires_grad_(True)  # R, [P]
        self.biases = (bias_scale * biases).requires_grad_(True)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.means, self.log_scales, self.biases]

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        P = self.means.numel()
        return torch.randn(num_draws, P, generator=generator, dtype=self.means.dtype, device=self.means.device)

    def log_hyperprior(self, means: float, scales: float) -> Tensor:
        """Means around 0, N(0, h² s₀²), and log scales around log s₀, N(log s₀, h'²), with h = `means`, h' = `scales`."""
        of_means = (self.means / self.kept_scales).square().sum() / means**2
        of_scales = (self.log_scales - self.kept_scales.log()).square().sum() / scales**2
        return -0.5 * (of_means + of_scales)

    def features(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [N] and Φ [N, S(H + 1)] with covariance ΦΦᵀ, from S draws of the hidden layers; see `process_features`."""
        return process_features(x, self.means, self.log_scales, self.biases, self.widths, noise)

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        weights = torch.addcmul(self.means, self.log_scales.exp(), noise)  # [S, P]
        return sampled_network(x, weights, self.biases, self.widths, dropout)


class NeuralSamplerPrior(Prior):
    """Bilinear neural sampler: f_s(x) = a(x)ᵀ v(e_s), with e ~ N(0, I); two networks meet in an inner product.

    Any covariance matrix of this process has at most rank `rank`. All weights start as N(0, weight_scale²), biases as
    N(0, bias_scale²).
    """

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        hidden: Sequence[int] = (50, 50),
        num_noise: int = 10,
        rank: int = 10,
        weight_scale: float | None = 0.2,
        bias_scale: float = 0.1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_noise = num_noise
        self.noise_network = MLP((num_noise, *hidden, rank), weight_scale, bias_scale, generator, dtype)
        self.input_network = MLP((num_inputs, *hidden, rank), weight_scale, bias_scale, generator, dtype)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.noise_network.flat, self.input_network.flat]

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        flat = self.noise_network.flat
        return torch.randn(num_draws, self.num_noise, generator=generator, dtype=flat.dtype, device=flat.device)

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        a, v = self.factors(x, noise, dropout)
        return v @ a.mT

    def factors(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> tuple[Tensor, Tensor]:
        """a(x) [N, R] and v(e) [S, R]; dropout acts on the hidden layers of both networks."""
        if dropout is None or dropout.rate == 0.0:
            return self.input_network(x), self.noise_network(noise)
        widths = self.input_network.widths[1:-1]
        masks = dropout.masks(len(x) + len(noise), sum(widths), self.input_network.flat)
        at_inputs, at_noise = (torch.split_with_sizes(part, list(widths), 1) for part in masks.tensor_split([len(x)]))
        return self.input_network(x, list(at_inputs)), self.noise_network(noise, list(at_noise))

    def condition(
        self,
        x: Tensor,
        z: Tensor,
        u: Tensor,
        noise: Tensor,
        dropout: DropoutMasks | None = None,
        jitter: float = JITTER,
    ) -> Conditional:
        """The same conditional, computed in the R dimensions that this process has."""
        a, v = self.factors(torch.cat([x, z]), noise, dropout)
        a_x, a_z = torch.split_with_sizes(a, [len(x), len(z)])
        mean, variance = low_rank_conditional(a_x, a_z, v, u, jitter)
        return Conditional(mean, variance, v @ a_z.mT)


class GaussianProcessPrior(Prior):
    """Zero-mean Gaussian process with an ARD RBF kernel, seen through F random Fourier features (Rahimi, Recht 2007).

        f_s(x) = s √(2/F) Σ_k w_sk cos(ω_kᵀ(x/ℓ) + b_k),   w ~ N(0, I),   ω ~ N(0, I),   b ~ U(0, 2π)

    ω and b are drawn once, so that functions stay functions; lengthscales ℓ [D] and signal variance s² are learned.
    Sample covariances differ from the kernel by about s²/√F.
    """

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        num_features: int = 200,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.frequencies = torch.randn(
            num_inputs, num_features, generator=generator, dtype=dtype, device=generator.device
        )
        phases = torch.rand(num_features, generator=generator, dtype=dtype, device=generator.device)
        self.phases = 2.0 * math.pi * phases
        # log ℓ starts at the typical distance of standardised inputs, log s² at their targets' variance
        start = torch.zeros(num_inputs + 1, dtype=dtype, device=generator.device)
        start[:-1] = 0.5 * math.log(num_inputs)
        self.log_scales = start.requires_grad_(True)  # log ℓ [D], log s²

    @property
    def parameters(self) -> list[Tensor]:
        return [self.log_scales]

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        F = self.phases.numel()
        return torch.randn(num_draws, F, generator=generator, dtype=self.phases.dtype, device=self.phases.device)

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        """f_s(x); dropout has no meaning here and is ignored."""
        log_lengthscales, log_signal = self.log_scales[:-1], self.log_scales[-1]
        angles = torch.addmm(self.phases, x * torch.exp(-log_lengthscales), self.frequencies)  # [N, F]
        features = (0.5 * log_signal).exp() * math.sqrt(2.0 / self.phases.numel()) * angles.cos()
        return noise @ features.mT
