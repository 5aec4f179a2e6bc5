"""BFGS for a handful of parameters, as a generator: one iteration, one yield.

Dense inverse Hessian and the bisection line search of Lewis and Overton (2013) for the weak Wolfe conditions

    f(x + t d) ≤ f(x) + c₁ t gᵀd   and   ∇f(x + t d)ᵀd ≥ c₂ gᵀd,

which brackets a good step also when trial points give values that are not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9

Objective = Callable[[Tensor], tuple[float, Tensor]]


def minimise(objective: Objective, start: Tensor, max_iterations: int) -> Iterator[tuple[Tensor, float]]:
    """Yield (x, f(x)) after each iteration; ends when no descent is found any more. `objective` gives f and ∇f."""
    x = start.detach().clone()
    value, gradient = objective(x)
    H = torch.eye(len(x), dtype=x.dtype, device=x.device) / max(float(gradient.norm()), 1.0)
    for iteration in range(max_iterations):
        direction = -H @ gradient
        found = _line_search(objective, x, value, gradient, direction)
        if found is None:
            yield x, value
            return
        step, new_value, new_gradient = found
        change, gradient_change = step * direction, new_gradient - gradient
        if iteration == 0:  # from now on in units of the curvature along the first step
            H = torch.eye(len(x), dtype=x.dtype, device=x.device)
            H = H * (change @ gradient_change) / gradient_change.square().sum().clamp_min(1e-300)
        H = _updated(H, change, gradient_change)
        x, value, gradient = x + change, new_value, new_gradient
        yield x, value


def _updated(H: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """(I − s zᵀ/ρ) H (I − z sᵀ/ρ) + s sᵀ/ρ with ρ = sᵀz, which the line search keeps positive."""
    rho = s @ z
    if not rho > 1e-12 * s.norm() * z.norm():
        return H
    Hz = H @ z
    return H - (torch.outer(Hz, s) + torch.outer(s, Hz)) / rho + (1.0 + z @ Hz / rho) * torch.outer(s, s) / rho


def _line_search(
    objective: Objective, x: Tensor, value: float, gradient: Tensor, direction: Tensor
) -> tuple[float, float, Tensor] | None:
    slope = float(gradient @ direction)
    if not slope < 0.0:
        return None
    low, high, step = 0.0, math.inf, 1.0
    accepted: tuple[float, float, Tensor] | None = None
    for _ in range(30):
        new_value, new_gradient = objective(x + step * direction)
        if not (math.isfinite(new_value) and new_value <= value + SUFFICIENT_DECREASE * step * slope):
            high = step
        else:
            accepted = (step, new_value, new_gradient)
            if float(new_gradient @ direction) >= CURVATURE * slope:
                return accepted
            low = step
        step = 0.5 * (low + high) if math.isfinite(high) else 2.0 * low
    return accepted
