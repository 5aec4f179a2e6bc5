"""Bayesian neural networks as priors over functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from fsibench.blocks.batched import batched_network, interleaved
from fsibench.blocks.draws import normal, some_rows
from fsibench.blocks.evidence import fit_by_evidence
from fsibench.blocks.linalg import gram
from fsibench.blocks.networks import (
    DropoutMasks,
    Nonlinearity,
    gaussian_network,
    kept_scale,
    num_weights,
    process_features,
    sampled_network,
    weight_shapes,
)
from fsibench.blocks.priors.base import Prior
from fsibench.blocks.training import leaf

# Widths of the hyper-prior where evidence fits all of θ: of means, in units of the start, and of log scales. Free means
# let the mean function interpolate the training rows while the scales, and the noise, shrink.
HYPERPRIOR = (0.7, 2.0)
# What `fit_scale` tries: factors, noise variances with each of them (targets have unit variance), draws of the hidden layers.
FACTORS = (0.3, 3.0)
NOISE_VARIANCES = torch.logspace(-5.0, 0.0, 26, dtype=torch.float64)
EVIDENCE_DRAWS = 50


class BNNPrior(Prior):
    """Bayesian neural network: W_l = Mu_l + exp(R_l) ∘ E_l with standard normal E; the posterior process of fBNN, too.

    exp(R) is a standard deviation. Means start as N(0, mean_scale²), R as N(a, b²) for `log_scale` = (a, b), biases as
    N(0, bias_scale²). `log_scale=None` starts every layer at the scale that keeps the size of activations, 1/√fan_in
    up to a constant. Biases are trained constants, or with `bias_log_scale` random like the weights: that is the start
    of the log of their standard deviations.
    """

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        hidden: Sequence[int] = (50, 50),
        mean_scale: float | None = 0.05,
        log_scale: tuple[float, float] | None = (-5.0, 2.0),
        bias_scale: float = 0.3,
        dtype: torch.dtype = torch.float32,
        nonlinearity: Nonlinearity = "leaky_relu",
        bias_log_scale: float | None = None,
    ) -> None:
        self.widths, self.nonlinearity = (num_inputs, *hidden, 1), nonlinearity
        like = torch.empty(0, dtype=dtype, device=generator.device)
        start, biases = normal(generator, 2, num_weights(self.widths), like=like), sum(self.widths[1:])
        # s₀, [P]: the scale that keeps the size of activations
        self.kept_scales = torch.cat([
            like.new_full((fan_in * fan_out,), kept_scale(fan_in, nonlinearity))
            for fan_in, fan_out in weight_shapes(self.widths)
        ])
        log_scales = self.kept_scales.log() if log_scale is None else log_scale[0] + log_scale[1] * start[1]
        self.means = leaf((self.kept_scales if mean_scale is None else mean_scale) * start[0])  # Mu, [P]
        self.log_scales = leaf(log_scales)  # R, [P]
        self.biases = leaf(bias_scale * normal(generator, biases, like=like))
        self.bias_log_scales = None if bias_log_scale is None else leaf(like.new_full((biases,), bias_log_scale))

    @property
    def parameters(self) -> list[Tensor]:
        random = [] if self.bias_log_scales is None else [self.bias_log_scales]
        return [self.means, self.log_scales, self.biases, *random]

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        num_biases = 0 if self.bias_log_scales is None else self.biases.numel()
        return normal(generator, num_draws, self.means.numel() + num_biases, like=self.means)

    def log_hyperprior(self, means: float, scales: float) -> Tensor:
        """Means around 0, N(0, h² s₀²), and log scales around log s₀, N(log s₀, h'²), with h = `means`, h' = `scales`."""
        of_means = (self.means / self.kept_scales).square().sum() / means**2
        of_scales = (self.log_scales - self.kept_scales.log()).square().sum() / scales**2
        return -0.5 * (of_means + of_scales)

    def fit_evidence(
        self, x: Tensor, y: Tensor, generator: torch.Generator, max_steps: int, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """With the hyper-prior of `HYPERPRIOR`."""
        fit_by_evidence(self, x, y, generator, max_steps, stop, lambda: self.log_hyperprior(*HYPERPRIOR))

    @torch.no_grad()
    def fit_scale(self, x: Tensor, y: Tensor, generator: torch.Generator, at_most: int = 500) -> None:
        """Multiply all scales by the factor for which max_σ² log N(y | m, K + σ²I) is highest, on `at_most` rows."""
        rows = some_rows(len(x), at_most, generator)
        x, y = x[rows], y[rows].double()
        noise = self.draw_noise(EVIDENCE_DRAWS, generator)
        start = self.log_scales.clone()

        def negative_log_evidence(log_factor: float) -> float:
            self.log_scales.copy_(start + log_factor)
            mean, features = self.moments(x, noise)
            eigenvalues, U = torch.linalg.eigh(gram(features))
            projected = U.mT @ (y - mean)  # [n]
            variances = eigenvalues.clamp_min(0.0) + NOISE_VARIANCES.to(y.device)[:, None]  # [26, n]
            return float((projected.square() / variances + variances.log()).sum(1).min())

        bounds = (math.log(FACTORS[0]), math.log(FACTORS[1]))
        best = minimize_scalar(negative_log_evidence, bounds=bounds, method="bounded", options={"xatol": 0.03})
        self.log_scales.copy_(start + best.x)

    def moments(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """From S draws of the hidden layers, the output layer integrated out: Φ is [N, S(H + 1)]; see `process_features`."""
        if self.bias_log_scales is None:
            return process_features(x, self.means, self.log_scales, self.biases, self.widths, noise, self.nonlinearity)
        P, spread = self.means.numel(), self.bias_log_scales.exp()
        hidden = torch.addcmul(self.biases[:-1], spread[:-1], noise[:, P:-1])  # [S, ...]
        biases = torch.cat([hidden, self.biases[-1:].expand(len(noise), 1)], 1)
        return process_features(
            x, self.means, self.log_scales, biases, self.widths, noise[:, :P], self.nonlinearity, spread[-1:]
        )

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None, fixed_rows: int = 0) -> Tensor:
        """As `Prior.functions`; `fixed_rows` as in `gaussian_network`."""
        if self.bias_log_scales is None and self.nonlinearity == "leaky_relu":
            means, log_scales = self.means, self.log_scales
            return gaussian_network(x, means, log_scales, self.biases, self.widths, noise, dropout, fixed_rows)
        P, biases = self.means.numel(), self.biases.expand(len(noise), -1)
        weights = torch.addcmul(self.means, self.log_scales.exp(), noise[:, :P])  # [S, P]
        if self.bias_log_scales is not None:
            biases = torch.addcmul(self.biases, self.bias_log_scales.exp(), noise[:, P:])  # [S, ...]
        return batched_network(x, interleaved(weights, biases, self.widths), self.widths, self.nonlinearity)[..., 0]

    def functions_at(
        self, x: Tensor, z: Tensor, noise: Tensor, dropout: DropoutMasks | None = None
    ) -> tuple[Tensor, Tensor]:
        f = self.functions(torch.cat([x, z]), noise, dropout, fixed_rows=len(x))
        f_x, f_z = torch.split_with_sizes(f, [len(x), len(z)], 1)
        return f_x, f_z


class TiedBNNPrior(Prior):
    """A Bayesian network with one weight mean and one weight scale per layer; biases b_l = m_l + s_l e_l, e_l frozen."""

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        hidden: Sequence[int] = (50, 50),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.widths = (num_inputs, *hidden, 1)
        shapes = weight_shapes(self.widths)
        device = generator.device
        start = torch.tensor([[0.0, math.log(kept_scale(fan_in)), 0.0, math.log(0.3)] for fan_in, _ in shapes])
        self.layers = leaf(start.to(dtype=dtype, device=device))  # [L, 4]: mean and log scale of weights, of biases
        self.sizes = torch.tensor([fan_in * fan_out for fan_in, fan_out in shapes], device=device)
        self.bias_sizes = torch.tensor(self.widths[1:], device=device)
        self.bias_noise = normal(generator, sum(self.widths[1:]), like=self.layers.detach())

    @property
    def parameters(self) -> list[Tensor]:
        return [self.layers]

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        return normal(generator, num_draws, num_weights(self.widths), like=self.layers)

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        mean, log_scale, bias_mean, bias_log_scale = self.layers.unbind(1)  # [L]
        weights = torch.addcmul(
            mean.repeat_interleave(self.sizes), log_scale.exp().repeat_interleave(self.sizes), noise
        )  # [S, P]
        spread = bias_log_scale.exp().repeat_interleave(self.bias_sizes) * self.bias_noise
        return sampled_network(x, weights, bias_mean.repeat_interleave(self.bias_sizes) + spread, self.widths, dropout)
