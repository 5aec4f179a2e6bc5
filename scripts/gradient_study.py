"""Appendix A of the SIP paper: how much of the prior's gradient comes from the KL term?

    python scripts/gradient_study.py [--lite] [--out FOLDER]

SIP with a BNN prior and KL(q ‖ p) alone is trained on the bimodal data. Then, for the parameters θ of the prior with the largest
gradients of the data term and for all inducing inputs, the gradient of KL = E_q[T*(u)] is estimated as the paper does: T is trained
to its optimum, the parameter is moved by ±h, T is trained again, and the two values of E_q[T] are compared; the same draws of q and
the same noise of p throughout, several repetitions for error bars. E_q[∂T*/∂θ] = −E_q[∂ log p_θ(u)/∂θ] need not be small, so the
gradient of the KL between Gaussians with the means and variances of q and p, by autograd, is set beside it. Gradients are those of the
whole data set, N times those of a row.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fsibench.blocks.adversarial import Discriminator, Moments
from fsibench.contract import Budget, Data
from fsibench.data import prepare
from fsibench.methods.sip import SIP, SparseImplicitProcess
from fsibench.registry import dataset
from fsibench.reports import figures


@dataclass(frozen=True)
class Size:
    """How much is computed."""

    training_steps: int
    num_theta: int
    num_inducing: int
    discriminator_steps: int
    retraining_steps: int
    num_draws: int
    repetitions: int


FULL = Size(20_000, 500, 50, 5_000, 500, 1000, 5)
LITE = Size(1_500, 15, 15, 1_000, 100, 200, 2)
STEP = 0.02  # h


def stream(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(sum(number * 1009**place for place, number in enumerate(numbers)))


def trained(size: Size) -> tuple[SparseImplicitProcess, Data]:
    rows = prepare(dataset("bimodal"), "paper", 0)
    train = Data(torch.as_tensor(np.asarray(rows.train_x)), torch.as_tensor(np.asarray(rows.train_y)))
    options = SIP(alpha=1.0, num_inducing=size.num_inducing, kl="forward")
    for step, posterior in enumerate(options.fit(train, Budget(steps=size.training_steps), stream(1)), 1):  # noqa: B007
        if step == size.training_steps:
            break
    return posterior, train


def data_gradients(model: SparseImplicitProcess, train: Data, parameters: list[Tensor], repetitions: int) -> Tensor:
    """Gradient of the sum over all rows, in one flat row per repetition."""
    rows = []
    for repetition in range(repetitions):
        generator = stream(2, repetition)
        _, conditional = model.draw_conditional(train.x, generator)
        value = len(train) * model.data_term(train.y, conditional, generator)
        rows.append(torch.cat([gradient.flatten() for gradient in torch.autograd.grad(value, parameters)]))
    return torch.stack(rows)


class Divergence:
    """E_q[T*] as a function of the prior's parameters, with draws of q and noise of p held fixed."""

    def __init__(self, model: SparseImplicitProcess, size: Size, repetition: int) -> None:
        self.model, self.size, self.repetition = model, size, repetition
        with torch.no_grad():
            self.u = model.sampler(size.num_draws, stream(3, repetition))
        self.noise = model.prior.draw_noise(size.num_draws, stream(4, repetition))
        self.network = Discriminator(size.num_inducing, stream(5, repetition), 1e-3, weight_scale=None, dtype=self.u.dtype)
        self._train(self.network, size.discriminator_steps)

    @torch.no_grad()
    def _train(self, network: Discriminator, steps: int) -> float:
        f_z = self.model.prior.functions(self.model.inducing, self.noise)
        tail = 0.0
        for step in range(steps):
            network.improve(self.u, f_z, step / steps)
            if step >= steps - 10:  # the mean of the last ten: Adam does not stand still
                tail += float(network.log_ratio(self.u).mean()) / min(steps, 10)
        return tail

    def slope(self, parameter: Tensor, index: int) -> float:
        """Central difference in one number of a parameter, T trained again on both sides."""
        values = []
        flat = parameter.detach().view(-1)
        for sign in (1.0, -1.0):
            flat[index] += sign * STEP
            values.append(self._train(copy.deepcopy(self.network), self.size.retraining_steps))
            flat[index] -= sign * STEP
        return (values[0] - values[1]) / (2 * STEP)

    def gaussian_gradients(self, parameters: list[Tensor]) -> Tensor:
        """∇ KL( N(moments of q) ‖ N(moments of p) ), coordinate by coordinate."""
        p = Moments(self.model.prior.functions(self.model.inducing, self.noise))
        value = Moments(self.u).divergence(p.mean, p.variance.log())
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        return torch.cat([torch.zeros_like(q).flatten() if g is None else g.flatten() for g, q in zip(found, parameters, strict=True)])


def study(size: Size) -> pd.DataFrame:
    """One row per number: which, gradient of the data term, of the KL by retraining and by moments, each with its error."""
    model, train = trained(size)
    parameters = [*model.prior.parameters, model.inducing]
    owners = [(parameter, index) for parameter in parameters for index in range(parameter.numel())]
    data = data_gradients(model, train, parameters, size.repetitions)
    num_theta = len(owners) - model.inducing.numel()
    largest = data.mean(0)[:num_theta].abs().argsort(descending=True)[: size.num_theta]
    chosen = [*largest.tolist(), *range(num_theta, len(owners))]
    divergences = [Divergence(model, size, repetition) for repetition in range(size.repetitions)]
    gaussian = torch.stack([divergence.gaussian_gradients(parameters) for divergence in divergences])
    rows = []
    for place in chosen:
        slopes = np.array([divergence.slope(*owners[place]) for divergence in divergences])
        rows.append({
            "kind": "theta" if place < num_theta else "inducing input",
            "data": float(data[:, place].mean()), "data_error": _error(data[:, place].numpy()),
            "kl_retrained": slopes.mean(), "kl_retrained_error": _error(slopes),
            "kl_moments": float(gaussian[:, place].mean()), "kl_moments_error": _error(gaussian[:, place].numpy()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Per kind: medians of the sizes, and how often the paper's statement |∇KL| < |∇data| / 10 holds."""
    found = []
    for kind, part in rows.groupby("kind", sort=False):
        sizes = part[["data", "kl_retrained", "kl_moments"]].abs()
        found.append({
            "kind": kind, "numbers": len(part), **sizes.median().to_dict(),
            "error of kl_retrained": part["kl_retrained_error"].median(),
            "retrained < data/10": f"{(sizes['kl_retrained'] < sizes['data'] / 10).mean():.0%}",
            "moments < data/10": f"{(sizes['kl_moments'] < sizes['data'] / 10).mean():.0%}",
        })  # fmt: skip
    return pd.DataFrame(found)


def draw(rows: pd.DataFrame, path: Path) -> None:
    figure, panels = figures.new_figure(figures.TEXT_WIDTH, 2.6, 1, 2)
    for axes, (kind, part) in zip(panels, rows.groupby("kind", sort=False), strict=True):
        for name, error, marker in (("kl_retrained", "kl_retrained_error", "."), ("kl_moments", "kl_moments_error", "x")):
            axes.errorbar(part["data"], part[name], part[error], part["data_error"], fmt=marker, ms=3, lw=0.5, label=name)
        axes.set(title=str(kind), xlabel="gradient of the data term", ylabel="gradient of the KL")
        axes.legend(fontsize=6)
    path.write_bytes(figures.render(figure, "svg"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lite", action="store_true", help="a small model and few parameters, at most three minutes")
    parser.add_argument("--out", type=Path, default=Path("results/gradient-study"), metavar="FOLDER")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = study(LITE if arguments.lite else FULL)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows.to_csv(arguments.out / "gradients.csv", index=False)
    draw(rows, arguments.out / "gradients.svg")
    print(summary(rows).to_markdown(index=False, floatfmt=".3g"))
    print(f"{len(rows)} gradients -> {arguments.out}")


if __name__ == "__main__":
    main()
