"""Gaussian processes as priors over functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fsibench.blocks.draws import normal, some_rows, uniform
from fsibench.blocks.kernels import GaussianProcess, fitted_process
from fsibench.blocks.networks import DropoutMasks
from fsibench.blocks.priors.base import Prior
from fsibench.blocks.training import leaf

# A Cholesky factor of so many inputs takes about 20 ms.
EXACT_ROWS = 1000


class GaussianProcessPrior(Prior):
    """Zero-mean Gaussian process with an ARD RBF kernel, lengthscales ℓ [D] and signal variance s².

    Functions that have to stay functions are seen through F random Fourier features (Rahimi, Recht 2007), with ω and b
    drawn once; their covariances differ from the kernel by about s²/√F:

        f_s(x) = s √(2/F) Σ_k w_sk cos(ω_kᵀ(x/ℓ) + b_k),   w ~ N(0, I),   ω ~ N(0, I),   b ~ U(0, 2π)

    Densities, scores and draws at few inputs are those of the process itself.
    """

    def __init__(
        self,
        num_inputs: int,
        generator: torch.Generator,
        num_features: int = 200,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        like = torch.empty(0, dtype=dtype, device=generator.device)
        self.frequencies = normal(generator, num_inputs, num_features, like=like)
        self.phases = 2.0 * math.pi * uniform(generator, num_features, like=like)
        # log ℓ starts at the typical distance of standardised inputs, log s² at their targets' variance
        start = like.new_zeros(num_inputs + 1)
        start[:-1] = 0.5 * math.log(num_inputs)
        self.log_scales = leaf(start)  # log ℓ [D], log s²
        self.noise = 0.1  # variance of observations that `fit_evidence` finds beside them

    @property
    def parameters(self) -> list[Tensor]:
        return [self.log_scales]

    @property
    def process(self) -> GaussianProcess:
        """The exact process with the present hyper-parameters, as constants."""
        theta = self.log_scales.detach().double().exp()
        return GaussianProcess(theta[:-1], theta[-1], theta.new_tensor(self.noise))

    def draw_noise(self, num_draws: int, generator: torch.Generator) -> Tensor:
        return normal(generator, num_draws, self.phases.numel(), like=self.phases)

    def functions(self, x: Tensor, noise: Tensor, dropout: DropoutMasks | None = None) -> Tensor:
        """f_s(x); dropout has no meaning here and is ignored."""
        log_lengthscales, log_signal = self.log_scales[:-1], self.log_scales[-1]
        angles = torch.addmm(self.phases, x * torch.exp(-log_lengthscales), self.frequencies)  # [N, F]
        features = (0.5 * log_signal).exp() * math.sqrt(2.0 / self.phases.numel()) * angles.cos()
        return noise @ features.mT

    def draw(self, x: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
        """Draws of the process itself at up to `EXACT_ROWS` inputs, through features beyond; constants."""
        if len(x) > EXACT_ROWS:
            return super().draw(x, num_draws, generator).detach()
        return self.process.draw(x, num_draws, generator).to(x.dtype)

    def fit_evidence(
        self, x: Tensor, y: Tensor, generator: torch.Generator, max_steps: int, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Type-II maximum likelihood on at most `EXACT_ROWS` rows, by BFGS until it converges or `stop()`."""
        rows = some_rows(len(x), EXACT_ROWS, generator)
        process = fitted_process(x[rows], y[rows], stop)
        self.noise = float(process.noise)
        with torch.no_grad():
            self.log_scales.copy_(torch.cat([process.lengthscales, process.signal[None]]).log())
