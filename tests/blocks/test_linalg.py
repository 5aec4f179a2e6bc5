from __future__ import annotations

import pytest
import torch

from fsibench.blocks.linalg import add_to_diagonal, cholesky, gram, lower_gram
from fsibench.errors import Diverged


def covariance(size: int, draws: int) -> torch.Tensor:
    samples = torch.randn(draws, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return samples.mT @ samples / draws


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


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_the_lower_gram_has_the_factor_of_the_whole(size: int) -> None:
    features = torch.randn(size, 40, generator=torch.Generator().manual_seed(0))
    exact = features.double()
    torch.testing.assert_close(lower_gram(features).tril(), (exact @ exact.mT).tril())
    whole = exact @ exact.mT + 0.1 * torch.eye(size, dtype=torch.float64)
    torch.testing.assert_close(cholesky(add_to_diagonal(lower_gram(features), 0.1), 0.0)[0], torch.linalg.cholesky(whole))
