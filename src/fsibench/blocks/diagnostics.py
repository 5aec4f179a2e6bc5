"""Have the chains converged? Rank-normalised split R-hat, bulk and tail effective sample size, E-BFMI.

Vehtari, Gelman, Simpson, Carpenter, Bürkner: Rank-normalization, folding, and localization, Bayesian Analysis 2021.
Draws are [T, C, Q]: T iterations of C chains for Q quantities; results are [Q].
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def split_chains(draws: Tensor) -> Tensor:
    """Halves of chains as chains of their own: [T, C, Q] -> [T // 2, 2 C, Q]."""
    half = len(draws) // 2
    return torch.cat([draws[:half], draws[len(draws) - half :]], dim=1)


def rank_normalised(draws: Tensor) -> Tensor:
    """Φ⁻¹((rank − 3/8)/(T C + 1/4)) with ranks over all chains; equal values share their mean rank."""
    T, C, Q = draws.shape
    flat = draws.reshape(T * C, Q).T.contiguous()  # [Q, T C]
    ordered = flat.sort(-1).values
    below = torch.searchsorted(ordered, flat, right=False)
    up_to = torch.searchsorted(ordered, flat, right=True)
    rank = 0.5 * (below + up_to + 1).double()  # mean of below + 1 .. up_to
    normal: Tensor = torch.special.ndtri((rank - 0.375) / (T * C + 0.25))  # [Q, T C]
    return normal.T.reshape(T, C, Q)


def plain_rhat(chains: Tensor) -> Tensor:
    """√( ((n − 1)/n W + B/n) / W ); 1 where nothing varies at all, infinite where only the chains differ."""
    n = len(chains)
    within = chains.var(0).mean(0)  # W
    between = n * chains.mean(0).var(0)  # B
    ratio = ((n - 1) / n * within + between / n) / within
    constant = (within == 0) & (between == 0)
    return torch.where(constant, torch.ones_like(ratio), ratio.sqrt())


def rhat(draws: Tensor) -> Tensor:
    """The larger of the bulk R-hat and the folded one, which sees chains that differ in spread only."""
    chains = split_chains(draws.double())
    folded = (chains - chains.flatten(0, 1).median(0).values).abs()
    return torch.maximum(plain_rhat(rank_normalised(chains)), plain_rhat(rank_normalised(folded)))


def autocovariance(chains: Tensor) -> Tensor:
    """Biased autocovariance of each chain at lags 0 .. n − 1, by FFT: [n, C, Q] -> [n, C, Q]."""
    n = len(chains)
    centred = chains - chains.mean(0)
    spectrum = torch.fft.rfft(centred, n=2 * n, dim=0)
    covariance: Tensor = torch.fft.irfft(spectrum.abs().square(), n=2 * n, dim=0)[:n]
    return covariance / n


def plain_ess(chains: Tensor) -> Tensor:
    """C n / τ with τ from Geyer's initial monotone sequence of pair sums ρ(2k) + ρ(2k + 1)."""
    n, C, _ = chains.shape
    covariance = autocovariance(chains)
    within = covariance[0].mean(0) * n / (n - 1)
    total = within * (n - 1) / n
    if C > 1:
        total = total + chains.mean(0).var(0)
    rho = 1.0 - (within - covariance.mean(1) * n / (n - 1)) / total  # [n, Q]
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(n // 2, 2, -1).sum(1)  # [n / 2, Q]
    positive = (pairs > 0).cumprod(0).to(pairs.dtype)
    monotone = pairs.cummin(0).values * positive
    tau = (2.0 * monotone.sum(0) - 1.0).clamp_min(1.0 / math.log10(C * n))  # the bound of Stan: antithetic chains
    size = C * n / tau
    return torch.where(total > 0, size, torch.full_like(size, math.nan))


def bulk_ess(draws: Tensor) -> Tensor:
    return plain_ess(rank_normalised(split_chains(draws.double())))


def tail_ess(draws: Tensor) -> Tensor:
    """The smaller effective size of the indicators of the lowest and the highest twentieth."""
    chains = split_chains(draws.double())
    flat = chains.flatten(0, 1)
    low, high = torch.quantile(flat, torch.tensor([0.05, 0.95], dtype=flat.dtype, device=flat.device), dim=0)
    return torch.fmin(plain_ess((chains <= low).double()), plain_ess((chains <= high).double()))


def ebfmi(energy: Tensor) -> Tensor:
    """Energy Bayesian fraction of missing information of each chain: energies [T, C] -> [C]; below 0.3 is a warning."""
    energy = energy.double()
    return energy.diff(dim=0).square().sum(0) / (energy - energy.mean(0)).square().sum(0)
