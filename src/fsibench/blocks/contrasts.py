"""How far q is from p, told by discriminators: one between the two, or one for each against a Gaussian (adaptive contrast)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsibench.blocks.adversarial import Discriminator, Moments


class SingleContrast:
    """One discriminator between q and p, on raw values."""

    def __init__(self, discriminator: Discriminator, symmetric: bool) -> None:
        self.discriminator, self.symmetric, self.loss = discriminator, symmetric, math.nan

    def improve(self, u: Tensor, f_z: Tensor, fraction: float, generator: torch.Generator) -> None:
        self.loss = self.discriminator.improve(u, f_z, fraction)

    def divergence(self, u: Tensor, f_z: Tensor) -> Tensor:
        """½ [ E_q T(u) − E_p T(f(Z)) ], or E_q T(u) for the forward divergence alone."""
        if not self.symmetric:
            return self.discriminator.log_ratio(u).mean()
        signs = torch.cat([u.new_full((len(u),), 0.5 / len(u)), u.new_full((len(f_z),), -0.5 / len(f_z))])
        return self.discriminator.log_ratio(torch.cat([u, f_z])) @ signs


class AdaptiveContrast:
    """Two discriminators, each between a distribution and the Gaussian q̄ or p̄ with its moments (appendix B).

    log q/p = T_q − T_p + log q̄/p̄, with T_q = log q/q̄ and T_p = log p/p̄; moments are constants.
    """

    def __init__(self, of_q: Discriminator, of_p: Discriminator, symmetric: bool) -> None:
        self.of_q, self.of_p, self.symmetric, self.loss = of_q, of_p, symmetric, math.nan

    def improve(self, u: Tensor, f_z: Tensor, fraction: float, generator: torch.Generator) -> None:
        losses = []
        for discriminator, draws in ((self.of_q, u), (self.of_p, f_z)):
            losses.append(discriminator.improve_on_gaussian(Moments(draws).standardised, fraction, generator))
        self.loss = 0.5 * sum(losses)

    def divergence(self, u: Tensor, f_z: Tensor) -> Tensor:
        """E_q[T_q − T_p] + KL(q̄ ‖ p̄), and the mean of that with its mirror image for the symmetric divergence."""
        q, p = Moments(u), Moments(f_z)
        forward = self._contrast(self.of_q, q, self.of_p, p, u)
        return 0.5 * (forward + self._contrast(self.of_p, p, self.of_q, q, f_z)) if self.symmetric else forward

    @staticmethod
    def _contrast(own: Discriminator, moments: Moments, other: Discriminator, others: Moments, draws: Tensor) -> Tensor:
        ratio = own.log_ratio(moments.standardised) - other.log_ratio(others.standardise(draws))
        return ratio.mean() + moments.divergence(others.mean.detach(), others.variance.detach().log())
