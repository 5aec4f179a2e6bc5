"""CPU time of one training step, in units of a fixed kernel measured in the same run.

T is the CPU time of `torch.bmm` on [100, 110, 50] × [100, 50, 50]: the product that a step of SIP at the paper's
settings cannot do without. Times in T compare across machines; the limits are what this project holds itself to.
One thread, boston split 0 of the scheme `paper`, batches of 10.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch

from fsibench import registry
from fsibench.blocks.allocator import keep_freed_memory
from fsibench.contract import Budget, Data
from fsibench.data import prepare
from fsibench.errors import UsageError

# entry -> most it may cost, in T. Presets `paper` hold the paper's settings: batch 10, 100 inducing points and 100
# samples for SIP, 10 samples per point for the weight-space methods.
LIMITS: Mapping[str, float] = {
    "sip[preset=paper,prior=bnn]": 11.0,
    "sip[preset=paper,prior=ns]": 3.0,
    "sip[stop=budget]": 6.5,  # without the looks of the search for a limit
    "aadm[preset=paper]": 8.0,
    "avb[preset=paper]": 8.0,
    "aadm": 4.0,
    "avb": 4.0,
    "bbb[preset=paper]": 1.0,
    # 20 functions and 8 hidden layers at 100 rows; 100 functions at 10 + 5 points; the second stage of fvi; one leapfrog
    # step of eight chains on all rows
    "vip[hidden_units=50,batch_size=100]": 2.5,
    "vip_collapsed": 14.0,
    "fbnn[preset=sip_paper]": 9.0,
    "fbnn_moments": 12.0,
    "fvi[prior_steps=20]": 1.0,
    "hmc[hidden_layers=2,hierarchical=true,num_leapfrog=1,num_chains=8,step_size=0.005]": 8.0,
    "ensemble": 3.0,  # ten members
    "dropout": 3.0,  # four rates
    "laplace": 3.0,
    "tfsvi": 8.0,
    "gfsvi": 8.0,
    "dvip[layers=2]": 20.0,
}

WARM_UP_STEPS = 20
# T and steps alternate in rounds, so that a change of the machine's speed meets both; the median round counts.
ROUNDS = 7
SECONDS_PER_ROUND = 0.25


def measure(entries: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One row per entry: cpu_ms of a step, the same in T, the limit in T (None for entries without one)."""
    keep_freed_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_row(entry) for entry in entries or LIMITS]
    finally:
        torch.set_num_threads(threads)


def _row(entry: str) -> dict[str, Any]:
    steps, kernel = Steps(entry), kernel_call()
    for _ in range(WARM_UP_STEPS):
        next(steps)
        kernel()
    rounds = [
        (cpu_milliseconds(kernel, SECONDS_PER_ROUND), cpu_milliseconds(lambda: next(steps), SECONDS_PER_ROUND, steps.clock))
        for _ in range(ROUNDS)
    ]
    return {
        "entry": entry,
        "cpu_ms": round(statistics.median(step for _, step in rounds), 3),
        "T_ms": round(statistics.median(unit for unit, _ in rounds), 3),
        "in_T": round(statistics.median(step / unit for unit, step in rounds), 2),
        "limit": LIMITS.get(entry),
    }


class Steps:
    """Training steps on boston of one fit after the other, without end; the clock stands still while a fit starts.

    Some methods end by themselves, and the first pull of a fit may prepare for as long as thousands of steps take.
    """

    def __init__(self, entry: str) -> None:
        self._entry, self._train = entry, training_rows()
        self._pulls: Iterator[Any] = iter(())
        self._starting = 0.0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for posterior in self._pulls:
            return posterior
        start = time.process_time()
        method, generator = registry.entry(self._entry).method, torch.Generator().manual_seed(0)
        self._pulls = iter(method.fit(self._train, Budget(steps=10**9), generator))
        next(self._pulls)
        self._starting += time.process_time() - start
        for posterior in self._pulls:
            return posterior
        raise UsageError(f"{self._entry} is fitted at once; it has no training step to measure.")

    def clock(self) -> float:
        """CPU seconds without those of starts."""
        return time.process_time() - self._starting


def training_rows() -> Data:
    """The training rows of boston, split 0."""
    prepared = prepare(registry.dataset("boston"), "paper", 0)
    return Data(torch.from_numpy(prepared.train_x), torch.from_numpy(prepared.train_y))


def kernel_call() -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(100, rows, 50, generator=generator) for rows in (110, 50))
    return lambda: torch.bmm(left, right)


def cpu_milliseconds(call: Callable[[], object], seconds: float, clock: Callable[[], float] = time.process_time) -> float:
    """Mean CPU time of a call, over at least `seconds` of them."""
    calls, start, spent = 0, clock(), 0.0
    while spent < seconds:
        call()
        calls += 1
        spent = clock() - start
    return 1e3 * spent / calls
