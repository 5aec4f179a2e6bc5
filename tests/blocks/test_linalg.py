from __future__ import annotations

import pytest
import torch

from fsibench.blocks.linalg import cholesky, gram, solve_positive_definite
from fsibench.errors import Diverged


def covariance(size: int, draws: int) -> torch.Tensor:
    samples = torch.randn(draws, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return samples.mT @ samples / draws


def test_solve_equals_the_dense_inverse() -> None:
    K, right = covariance(6, 20), torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.linalg.solve(K + 1e-3 * torch.eye(6, dtype=torch.float64), right)
    torch.testing.assert_close(solve_positive_definite(K, right, 1e-3)[0], expected)


def test_gradients_of_the_solve_are_those_of_finite_differences() -> None:
    K = covariance(5, 9).requires_grad_()
    right = torch.ones(5, 2, dtype=torch.float64, requires_grad=True)

    def symmetric_solve(matrix: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return solve_positive_definite(0.5 * (matrix + matrix.mT), right)[0]

    assert torch.autograd.gradcheck(symmetric_solve, [K, right])


def test_jitter_grows_until_the_factorisation_succeeds() -> None:
    slightly_negative = torch.diag(torch.tensor([1.0, 1.0, -1e-3], dtype=torch.float64))
    factor, jitter = cholesky(slightly_negative, 1e-5)
    assert jitter == pytest.approx(1e-2)
    torch.testing.assert_close(factor @ factor.mT, slightly_negative + jitter * torch.eye(3, dtype=torch.float64))


def test_rank_deficient_matrices_factorise() -> None:
    factor, jitter = cholesky(covariance(10, 3), 1e-5)
    assert jitter == 1e-5
    assert bool(torch.isfinite(factor).all())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_non_finite_matrices_are_reported(bad: float) -> None:
    with pytest.raises(Diverged, match="not finite"):
        cholesky(torch.full((3, 3), bad, dtype=torch.float64))


def test_indefinite_matrices_are_reported() -> None:
    with pytest.raises(Diverged, match="not positive definite"):
        cholesky(-100.0 * torch.eye(3, dtype=torch.float64))


def test_the_gradient_of_the_gram_matrix_is_that_of_finite_differences() -> None:
    features = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(gram, (features,))
    torch.testing.assert_close(gram(features), features @ features.mT)
    assert gram(features.float()).dtype == torch.float64
