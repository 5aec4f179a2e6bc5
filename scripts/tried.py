"""Small ways of doing the same thing, timed in turn in one process: the figures of docs/performance.md.

    python scripts/tried.py [--rounds N]

One line each: the usual way, another way, and the ratio of their CPU times (above 1: the other way is slower). One thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tabulate import tabulate

from fsibench.blocks.allocator import keep_freed_memory
from fsibench.harness.step_costs import cpu_milliseconds

SECONDS_PER_ROUND = 0.05
Call = Callable[[], object]
generator = torch.Generator().manual_seed(0)


def normals(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=dtype)


def adam(**options: Any) -> Call:
    """A step on the eight parameters of a small network."""
    shapes = ((13, 50), (50,), (50, 50), (50,), (50, 1), (1,), (1,), (1,))
    parameters = [torch.nn.Parameter(normals(*shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.Adam(parameters, lr=1e-3, **options).step


def flat_adam() -> Call:
    parameter = torch.nn.Parameter(normals(3303))
    parameter.grad = torch.ones_like(parameter)
    return torch.optim.Adam([parameter], lr=1e-3, fused=True).step


def gram(dtype: torch.dtype) -> torch.Tensor:
    root = normals(100, 200, dtype=dtype)
    return root @ root.mT / 200 + 1e-3 * torch.eye(100, dtype=dtype)


def gradient_of_log_determinant(by_hand: bool) -> Call:
    """∂ log det K / ∂K is K⁻¹: through the Cholesky factor by autograd, or by `cholesky_inverse`."""
    K = gram(torch.float64).requires_grad_()

    def automatic() -> object:
        value = 2.0 * torch.linalg.cholesky(K).diagonal().log().sum()
        return torch.autograd.grad(value, K)[0]

    def written() -> object:
        with torch.no_grad():
            return torch.cholesky_inverse(torch.linalg.cholesky(K))

    return written if by_hand else automatic


def comparisons() -> Iterator[tuple[str, str, Call, str, Call]]:
    single, fused, foreach = adam(foreach=False), adam(fused=True), adam(foreach=True)
    yield "Adam, eight small tensors", "loop", single, "fused", fused
    yield "Adam, eight small tensors", "loop", single, "foreach", foreach
    yield "Adam", "eight tensors, fused", fused, "one flat tensor, fused", flat_adam()
    left, right = normals(100, 110, 50), normals(100, 50, 50)
    yield "100 products 110×50 by 50×50", "bmm", lambda: torch.bmm(left, right), "einsum", lambda: torch.einsum("snk,skm->snm", left, right)
    chunks = [(left[i : i + 10], right[i : i + 10]) for i in range(0, 100, 10)]
    yield "the same", "at once", lambda: torch.bmm(left, right), "in chunks of 10", lambda: [torch.bmm(a, b) for a, b in chunks]
    double, half = gram(torch.float64), gram(torch.float64).float()
    yield "Cholesky of 100×100", "float64", lambda: torch.linalg.cholesky(double), "float32", lambda: torch.linalg.cholesky(half)
    yield "gradient of log det, 100×100", "autograd", gradient_of_log_determinant(False), "by hand", gradient_of_log_determinant(True)
    values = normals(500, 1000)
    yield "sort of 500×1,000", "torch", lambda: values.sort(dim=0), "numpy", lambda: values.numpy().copy().sort(axis=0)
    yield (
        "320,000 normals", "float64", lambda: torch.randn(320_000, generator=generator, dtype=torch.float64),
        "float32", lambda: torch.randn(320_000, generator=generator),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    for what, usual, first, other, second in comparisons():
        pairs = [tuple(cpu_milliseconds(call, SECONDS_PER_ROUND) for call in (first, second)) for _ in range(rounds + 1)][1:]
        ratio = statistics.median(b / a for a, b in pairs)
        rows.append((what, usual, 1e3 * statistics.median(a for a, _ in pairs), other, 1e3 * statistics.median(b for _, b in pairs), ratio))
    headers = ("what", "usual", "µs", "other", "µs", "other / usual")
    print(tabulate(rows, headers=headers, floatfmt=".3g"))


if __name__ == "__main__":
    main()
