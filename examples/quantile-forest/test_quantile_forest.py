"""The installed method keeps every check of the contract, or says why it cannot."""

import pytest

from fsibench.testing import check_method, check_names


@pytest.mark.parametrize("check", check_names())
def test_contract(check: str) -> None:
    check_method("quantile_forest", check)
