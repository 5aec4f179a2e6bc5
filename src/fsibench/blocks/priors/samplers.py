"""Neural samplers: networks fed with noise as priors over functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsibench.blocks.conditionals import Conditional, low_rank_conditional
from fsibench.blocks.draws import normal, uniform
from fsibench.blocks.linalg import JITTER
from fsibench.blocks.mlp import MLP
from fsibench.blocks.networks import DropoutMasks, network_pieces
from fsibench.blocks.priors.base import Prior


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
        return normal(generator, num_draws, self.num_noise, like=self.noise_network.flat)

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


class ConcatenatedSamplerPrior(Prior):
    """The neural sampler of the VIP paper: f_s(x) = NN([x, z_s]) with z uniform on [−1, 1]^d."""

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        hidden: Sequence[int] = (50, 50),
        num_noise: int = 10,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_noise = num_noise
        self.network = MLP((num_inputs + num_noise, *hidden, 1), None, 0.1, generator, dtype)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.network.flat]

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        return 2.0 * uniform(generator, num_draws, self.num_noise, like=self.network.flat) - 1.0

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        if torch.is_grad_enabled():
            return self._functions(x, noise)
        pieces = network_pieces(len(noise), len(x), self.network.widths)
        return torch.cat([self._functions(x, noise[piece]) for piece in pieces])

    def _functions(self, x: Tensor, noise: Tensor) -> Tensor:
        S, N = len(noise), len(x)
        pairs = torch.cat([x.expand(S, N, -1), noise[:, None].expand(S, N, -1)], -1)  # [S, N, D + d]
        return self.network(pairs.flatten(0, 1)).view(S, N)
