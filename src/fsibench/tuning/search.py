"""The search, the same for every method: Optuna's TPE proposes options, successive halving over data sets drops most early.

A trial fits one data set after the other; after 2, 4 and 8 of them it goes on only if its mean is in the upper half of what
was seen there. The last part of the time confirms the best trials, and the defaults, on another split: the best of
many single looks is mostly lucky.

The search is a generator of requests that is sent measurements. It neither fits nor stores anything, and the same
measurements lead to the same requests; whoever drives it can therefore replay what a killed search had measured.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsibench.contract import Space
from fsibench.errors import UsageError
from fsibench.tuning.space import suggested

# Share of the time for proposals; the rest confirms.
PROPOSING_SHARE = 0.7
FIRST_RUNG, REDUCTION = 2, 2
RANDOM_TRIALS = 8  # before the sampler trusts what it has seen
FIRST_SPLIT, CONFIRMING_SPLIT = 0, 1


@dataclass(frozen=True)
class Settings:
    """How long, and with which seed."""

    total_seconds: float  # CPU seconds of all fits together, predictions and scores included
    cell_seconds: float  # training budget of one fit
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """One fit that the search wants to see."""

    options: Mapping[str, Any]
    dataset: str
    split: int


@dataclass(frozen=True)
class Measured:
    """What came of it: `objective.merit` and what it cost."""

    merit: float
    cpu_seconds: float


@dataclass
class Candidate:
    """Options that were tried, with the merit of each data set on each split."""

    options: Mapping[str, Any]
    is_default: bool = False
    merits: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def merit(self) -> float:
        return math.fsum(self.merits.values()) / len(self.merits) if self.merits else -math.inf


@dataclass(frozen=True)
class Outcome:
    """All candidates, the best first; those with more fits behind them stand before those with fewer."""

    candidates: Sequence[Candidate]
    cpu_seconds: float

    @property
    def best(self) -> Candidate:
        return self.candidates[0]


def search(
    space: Space, defaults: Mapping[str, Any], datasets: Sequence[str], settings: Settings
) -> Generator[Request, Measured, Outcome]:
    """Propose, halve, confirm, until the CPU seconds are spent. The first trial is the present defaults."""
    study = _study(settings.seed)
    study.enqueue_trial(dict(defaults))
    candidates: list[Candidate] = []
    spent = 0.0
    while spent < PROPOSING_SHARE * settings.total_seconds:
        trial = study.ask()
        candidate = Candidate(suggested(trial, space), is_default=not candidates)
        candidates.append(candidate)
        for dataset in datasets:
            measured = yield Request(candidate.options, dataset, FIRST_SPLIT)
            spent += measured.cpu_seconds
            candidate.merits[dataset, FIRST_SPLIT] = measured.merit
            trial.report(candidate.merit, len(candidate.merits))
            if trial.should_prune() or spent >= settings.total_seconds:
                break
        _tell(study, trial, candidate, len(datasets))
    for candidate in _finalists(candidates, len(datasets)):
        spent += yield from _confirm(candidate, datasets, settings.total_seconds - spent)
    return Outcome(_ranked(candidates), spent)


def _study(seed: int) -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("tuning needs Optuna, which is not installed: pip install 'fsibench[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=FIRST_RUNG, reduction_factor=REDUCTION)
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)


def _tell(study: Any, trial: Any, candidate: Candidate, num_datasets: int) -> None:
    import optuna

    if len(candidate.merits) == num_datasets:
        study.tell(trial, candidate.merit)
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: (-len(candidate.merits), -candidate.merit))


def _finalists(candidates: Sequence[Candidate], num_datasets: int) -> list[Candidate]:
    """Those that saw every data set, the best first; the defaults come second wherever they stand, to be compared with."""
    whole = [candidate for candidate in _ranked(candidates) if len(candidate.merits) == num_datasets]
    others = [candidate for candidate in whole[1:] if candidate is not candidates[0]]
    defaults = [candidates[0]] if whole and whole[0] is not candidates[0] else []
    return [*whole[:1], *defaults, *others]


def _confirm(
    candidate: Candidate, datasets: Sequence[str], seconds_left: float
) -> Generator[Request, Measured, float]:
    """The candidate on the other split; what it measured counts only when it saw every data set. Returns the cost."""
    merits: dict[tuple[str, int], float] = {}
    spent = 0.0
    for dataset in datasets:
        if spent >= seconds_left:
            return spent
        measured = yield Request(candidate.options, dataset, CONFIRMING_SPLIT)
        spent += measured.cpu_seconds
        merits[dataset, CONFIRMING_SPLIT] = measured.merit
    candidate.merits.update(merits)
    return spent
