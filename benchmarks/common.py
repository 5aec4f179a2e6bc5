"""What the suites share. Everything here is looked up by its public name, also in commits that lack some of it:
what is missing raises NotImplementedError, by which asv and `fsibench gate` know that a series does not exist there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import fsibench
from fsibench import contract, registry

# Entries at their defaults, and at the settings of their papers. Where the first pull prepares for minutes (a grid of
# noises, a prior by evidence), options that shorten it: the step is the same.
DEFAULTS = (
    "sip", "sip[prior=ns]", "aadm", "avb", "bbb", "vip[noise=0.1,psi=1.0]", "vip_collapsed", "fbnn", "fbnn_moments",
    "fvi[prior_steps=20,evidence_steps=10]", "hmc", "hmc_wide",
    "ensemble", "dropout", "laplace", "tfsvi", "gfsvi", "dvip", "svgp",
)  # fmt: skip
PAPER = (
    "sip[preset=paper,prior=bnn]", "sip[preset=paper,prior=ns]", "aadm[preset=paper]", "avb[preset=paper]",
    "bbb[preset=paper]", "vip[hidden_units=50,batch_size=100]", "vip_collapsed[batch_size=100]",
    "fbnn[preset=sip_paper]",
    "hmc[hidden_layers=2,num_leapfrog=1,step_size=0.005,start_steps=0]", "dvip[layers=2]",
)  # fmt: skip
EXACT = ("constant", "linear", "gp")


def one_thread() -> None:
    torch.set_num_threads(1)
    try:
        from fsibench.blocks.allocator import keep_freed_memory
    except ImportError:
        return  # commits before it measured without
    keep_freed_memory()


def warm_up() -> None:
    """Pay for what is paid once in a process: the first step of any optimiser imports half of torch."""
    try:
        for _ in pulls("bbb", training(prepared("boston", 0)), steps=2):
            pass
    except NotImplementedError:
        return  # the commit has no bbb; whoever is timed first pays


def method(entry: str) -> Any:
    """The method of an entry; NotImplementedError where the commit has no such method or option."""
    try:
        return registry.entry(entry).method
    except fsibench.UsageError as error:
        raise NotImplementedError(str(error)) from None


def prepared(dataset: str, split: int) -> Any:
    """Standardised training and test rows of a bundled set, scheme `paper`."""
    try:
        from fsibench.data import prepare

        return prepare(registry.dataset(dataset), "paper", split)
    except (ImportError, fsibench.UsageError) as error:
        raise NotImplementedError(str(error)) from None


def training(rows: Any) -> contract.Data:
    return contract.Data(torch.from_numpy(rows.train_x), torch.from_numpy(rows.train_y))


def pulls(entry: str, train: contract.Data, steps: int, seed: int = 0) -> Iterator[Any]:
    """Posteriors of a fit with a step budget."""
    chosen, generator = method(entry), torch.Generator().manual_seed(seed)
    if hasattr(contract, "Meter"):
        yield from contract.Meter(steps=steps).pulls(chosen, train, generator)
        return
    budget: Any = fsibench.Budget(steps=steps)  # it counted itself then
    budget.start()
    for posterior in chosen.fit(train, budget, generator):
        budget.steps_done += 1
        yield posterior
        if budget.exhausted:
            return


class Steps:
    """Training steps on boston without end, as in `fsibench.harness.step_costs`, which not every commit has: a fit that
    ends by itself is started again, and the clock stands still meanwhile.
    """

    def __init__(self, entry: str, warm_up: int) -> None:
        one_thread()
        self.entry, self.train = entry, training(prepared("boston", 0))
        self.pulls: Iterator[Any] = iter(())
        self.starting = 0.0
        for _ in range(warm_up):
            self.step()

    def step(self) -> None:
        for _ in self.pulls:
            return
        start = time.process_time()
        self.pulls = pulls(self.entry, self.train, steps=10**9)
        next(self.pulls)
        self.starting += time.process_time() - start
        next(self.pulls)

    def clock(self) -> float:
        return time.process_time() - self.starting


def scores(entry: str, dataset: str, split: int, steps: int, target: float) -> dict[str, float]:
    """Scores of a fit in standardised units, and the CPU seconds until its log score first reached `target` (nan: never).

    Kept in a file of the current folder, which asv gives to all benchmarks of a class, so that each fit happens once.
    """
    key = hashlib.sha256(repr((entry, dataset, split, steps, target, shift())).encode()).hexdigest()[:16]
    kept = Path(f"fit-{key}.json")
    if not kept.exists():
        kept.write_text(json.dumps(_scores(entry, dataset, split, steps, target)), encoding="utf-8")
    found: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def shift() -> int:
    """Added to every seed of a fit: trials of the gate ask how much another stream of random numbers moves a score."""
    return int(os.environ.get("FSIBENCH_SEED_SHIFT", "0"))


def _scores(entry: str, dataset: str, split: int, steps: int, target: float) -> dict[str, float]:
    one_thread()
    rows = prepared(dataset, split)
    test_x = torch.from_numpy(rows.test_x)
    test_y = torch.from_numpy((rows.test_y - rows.standardiser.y_mean) / rows.standardiser.y_scale)
    spent, reached, posterior, start = 0.0, float("nan"), None, time.process_time()
    for step, posterior in enumerate(pulls(entry, training(rows), steps, seed=split + 1000 * shift()), start=1):
        spent += time.process_time() - start
        if math.isnan(reached) and (step % max(1, steps // 10) == 0 or step == steps):
            reached = spent if _log_score(posterior, test_x, test_y) >= target else reached
        start = time.process_time()
    predictive = _predictive(posterior, test_x)
    # mean over c = 0.1, ..., 0.9 of |share of targets inside the central c interval − c|, as in `fsibench.scoring`
    nominal = torch.arange(1, 10, dtype=torch.float64) / 10
    centrality = 2.0 * (predictive.cdf(test_y) - 0.5).abs()
    observed = (centrality <= nominal[:, None]).double().mean(1)
    return {
        "ll": float(predictive.log_prob(test_y).mean()),
        "crps": float(predictive.crps(test_y).mean()),
        "rmse": float((predictive.mean - test_y).square().mean().sqrt()),
        "calibration": float((observed - nominal).abs().mean()),
        "seconds": reached,
    }


def _log_score(posterior: Any, x: torch.Tensor, y: torch.Tensor) -> float:
    return float(_predictive(posterior, x).log_prob(y).mean())


def _predictive(posterior: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return posterior.predict(x, torch.Generator().manual_seed(1)).double()
