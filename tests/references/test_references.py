"""Reference posteriors: the files that are kept, the problems behind them, and the two samplers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fsibench import registry
from fsibench.blocks.weight_posterior import BayesianNetwork
from fsibench.cli import main
from fsibench.contract import Budget, Data
from fsibench.data import prepare
from fsibench.methods.hmc import HMC
from fsibench.references import LEVELS, PROBLEMS, files, sampling
from fsibench.references.making import LARGEST_Z, NotAReference, require_agreement

KEPT = [problem for problem in PROBLEMS if files.path_of(problem).is_file()]


@pytest.mark.parametrize("problem", KEPT)
def test_a_kept_reference_is_small_complete_and_unchanged(problem: str) -> None:
    assert files.path_of(problem).stat().st_size < 2_000_000
    reference = files.read(files.path_of(problem))
    T = len(reference.inside)
    assert reference.inside.sum() == T // 2
    assert reference.draws.shape == (1000, T)
    assert reference.quantiles.shape == reference.log_density.shape == (T, len(LEVELS))
    assert (np.diff(reference.quantiles, axis=1) > 0).all()
    assert reference.checksum() == reference.about["checksum"]
    assert len(reference.about["noise"]) == 1000


@pytest.mark.parametrize("problem", KEPT)
def test_a_kept_reference_has_converged_and_its_samplers_agree(problem: str) -> None:
    reference = files.read(files.path_of(problem))
    assert reference.rhat.max() < 1.01
    assert reference.ess.min() > 1000
    assert np.abs(reference.z).max() < LARGEST_Z
    assert math.isfinite(reference.about["log_evidence"])
    require_agreement(reference.about)


@pytest.mark.parametrize("problem", KEPT)
def test_a_kept_reference_states_the_prior_and_belongs_to_the_rows_of_its_problem(problem: str) -> None:
    dataset = registry.dataset(f"reference-{problem}")
    reference = dataset.reference()
    assert reference is not None
    assert reference.about["prior"] == sampling.PRIOR
    rows = prepare(dataset, "paper", 0)
    assert reference.scale == pytest.approx(rows.standardiser.y_scale)
    assert len(rows.test_y) == len(reference.inside)
    # moments of the kept draws are those of all draws, within their Monte Carlo error
    z = (reference.draws.mean(0) - reference.mean) / (reference.sd / math.sqrt(500))
    assert np.abs(z).max() < 5.0


def test_a_reference_of_other_rows_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    if not KEPT:
        pytest.skip("no reference is kept")
    assert files.load(KEPT[0], "another fingerprint") is None
    monkeypatch.setattr("fsibench.datasets.reference.SEED", 16)
    assert registry.dataset(f"reference-{KEPT[0]}").reference() is None


@pytest.mark.parametrize("problem", PROBLEMS)
def test_problems_train_inside_and_test_on_both_sides(problem: str) -> None:
    dataset = registry.dataset(f"reference-{problem}")
    split = dataset.split("paper", 0)
    assert dataset.num_splits("paper") == 1
    assert 90 <= len(split.train_y) <= 200
    assert len(split.test_y) == 100
    centre, scale = split.train_x.mean(0), split.train_x.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    distance = np.square((split.test_x - centre) / scale).sum(1)
    assert np.median(distance[50:]) > np.median(distance[:50])


def tiny(num_rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, 2, generator=generator, dtype=torch.float64)
    return x, torch.sin(x[:, 0])


def test_both_samplers_have_the_same_density_and_so_has_the_method() -> None:
    x, y = tiny(12)
    written = sampling.Written(x, y)
    network = HMC(output_layer="sampled", prior="reference").network(Data(x, y), Budget(steps=1), torch.Generator())
    assert type(network) is BayesianNetwork
    xi = torch.randn(5, network.num_parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    D, H = 2, written.units
    w, v, b, c, noise = torch.split_with_sizes(xi, [D * H, H, H, 1, 1], dim=1)
    theta = torch.cat([w.view(-1, D, H).mT.flatten(1), b, v, c, noise], 1)
    assert written.functions(theta, x).numpy() == pytest.approx(network.functions(x, xi).numpy(), abs=1e-10)
    log_joint = written.log_likelihood(theta) - 0.5 * theta.square().sum(1)
    constant = (log_joint + network.potential(xi)[0]).tolist()
    assert constant == pytest.approx([constant[0]] * 5, abs=1e-8)


def test_the_evidence_of_smc_is_that_of_simple_monte_carlo() -> None:
    x, _ = tiny(8)
    y = torch.randn(8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)  # noise: draws of the prior reach it
    written = sampling.Written(x, y)
    theta = torch.randn(100_000, written.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = torch.cat([written.log_likelihood(part) for part in theta.split(10_000)])
    simple = float(values.logsumexp(0)) - math.log(len(values))
    found = [sampling.by_smc(x, y, x, seed, particles=200, moves=2, leaps=6, last_moves=1).log_evidence for seed in (1, 2)]
    assert np.mean(found) == pytest.approx(simple, abs=0.3)


def test_what_has_not_converged_is_no_reference() -> None:
    good = {"worst_rhat": 1.005, "least_ess": 2000.0, "worst_z": 2.0}
    require_agreement(good)
    for bad in ({"worst_rhat": 1.02}, {"least_ess": 900.0}, {"worst_z": 6.0}, {"worst_rhat": math.nan}):
        with pytest.raises(NotAReference, match="no reference"):
            require_agreement(good | bad)


def test_an_unknown_problem_is_named_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference", "bosten"]) == 2
    assert "boston" in capsys.readouterr().err


def test_a_file_survives_the_way_to_the_disk(tmp_path: Path) -> None:
    values = np.linspace(0.0, 1.0, 6)
    made = files.Reference(
        inside=np.array([True, False] * 3), draws=np.arange(12, dtype=np.float32).reshape(2, 6), mean=values, sd=values,
        quantiles=np.outer(values, LEVELS), log_density=np.outer(values, LEVELS), rhat=values, ess=values, z=values,
        about={"target_scale": 1.0, "noise": [1.0]},
    )  # fmt: skip
    files.save(made, tmp_path / "made.parquet")
    found = files.read(tmp_path / "made.parquet")
    assert found.checksum() == made.checksum() == found.about["checksum"]
    assert found.draws.shape == (2, 6)
