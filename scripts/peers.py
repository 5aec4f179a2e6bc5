"""A training step of ours beside the same step of public packages, in one run.

    python scripts/peers.py [--rounds N] [--peers A,B] [--json FILE]

Both sides fit the same rows (boston, split 0), with the same batch, network and number of draws, one thread, float32
unless said; rounds alternate between the two, and the ratio of CPU times of each round counts. A package that is not
installed, or does not load, is named with its reason. Not all of it is the same arithmetic: ours reuses draws and
integrates in closed form where the paper's objective allows it. That is the point, and it is said in the last column.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from fsibench import Budget, registry
from fsibench.blocks.allocator import keep_freed_memory
from fsibench.harness.step_costs import Steps, cpu_milliseconds, training_rows

BATCH, UNITS, DRAWS = 10, 50, 10
SECONDS_PER_ROUND = 0.2
Step = Callable[[], object]


def ours(entry: str) -> Step:
    steps = Steps(entry)
    return lambda: next(steps)


def whole_fit(entry: str) -> Step:
    """An exact method, to its optimum."""
    method, train = registry.entry(entry).method, training_rows()

    def run() -> None:
        for _ in method.fit(train, Budget(steps=100), torch.Generator().manual_seed(0)):
            pass

    return run


def trained(network: Any, divergence: Callable[[], Any]) -> Step:
    """An Adam step on the bound of a Bayesian network of another package: ten passes over a batch, one for each draw."""
    train = training_rows()
    log_noise = torch.nn.Parameter(torch.tensor(-2.0))
    optimiser = torch.optim.Adam([*network.parameters(), log_noise], lr=1e-3)
    batches = train.batches(BATCH, torch.Generator().manual_seed(0))

    def step() -> None:
        batch = next(batches)
        total = torch.zeros(())
        for _ in range(DRAWS):
            residual = batch.y - network(batch.x).squeeze(1)
            total = total + 0.5 * (log_noise + residual.square() / log_noise.exp()).mean() / DRAWS
        loss = total + divergence() / len(train)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def torchbnn() -> Step:
    import torchbnn as bnn

    inputs = training_rows().num_inputs
    sizes = ((inputs, UNITS), (UNITS, UNITS), (UNITS, 1))
    layers = [bnn.BayesLinear(0.0, 0.1, *size) for size in sizes]
    network = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    kl = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return trained(network, lambda: kl(network))


def bayesian_torch() -> Step:
    from bayesian_torch.layers import LinearReparameterization

    inputs = training_rows().num_inputs

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((inputs, UNITS), (UNITS, UNITS), (UNITS, 1))
            self.layers = torch.nn.ModuleList(LinearReparameterization(*size) for size in sizes)
            self.kl = torch.zeros(())

        def forward(self, x: Any) -> Any:
            self.kl = torch.zeros(())
            for number, layer in enumerate(self.layers):
                x, kl = layer(x)
                self.kl = self.kl + kl
                x = torch.relu(x) if number < 2 else x
            return x

    network = Network()
    return trained(network, lambda: network.kl)


def blitz() -> Step:
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    inputs = training_rows().num_inputs

    @variational_estimator
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = BayesianLinear(inputs, UNITS), BayesianLinear(UNITS, UNITS), BayesianLinear(UNITS, 1)

        def forward(self, x: Any) -> Any:
            return self.last(torch.relu(self.second(torch.relu(self.first(x)))))

    network: Any = Network()
    return trained(network, network.nn_kl_divergence)


def gpytorch_gp() -> Step:
    """Maximum of the evidence by L-BFGS from one start, float64."""
    import gpytorch

    train = training_rows()

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    def run() -> None:
        x, y = train.x.double(), train.y.double()
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Model(x, y, likelihood).double().train()
        likelihood.double().train()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> Any:
            optimiser.zero_grad()
            loss = -evidence(model(x), y)
            loss.backward()
            return loss

        with gpytorch.settings.fast_computations(False, False, False):
            optimiser.step(closure)

    return run


def sklearn_gp() -> Step:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    train = training_rows()
    x, y = train.x.double().numpy(), train.y.double().numpy()

    def run() -> None:
        kernel = ConstantKernel(1.0) * RBF([1.0] * x.shape[1]) + WhiteKernel(0.1)
        GaussianProcessRegressor(kernel).fit(x, y)

    return run


COMPARISONS: tuple[tuple[str, str, Callable[[], Step], Callable[[], Step], str], ...] = (
    ("BBB step", "torchbnn", lambda: ours("bbb[preset=paper]"), torchbnn, "ours draws activations, they draw weights"),
    ("BBB step", "bayesian-torch", lambda: ours("bbb[preset=paper]"), bayesian_torch, "ours draws activations, they draw weights"),
    ("BBB step", "blitz-bayesian-pytorch", lambda: ours("bbb[preset=paper]"), blitz, "they estimate the divergence by a draw"),
    ("exact GP to its optimum", "gpytorch", lambda: whole_fit("gp[starts=1]"), gpytorch_gp, "L-BFGS, one start each"),
    ("exact GP to its optimum", "scikit-learn", lambda: whole_fit("gp[starts=1]"), sklearn_gp, "L-BFGS, one start each"),
)


def compared(what: str, peer: str, make_ours: Callable[[], Step], make_theirs: Callable[[], Step], remark: str, rounds: int) -> dict[str, Any]:
    try:
        mine, theirs = make_ours(), make_theirs()
        for step in (mine, theirs):  # what is paid once
            step()
        pairs = [tuple(cpu_milliseconds(step, SECONDS_PER_ROUND) for step in (mine, theirs)) for _ in range(rounds)]
    except Exception as error:  # noqa: BLE001 (a package of others may fail in any way; the table says how)
        return {"what": what, "peer": peer, "remark": f"not run: {type(error).__name__}: {error}".splitlines()[0]}
    return {
        "what": what,
        "peer": peer,
        "ours, ms": statistics.median(one for one, _ in pairs),
        "theirs, ms": statistics.median(other for _, other in pairs),
        "ours / theirs": statistics.median(one / other for one, other in pairs),
        "remark": remark,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", metavar="A,B", help="only these packages")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    wanted = arguments.peers.split(",") if arguments.peers else [peer for _, peer, *_ in COMPARISONS]
    table = [compared(*comparison, arguments.rounds) for comparison in COMPARISONS if comparison[1] in wanted]
    print(tabulate(table, headers="keys", floatfmt=".3g"))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
