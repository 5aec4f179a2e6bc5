"""fBNN: the surrogate's gradient against a closed-form KL, behaviour far from data, measurement points."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fsibench.blocks.functional_network import process_prior
from fsibench.blocks.gaussian import factor, gaussian_kl
from fsibench.blocks.kernels import GaussianProcess, rbf
from fsibench.blocks.priors import GaussianProcessPrior
from fsibench.blocks.priors.reference import ReferencePrior
from fsibench.checks import problems
from fsibench.contract import Budget, Data, Meter
from fsibench.errors import UsageError
from fsibench.methods.fbnn import FBNN, SteinNetwork


def wave(num_rows: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(num_rows, 1, generator=generator) - 2.0
    return Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(num_rows, generator=generator))


def fitted(data: Data, steps: int, **options: object) -> SteinNetwork:
    posterior = problems.fit(FBNN(**options), data, steps)
    assert isinstance(posterior, SteinNetwork)
    return posterior


def unit_process() -> GaussianProcess:
    one = torch.ones((), dtype=torch.float64)
    return GaussianProcess(0.7 * torch.ones(1, dtype=torch.float64), one, 0.01 * one)


def test_with_exact_scores_the_surrogate_has_the_gradient_of_the_closed_form_kl() -> None:
    # q: f = Φ w with w ~ N(m, diag s²), so q(f + gε) is N(Φ m, Φ diag s² Φᵀ + g² I); p a Gaussian process.
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)[:, None]
    Phi = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    mean = torch.randn(4, generator=generator, dtype=torch.float64).requires_grad_()
    log_scale = (0.3 * torch.randn(4, generator=generator, dtype=torch.float64)).requires_grad_()
    nugget, process = 0.1, unit_process()
    identity = torch.eye(6, dtype=torch.float64)

    covariance = (Phi * (2.0 * log_scale).exp()) @ Phi.mT + nugget * identity
    L_p = factor(rbf(x, x, 0.7) + nugget * identity)
    kl = gaussian_kl(Phi @ mean, factor(covariance), torch.zeros(6, dtype=torch.float64), L_p)
    exact = torch.autograd.grad(kl, [mean, log_scale])

    eps = torch.randn(400_000, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(400_000, 6, generator=generator, dtype=torch.float64)
    f = (mean + log_scale.exp() * eps) @ Phi.mT
    with torch.no_grad():
        noisy = f + nugget**0.5 * noise
        score_q = -torch.cholesky_solve((noisy - Phi @ mean).mT, factor(covariance)).mT
        score_p = process.score(noisy, x, nugget)
    surrogate = ((score_q - score_p) * f).sum(1).mean()
    estimate = torch.autograd.grad(surrogate, [mean, log_scale])
    for ours, theirs in zip(estimate, exact, strict=True):
        assert ours.numpy() == pytest.approx(theirs.numpy(), abs=0.02 * float(theirs.abs().max()) + 0.02)


def network(data: Data, **options: object) -> SteinNetwork:
    """An untrained posterior with its prior."""
    method, generator = FBNN(**options), torch.Generator().manual_seed(0)
    return SteinNetwork(method, data, method.make_prior(data, Budget(steps=1), generator), generator)


def gp_prior() -> GaussianProcessPrior:
    """The prior whose process is `unit_process()`."""
    prior = GaussianProcessPrior(1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        prior.log_scales.copy_(torch.tensor([math.log(0.7), 0.0]))
    return prior


def test_the_surrogate_of_the_network_has_the_gradient_of_the_closed_form_kl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear q and a GP prior: with the exact score of q, `kl_surrogate` is differentiated to the gradient of the KL."""
    x, g = torch.linspace(-1.0, 1.0, 4)[:, None], 0.3
    data = Data(x, x[:, 0])
    options = FBNN(prior="gp", injected_noise=g, hidden_layers=0, initial_log_scale=-0.5)
    model = SteinNetwork(options, data, gp_prior(), torch.Generator().manual_seed(0))

    # f = x w + b with w ~ N(m, s²): a Gaussian of rank one, and g²I
    def moments() -> tuple[Tensor, Tensor]:
        scale = model.q.log_scales.exp()
        covariance = (x * scale) @ (x * scale).mT + g**2 * torch.eye(4)
        return x[:, 0] * model.q.means + model.q.biases, covariance

    mean, covariance = moments()
    L_p = factor(rbf(x.double(), x.double(), 0.7) + g**2 * torch.eye(4, dtype=torch.float64))
    zero = torch.zeros(4, dtype=torch.float64)
    exact = torch.autograd.grad(gaussian_kl(mean.double(), factor(covariance.double()), zero, L_p), model.q.parameters)

    def exact_score(f: Tensor) -> Tensor:
        with torch.no_grad():
            mean, covariance = moments()
            score: Tensor = -torch.linalg.solve(covariance.double(), (f - mean).double().mT).mT
            return score

    monkeypatch.setattr(model, "posterior_score", exact_score)
    stream = torch.Generator().manual_seed(1)
    f = model.q.functions(x, model.q.draw_noise(200_000, stream))
    estimate = torch.autograd.grad(model.kl_surrogate(f, x, stream), model.q.parameters)
    for ours, theirs in zip(estimate, exact, strict=True):
        assert ours.numpy() == pytest.approx(theirs.numpy(), rel=0.05, abs=0.1)


@pytest.mark.slow
def test_far_from_the_data_the_spread_grows_to_that_of_the_gaussian_process_prior() -> None:
    generator = torch.Generator().manual_seed(1)
    x = 2.0 * torch.rand(20, 1, generator=generator) - 1.0
    data = Data(x, torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(20, generator=generator))
    options = FBNN(prior="gp", score="whitened", num_random=20, initial_log_scale=-2.0)
    model = SteinNetwork(options, data, gp_prior(), torch.Generator().manual_seed(0))
    model.low, model.high = torch.tensor([-3.0]), torch.tensor([3.0])  # the prior is to be met outside the data
    optimiser = torch.optim.Adam(model.parameters, lr=1e-2)
    stream = torch.Generator().manual_seed(3)
    for _ in range(500):
        optimiser.zero_grad()
        model.loss(data, 1.0, stream).backward()
        optimiser.step()
    left, inside, right = model.draw(torch.tensor([[-2.8], [0.0], [2.8]]), 500, stream).std(0).tolist()
    assert inside < 0.2
    assert left == pytest.approx(1.0, abs=0.35)  # the prior's standard deviation is 1
    assert right == pytest.approx(1.0, abs=0.35)


@pytest.mark.parametrize("rows", [10, 4])
def test_the_kl_weighs_as_much_as_the_option_says_also_in_a_short_last_batch(rows: int) -> None:
    data = wave(40)
    batch = Data(data.x[:rows], data.y[:rows])

    def kl_part(kl_weight: str) -> float:
        model = network(data, kl_weight=kl_weight, batch_size=10)
        losses: list[float] = [model.loss(batch, beta, torch.Generator().manual_seed(1)).item() for beta in (1.0, 0.0)]
        return losses[0] - losses[1]

    assert kl_part("batch") == pytest.approx(4.0 * kl_part("data"), rel=1e-3)


@pytest.mark.parametrize(("start_steps", "cheap"), [(3, 3), (500, 4), (0, 0)])
def test_the_first_steps_have_no_kl(start_steps: int, cheap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    surrogate = SteinNetwork.kl_surrogate

    def counted(self: SteinNetwork, f: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        asked.append(1)
        value: Tensor = surrogate(self, f, points, generator)
        return value

    monkeypatch.setattr(SteinNetwork, "kl_surrogate", counted)
    method = FBNN(warm_up=0.2, start_steps=start_steps, num_draws=10)
    counts = [len(asked) for _ in Meter(steps=40).pulls(method, wave(30), torch.Generator().manual_seed(0))]
    # at most half of the warm-up: 0.1 of 40 steps
    assert counts == [max(step - cheap, 0) for step in range(1, 41)]


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="start_steps"):
        FBNN(start_steps=-1)
    with pytest.raises(ValueError, match="num_draws must be at least 2"):
        FBNN(num_draws=1)
    with pytest.raises(UsageError, match="above 0"):
        FBNN(prior_scale=-1.0)
    with pytest.raises(UsageError, match="give one"):
        FBNN(prior_scale=1.0, prior_log_scale=-5.0)


def test_functions_are_drawn_with_one_weight_vector_each() -> None:
    model = fitted(wave(20), 2)
    x = torch.tensor([[0.3], [0.3], [1.0]])
    f = model.draw(x, 50, torch.Generator().manual_seed(0))
    assert f[:, 0].numpy() == pytest.approx(f[:, 1].numpy(), abs=1e-6)
    assert f[:, 0].std().item() > 0.01


def test_the_noise_stays_above_its_floor() -> None:
    model = fitted(wave(20), 30, smallest_noise=0.5, initial_log_noise=-3.0)
    assert float(model.trace()["noise"]) >= 0.5


def test_training_ends_after_its_epochs() -> None:
    pulls = list(Meter(steps=100).pulls(FBNN(max_epochs=3, batch_size=10), wave(25), torch.Generator()))
    assert len(pulls) == 9


def test_a_late_kl_is_a_departure_from_the_objective() -> None:
    assert not FBNN().departure()
    assert "cold posterior" in FBNN(warm_up=0.9).departure()


@pytest.mark.parametrize("inputs", [1, 5])
def test_a_fixed_prior_is_not_fitted(inputs: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, inputs, generator=generator)
    prior = process_prior("reference", x, 3.0 * x.sum(1), generator, (20,), None, lambda: False)
    assert isinstance(prior, ReferencePrior)
    torch.testing.assert_close(prior.log_scales, ReferencePrior(inputs, generator).log_scales)


def test_only_the_network_prior_answers_for_the_published_column() -> None:
    assert FBNN().published_column() == "fBNN_BNN"
    assert FBNN(prior="gp").published_column() == ""


@pytest.mark.parametrize(("prior", "score"), [("bnn", "spectral"), ("gp", "whitened")])
def test_it_learns_half_a_wave(prior: str, score: str) -> None:
    def half_wave(seed: int) -> Data:
        data = wave(60, seed)
        return Data(data.x, torch.sin(data.x[:, 0]) + 0.1 * data.y)

    train, test = half_wave(0), half_wave(1)
    model = fitted(train, 250, prior=prior, score=score, learning_rate=1e-2)
    reached = model.predict(test.x, torch.Generator().manual_seed(0)).log_prob(test.y).mean().item()
    constant = torch.distributions.Normal(train.y.mean(), train.y.std()).log_prob(test.y).mean().item()
    assert reached > constant + 0.7


@pytest.mark.parametrize(("num_rows", "expected"), [(300, 20), (1999, 20), (2000, 500)])
def test_large_tables_take_the_batches_of_the_script_for_large_tables(
    num_rows: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, batches = [], Data.batches

    def watched(self: Data, size: int, generator: torch.Generator) -> Iterator[Data]:
        sizes.append(size)
        return batches(self, size, generator)

    monkeypatch.setattr(Data, "batches", watched)
    next(FBNN(prior_scale=1.0).fit(wave(num_rows), Budget(steps=1), torch.Generator().manual_seed(0)))
    assert sizes == [expected]
