from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fsibench import registry
from fsibench.blocks.evidence import log_evidence
from fsibench.blocks.networks import DropoutMasks
from fsibench.blocks.priors import (
    BUILT_IN,
    BNNPrior,
    GaussianProcessPrior,
    NeuralSamplerPrior,
    Prior,
    make_prior,
    sample_moments,
)
from fsibench.checks import problems
from fsibench.errors import UsageError

F64 = torch.float64


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(num_rows: int, seed: int = 9) -> Tensor:
    return torch.randn(num_rows, 3, generator=stream(seed), dtype=F64)


@pytest.fixture(params=[*BUILT_IN, "random biases"])
def prior(request: pytest.FixtureRequest) -> Prior:
    if request.param == "random biases":
        return make_prior("bnn", inputs(1), stream(), log_scale=(-1.0, 0.1), bias_log_scale=-1.0, nonlinearity="tanh")
    return make_prior(request.param, inputs(1), stream(), log_scale=(-1.0, 0.1), hidden=(9, 8))


def test_one_noise_is_one_function_wherever_it_is_evaluated(prior: Prior) -> None:
    x, noise = inputs(8), prior.draw_noise(5, stream(1))
    whole = prior.functions(x, noise)
    assert whole.shape == (5, 8)
    pieces = [prior.functions(x[:3], noise), prior.functions(x[3:], noise)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole)


def test_draws_differ_between_functions_and_follow_the_generator(prior: Prior) -> None:
    x = inputs(4)
    draws = prior.draw(x, 6, stream(2)).detach()
    assert float(draws.std(0).min()) > 0.0
    torch.testing.assert_close(prior.draw(x, 6, stream(2)).detach(), draws)
    assert not torch.equal(prior.draw(x, 6, stream(3)), draws)


def test_gradients_reach_inputs_and_every_parameter(prior: Prior) -> None:
    x = inputs(4).requires_grad_()
    prior.functions(x, prior.draw_noise(6, stream(2))).square().sum().backward()
    for tensor in [x, *prior.parameters]:
        assert tensor.grad is not None
        assert float(tensor.grad.abs().sum()) > 0.0


def test_condition_passes_gradients_that_equal_finite_differences(prior: Prior) -> None:
    x, u, noise = inputs(2), inputs(4, seed=3)[:2].repeat(1, 2)[:, :4], prior.draw_noise(12, stream(1))

    def moments(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        conditional = prior.condition(x, z, u, noise)
        return conditional.mean, conditional.variance, conditional.f_z

    assert torch.autograd.gradcheck(moments, [inputs(4, seed=4).requires_grad_()], atol=1e-4)


def test_condition_returns_the_functions_at_the_inducing_inputs(prior: Prior) -> None:
    z, noise = inputs(5, seed=4), prior.draw_noise(7, stream(1))
    conditional = prior.condition(inputs(2), z, torch.zeros(3, 5, dtype=F64), noise)
    torch.testing.assert_close(conditional.f_z, prior.functions(z, noise))
    assert conditional.mean.shape == (3, 2)
    assert conditional.variance.shape == (2,)


def test_bnn_weights_have_the_standard_deviation_exp_r() -> None:
    prior = BNNPrior(1, stream(), hidden=(), mean_scale=0.0, log_scale=(-0.7, 0.0), bias_scale=0.0, dtype=F64)
    draws = prior.draw(torch.ones(1, 1, dtype=F64), 100_000, stream(1)).detach()  # f(1) = w
    assert float(draws.std()) == pytest.approx(torch.tensor(-0.7).exp().item(), rel=0.01)


def test_bnn_prior_can_start_at_the_scale_of_its_layers() -> None:
    prior = BNNPrior(3, stream(), mean_scale=0.0, log_scale=None, bias_scale=0.0, dtype=F64)
    values = prior.draw(inputs(50), 300, stream(1)).detach()
    assert 0.3 < float(values.std()) < 3.0


def test_neural_sampler_covariance_has_at_most_its_rank() -> None:
    prior = NeuralSamplerPrior(3, stream(), rank=4, dtype=F64)
    functions = prior.draw(inputs(30), 200, stream(1)).detach()
    assert int(torch.linalg.matrix_rank(torch.cov(functions.mT), rtol=1e-10)) == 4


def test_dropout_acts_on_hidden_layers_of_the_neural_sampler_only() -> None:
    """No value is dropped to zero, other than in the Bayesian network, whose output is masked as well."""
    x = inputs(20)
    sampler, network = NeuralSamplerPrior(3, stream(), dtype=F64), BNNPrior(3, stream(), dtype=F64)
    dropped = [
        float((prior.functions(x, prior.draw_noise(30, stream(1)), DropoutMasks(0.2, stream(2))) == 0).double().mean())
        for prior in (sampler, network)
    ]
    assert dropped[0] == 0.0
    assert dropped[1] == pytest.approx(0.2, abs=0.06)


def test_gaussian_process_draws_have_the_covariance_of_the_kernel() -> None:
    prior = GaussianProcessPrior(2, stream(), num_features=2_000, dtype=F64)
    with torch.no_grad():
        prior.log_scales[:] = torch.tensor([-0.2, 0.5, 0.4], dtype=F64)
    x = torch.randn(5, 2, generator=stream(3), dtype=F64)
    through_features = prior.functions(x, prior.draw_noise(5_000, stream(1))).detach()
    lengthscales = torch.tensor([-0.2, 0.5], dtype=F64).exp()
    exact = math.exp(0.4) * torch.exp(-0.5 * torch.cdist(x / lengthscales, x / lengthscales).square())
    for draws in (prior.draw(x, 5_000, stream(1)), through_features):
        torch.testing.assert_close(torch.cov(draws.mT), exact, atol=0.15, rtol=0.0)
    torch.testing.assert_close(prior.process.covariance(x, x), exact)


def test_the_hyper_prior_of_a_bayesian_network_is_gaussian_in_units_of_its_layers() -> None:
    start = BNNPrior(3, torch.Generator().manual_seed(0), hidden=(4,), mean_scale=0.0, log_scale=None)
    assert start.log_hyperprior(2.0, 2.0).item() == 0.0  # its mode: means 0, scales that keep the size of activations
    with torch.no_grad():
        start.means += 1.0
        start.log_scales += 0.5
    # fan-in 3 for 12 weights, 4 for 4; 1/s₀² = 1.04/2 · fan-in
    inverse_squares = 0.52 * (12 * 3 + 4 * 4)
    expected = -0.5 * (inverse_squares / 4.0 + 16 * 0.25 / 9.0)
    assert start.log_hyperprior(means=2.0, scales=3.0).item() == pytest.approx(expected)


def test_a_process_without_a_hyper_prior_says_so() -> None:
    with pytest.raises(UsageError, match="no hyper-prior"):
        GaussianProcessPrior(2, torch.Generator()).log_hyperprior(1.0, 1.0)


def test_an_unknown_prior_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(UsageError, match="unknown prior 'bn'; did you mean 'bnn'"):
        make_prior("bn", inputs(1), stream())


LINES = '''
import torch
from fsibench.blocks.draws import normal
from fsibench.blocks.priors import Prior

class Lines(Prior):
    """f(x) = w · x with w ~ N(0, scale²): all that a prior has to say."""

    def __init__(self, num_inputs, generator, dtype, scale=1.0):
        self.scale, self.like = scale, torch.empty(num_inputs, dtype=dtype)

    @property
    def parameters(self):
        return []

    def draw_noise(self, num_draws, generator):
        return normal(generator, num_draws, len(self.like), like=self.like)

    def functions(self, x, noise, dropout=None):
        return self.scale * noise @ x.mT
'''


def test_a_prior_of_a_plugin_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "lines_prior-1.0.dist-info"
    info.mkdir()
    (tmp_path / "lines_prior.py").write_text(LINES, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines-prior\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fsibench.priors]\nlines = lines_prior:Lines\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = make_prior("lines", inputs(1), stream(), scale=0.5, hidden=(50,))
    assert float(made.draw(torch.eye(3, dtype=F64), 20_000, stream(1)).std()) == pytest.approx(0.5, rel=0.02)
    posterior = problems.fit(registry.entry("sip[prior=lines]").method, problems.linear_data(), 2)
    assert posterior.predict(torch.zeros(4, 3), stream()).num_points == 4


@pytest.mark.parametrize("name", ["bnn_tied", "ns", "ns_concat"])
def test_a_prior_of_ours_is_its_own_file_and_the_list(name: str) -> None:
    """Nothing else knows a prior that needs no treatment of its own (bnn, gp and reference have methods that do)."""
    root = Path(__file__).parents[2]
    naming = [
        path
        for folder in ("src/fsibench", "methods")
        for path in (root / folder).rglob("*.py")
        if re.search(rf"\b{BUILT_IN[name].__name__}\b", path.read_text(encoding="utf-8"))
    ]
    own = Path(sys.modules[BUILT_IN[name].__module__].__file__ or "")
    assert sorted(naming) == sorted([own, own.parent / "__init__.py"])


def test_integrating_the_output_layer_keeps_the_covariance_and_scatters_less() -> None:
    x = inputs(12)
    prior = BNNPrior(3, stream(), mean_scale=0.0, log_scale=None, dtype=F64)

    def covariances(moments: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """Of 200 sets of 40 draws each: [200, 12, 12]."""
        source = stream(1)
        with torch.no_grad():
            sets = [moments(prior.draw_noise(40, source))[1] for _ in range(200)]
        return torch.stack([features @ features.mT for features in sets])

    integrated = covariances(lambda noise: prior.moments(x, noise))
    sampled = covariances(lambda noise: sample_moments(prior.functions(x, noise)))
    assert float((integrated.mean(0) - sampled.mean(0)).norm()) < 0.06 * float(sampled.mean(0).norm())
    assert integrated.var(0).mean().item() < 0.5 * sampled.var(0).mean().item()


def test_random_biases_are_in_the_moments_of_the_reference_prior() -> None:
    generator = torch.Generator().manual_seed(0)
    prior = make_prior("reference", torch.zeros(1, 3), generator)
    x = 2.0 * torch.randn(6, 3, generator=generator)
    expected = torch.cov(prior.draw(x, 100_000, generator).mT)
    mean, features = prior.moments(x, prior.draw_noise(4_000, generator))
    assert mean.abs().max() == 0.0  # no weight of the output layer has a mean
    torch.testing.assert_close(features @ features.mT, expected, atol=0.02, rtol=0.02)
    few = prior.draw_noise(40, generator)
    features, functions = prior.moments(x, few)[1], prior.functions(x, few)
    integrated, sampled = ((covariance - expected).square().mean() for covariance in (features @ features.mT, torch.cov(functions.mT)))
    assert 10.0 * integrated < sampled


def test_the_scale_of_a_bayesian_network_is_found_from_its_own_functions() -> None:
    generator = stream()
    x = torch.randn(200, 3, generator=generator)
    for truth in (0.7, 1.5):
        source = BNNPrior(3, stream(1), mean_scale=0.0, log_scale=None)
        with torch.no_grad():
            source.log_scales += math.log(truth)
        found = []
        for f in source.draw(x, 5, generator).detach():
            prior = BNNPrior(3, stream(1), mean_scale=0.0, log_scale=None)
            prior.fit_scale(x, f + 0.1 * torch.randn(200, generator=generator), stream(2))
            found.append(float((prior.log_scales.detach() - prior.kept_scales.log()).mean().exp()))
        assert sum(found) / len(found) == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("name", ["bnn", "gp", "ns"])
def test_fitting_by_evidence_raises_the_evidence(name: str) -> None:
    x = torch.randn(60, 2, generator=stream(1))
    y = torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(60, generator=stream(2))
    prior = make_prior(name, x, stream(), mean_scale=0.0, log_scale=None, weight_scale=None)
    noise, variance = prior.draw_noise(50, stream(3)), torch.tensor(0.05)
    before = log_evidence(prior, x, y, noise, variance).item()
    prior.fit_evidence(x, y, stream(4), 60)
    assert log_evidence(prior, x, y, noise, variance).item() > before + 10.0


def test_a_fit_by_evidence_stops_when_told() -> None:
    x = torch.randn(30, 2, generator=stream(1))
    prior, calls = BNNPrior(2, stream(), mean_scale=0.0, log_scale=None), []

    def stop() -> bool:
        calls.append(1)
        return len(calls) == 3

    prior.fit_evidence(x, x[:, 0], stream(2), 100, stop)
    assert len(calls) == 3
