"""The limit of a network with one hidden layer as its width grows: a Gaussian process, whose few scales are what is left to sample.

With units h(a) = erf(√π/2 · a), which have the slope of tanh at zero and its limits, and
f(x) = c + s Σ_h v_h h(Σ_d a_d w_hd x_d + a_0 w_h0)/√H, all of v, w and c standard normal, H → ∞ makes f Gaussian with covariance
(Neal 1996, chapter 2; Williams: Computing with infinite networks, NeurIPS 1996)

    k(x, x') = 1 + s² (2/π) arcsin( A(x, x') / √((1 + A(x, x)) (1 + A(x', x'))) ),   A(x, x') = π/2 (a_0² + Σ_d a_d² x_d x'_d)

Rows have noise of variance v(x) = exp(n + Σ_d b_d x_d) + 10⁻⁶. All of log a, log s, n and b are affine in ξ ~ N(0, I), and

    U(ξ) = ½ yᵀ(K + V)⁻¹y + ½ log|K + V| + ½|ξ|².

The gradient is written out. With W = ½ ((K + V)⁻¹ − ααᵀ), α = (K + V)⁻¹y, g_i = 1 + A_ii and ρ_ij = A_ij/√(g_i g_j):

    T = W ∘ ∂k/∂ρ,   ∂U/∂A_ij = T_ij/√(g_i g_j) − [i = j] (T ρ)_ii/g_i,   ∂U/∂v_i = W_ii.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fsibench.blocks.draws import normal
from fsibench.blocks.gaussian import factor
from fsibench.blocks.likelihoods import MINIMUM_NOISE_VARIANCE

# |ρ| = 1 needs infinite weights; rounding must not bring it there, where the slope of arcsin is infinite.
LARGEST_CORRELATION = 1.0 - 1e-12
HESSIAN_STEP = 1e-3
# A direction in which the log posterior is flatter than its prior, or bends upwards, counts as this.
LEAST_CURVATURE = 0.5
# Two ends of searches that are nearer than so many standard deviations of the posterior are one mode.
SAME_MODE = 1.0


@dataclass(frozen=True)
class ScalePrior:
    """Normal priors: log a_d around −½ log D, log a_0 around 0, log s, the log noise variance n, and its slopes b_d around 0."""

    input_spread: float = 1.5
    signal_centre: float = 0.5
    signal_spread: float = 1.0
    noise_centre: float = -4.0
    noise_spread: float = 2.0
    slope_spread: float = 0.7  # 0: constant noise


@dataclass(frozen=True)
class Scales:
    """What ξ stands for, a row per chain: a [C, D + 1] with the bias last, s [C], n [C] and b [C, D]."""

    a: Tensor
    s: Tensor
    n: Tensor
    b: Tensor

    def __getitem__(self, chain: int) -> Scales:
        rows = slice(chain, chain + 1)
        return Scales(self.a[rows], self.s[rows], self.n[rows], self.b[rows])

    def noise(self, x: Tensor) -> Tensor:
        """v(x): [C, N]."""
        return torch.exp(self.n[:, None] + self.b @ x.mT) + MINIMUM_NOISE_VARIANCE

    def covariance(self, x1: Tensor, x2: Tensor) -> Tensor:
        """k of functions: [C, N, M]."""
        left, right = self.scaled(x1), self.scaled(x2)
        sizes = (1.0 + left.square().sum(2))[:, :, None] * (1.0 + right.square().sum(2))[:, None, :]
        return 1.0 + _arcsine(self.s, (left @ right.mT) / sizes.sqrt())

    def variance(self, x: Tensor) -> Tensor:
        """k(x, x): [C, N]."""
        sizes = self.scaled(x).square().sum(2)
        return 1.0 + _arcsine(self.s, (sizes / (1.0 + sizes))[:, None])[:, 0]

    def scaled(self, x: Tensor) -> Tensor:
        """Rows whose inner products are A: [C, N, D + 1]."""
        return math.sqrt(0.5 * math.pi) * with_ones(x) * self.a[:, None, :]


def with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def _arcsine(s: Tensor, rho: Tensor) -> Tensor:
    clamped = rho.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION)
    return (s.square() * (2.0 / math.pi))[:, None, None] * clamped.arcsin()


class WideNetwork:
    """U(ξ) and its gradient given rows x [N, D] and y [N], for a batch of ξ [C, 2 D + 3]; in float64."""

    def __init__(self, x: Tensor, y: Tensor, prior: ScalePrior) -> None:
        self.x, self.y, self.prior = x.double(), y.double(), prior
        self.rows = with_ones(self.x)
        D = x.shape[1]
        self.num_inputs, self.num_sampled = D, 2 * D + 3
        centre = self.x.new_zeros(self.num_sampled)
        centre[:D] = -0.5 * math.log(D)
        centre[D + 1], centre[D + 2] = prior.signal_centre, prior.noise_centre
        spread = self.x.new_full((self.num_sampled,), prior.input_spread)
        spread[D + 1], spread[D + 2], spread[D + 3 :] = prior.signal_spread, prior.noise_spread, prior.slope_spread
        self.centre, self.spread = centre, spread

    def scales(self, xi: Tensor) -> Scales:
        D, theta = self.num_inputs, self.centre + self.spread * xi
        return Scales(theta[:, : D + 1].exp(), theta[:, D + 1].exp(), theta[:, D + 2], theta[:, D + 3 :])

    def potential(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """U [C] and ∇U [C, 2 D + 3]; not a number where K + V is not positive definite in float64."""
        scales = self.scales(xi)
        left = scales.scaled(self.x)
        g = 1.0 + left.square().sum(2)  # [C, N]
        root = g.rsqrt()
        rho = (left @ left.mT).mul_(root[:, :, None]).mul_(root[:, None, :]).clamp_(-LARGEST_CORRELATION, LARGEST_CORRELATION)
        hidden = _arcsine(scales.s, rho)
        v = scales.noise(self.x)
        L, failed = torch.linalg.cholesky_ex(hidden + 1.0 + torch.diag_embed(v))
        L = torch.where((failed != 0)[:, None, None], math.nan, L)
        alpha = torch.cholesky_solve(self.y[None, :, None].expand(len(xi), -1, 1), L)  # [C, N, 1]
        fit = 0.5 * (self.y @ alpha).squeeze(-1) + L.diagonal(dim1=1, dim2=2).log().sum(1)
        W = torch.baddbmm(torch.cholesky_inverse(L), alpha, alpha.mT, alpha=-1.0).mul_(0.5)
        slope = (scales.s.square() * (2.0 / math.pi))[:, None, None] * (1.0 - rho.square()).rsqrt()
        T = W * slope
        own = (T * rho).sum(2) / g  # (T ρ)_ii/g_i
        T.mul_(root[:, :, None]).mul_(root[:, None, :])
        products = (self.rows * (T @ self.rows)).sum(1) - own @ self.rows.square()  # [C, D + 1]
        of_noise = W.diagonal(dim1=1, dim2=2) * (v - MINIMUM_NOISE_VARIANCE)  # ∂U/∂ log of the variable part, [C, N]
        gradient = torch.cat(
            [
                math.pi * scales.a.square() * products,
                2.0 * (W * hidden).sum((1, 2))[:, None],
                of_noise.sum(1, keepdim=True),
                of_noise @ self.x,
            ],
            1,
        )
        return fit + 0.5 * xi.square().sum(1), xi + self.spread * gradient


@dataclass(frozen=True)
class Conditioned:
    """The process of one ξ given the training rows: L Lᵀ = K + V, α = (K + V)⁻¹y."""

    scales: Scales  # of one chain
    x: Tensor
    L: Tensor
    alpha: Tensor

    @classmethod
    def of(cls, network: WideNetwork, xi: Tensor) -> Conditioned:
        """For one ξ [2 D + 3]."""
        scales = network.scales(xi[None])
        K = scales.covariance(network.x, network.x)[0]
        L = factor(K + torch.diag(scales.noise(network.x)[0]))
        return cls(scales, network.x, L, torch.cholesky_solve(network.y[:, None], L)[:, 0])

    def mean(self, x: Tensor) -> Tensor:
        return self.scales.covariance(x, self.x)[0] @ self.alpha

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y(x), [N] each."""
        K = self.scales.covariance(self.x, x)[0]
        explained = torch.linalg.solve_triangular(self.L, K, upper=False).square().sum(0)
        variance = (self.scales.variance(x)[0] - explained).clamp_min(0.0)
        return K.mT @ self.alpha, variance + self.scales.noise(x)[0]

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Functions at x: [num_draws, N]."""
        K = self.scales.covariance(self.x, x)[0]
        V = torch.linalg.solve_triangular(self.L, K, upper=False)
        root = factor(self.scales.covariance(x, x)[0] - V.mT @ V)
        return K.mT @ self.alpha + normal(generator, num_draws, len(x), like=root) @ root.mT


def hessian(network: WideNetwork, mode: Tensor) -> Tensor:
    """∂²U at one ξ, from central differences of the gradient: [P, P]."""
    steps = HESSIAN_STEP * torch.eye(len(mode), dtype=mode.dtype, device=mode.device)
    rows = [network.potential(mode + step[None])[1] - network.potential(mode - step[None])[1] for step in steps]
    found = torch.cat(rows) / (2.0 * HESSIAN_STEP)
    return 0.5 * (found + found.mT)


@dataclass(frozen=True)
class Whitened:
    """U in coordinates z with ξ = mode + z Rᵀ and R Rᵀ the inverse Hessian at the mode: there the posterior is about N(0, I)."""

    network: WideNetwork
    mode: Tensor  # [P]
    R: Tensor  # [P, P]

    @classmethod
    def at(cls, network: WideNetwork, mode: Tensor) -> Whitened:
        curvatures, directions = torch.linalg.eigh(torch.nan_to_num(hessian(network, mode)))
        return cls(network, mode, directions * curvatures.clamp_min(LEAST_CURVATURE).rsqrt())

    def adapted(self, z: Tensor) -> Whitened:
        """The same in coordinates in which draws z [T, C, P] have unit covariance, shrunk to the present one as if that came from 2 P draws."""
        draws = z.flatten(0, 1)
        P, number = draws.shape[1], len(draws)
        covariance = (number * draws.mT.cov(correction=0) + 2 * P * torch.eye(P, dtype=z.dtype, device=z.device)) / (number + 2 * P)
        return Whitened(self.network, self.mode + draws.mean(0) @ self.R.mT, self.R @ torch.linalg.cholesky(covariance))

    def parameters(self, z: Tensor) -> Tensor:
        """ξ of z: [C, P]."""
        return self.mode + z @ self.R.mT

    def coordinates(self, xi: Tensor) -> Tensor:
        """z of ξ: [C, P]."""
        z: Tensor = torch.linalg.solve(self.R, (xi - self.mode).mT).mT
        return z

    def potential(self, z: Tensor) -> tuple[Tensor, Tensor]:
        U, gradient = self.network.potential(self.parameters(z))
        return U, gradient @ self.R

    @property
    def log_volume(self) -> float:
        """log |det R|, of a region of unit size in z."""
        return float(torch.linalg.slogdet(self.R)[1])


def shares_of_modes(places: list[Whitened], values: list[float]) -> Tensor:
    """How much of the posterior lies around each mode, by Laplace's approximation exp(−U) |det R|; a mode that was found twice counts once."""
    log_masses: list[float] = []
    for number, (place, value) in enumerate(zip(places, values, strict=True)):
        found_before = any(bool(place.coordinates(other.mode[None]).norm() < SAME_MODE) for other in places[:number])
        log_masses.append(-math.inf if found_before else place.log_volume - value)
    return torch.tensor(log_masses, dtype=torch.float64).softmax(0)
