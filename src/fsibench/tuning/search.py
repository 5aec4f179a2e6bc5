"""The search, the same for every method: screen many options in short fits, compare few in whole ones, confirm the best.

Optuna's TPE proposes, the present defaults first. A proposal is fitted for a quarter of the budget on one data set after the
other, at most three, and goes on only if its mean is in the upper half of what was seen there (successive halving). What
learns fast may overfit later, so the best proposals and the defaults are then fitted for the whole budget on every data
set. The best of those and the defaults meet on another split: the best of many single looks is mostly lucky. The defaults
stay unless the difference there, fit by fit, is larger than two standard errors.

The search is a generator of requests that is sent measurements. It neither fits nor stores anything, and the same
measurements lead to the same requests; whoever drives it can therefore replay what a killed search had measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsibench.contract import Space
from fsibench.errors import UsageError
from fsibench.tuning.space import suggested

# Where screening and comparing end, as shares of the time; confirming has the rest.
SCREENING_END, COMPARING_END = 0.3, 0.7
SHORT = 0.25  # budget of a screening fit, as a share of a whole one
SCREENING_SETS = 3
RANDOM_TRIALS = 8  # before the sampler trusts what it has seen
FIRST_SPLIT, CONFIRMING_SPLIT = 0, 1
NUM_FINALISTS = 2
CLEARLY = 2.0  # standard errors


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
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What came of it: `objective.merit` and what it cost."""

    merit: float
    cpu_seconds: float


@dataclass
class Candidate:
    """Options that were tried: mean merit of the short fits, and the merit of each whole fit by data set and split."""

    options: Mapping[str, Any]
    is_default: bool = False
    screened: float = -math.inf
    merits: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def merit(self) -> float:
        return statistics.fmean(self.merits.values()) if self.merits else -math.inf

    def is_better_than(self, other: Candidate) -> bool:
        """On the confirming split, which did not choose it, by more than two standard errors of the differences."""
        pairs = [(merit, other.merits.get(key)) for key, merit in self.merits.items() if key[1] == CONFIRMING_SPLIT]
        differences = [merit - before for merit, before in pairs if before is not None]
        if not differences:
            return False
        error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
        return statistics.fmean(differences) > CLEARLY * error


@dataclass(frozen=True)
class Outcome:
    """All candidates: what was chosen first, then those with more whole fits behind them, then by merit."""

    candidates: Sequence[Candidate]
    cpu_seconds: float

    @property
    def best(self) -> Candidate:
        return self.candidates[0]


def search(
    space: Space, defaults: Mapping[str, Any], datasets: Sequence[str], settings: Settings
) -> Generator[Request, Measured, Outcome]:
    """Screen, compare, confirm, until the CPU seconds are spent."""
    total, seconds = settings.total_seconds, settings.cell_seconds
    candidates, spent = yield from _screen(space, defaults, datasets, settings)
    order = sorted(candidates[1:], key=lambda candidate: -candidate.screened)
    compared: list[Candidate] = []
    # the defaults and one other are always compared and confirmed: a search that ends before could only confirm the defaults
    for candidate in [candidates[0], *order]:
        if spent >= COMPARING_END * total and len(compared) >= NUM_FINALISTS:
            break
        spent += yield from _fit(candidate, datasets, FIRST_SPLIT, seconds)
        compared.append(candidate)
    for candidate in _finalists(compared):
        spent += yield from _fit(candidate, datasets, CONFIRMING_SPLIT, seconds)
    return Outcome(_ranked(candidates), spent)


def _screen(
    space: Space, defaults: Mapping[str, Any], datasets: Sequence[str], settings: Settings
) -> Generator[Request, Measured, tuple[list[Candidate], float]]:
    """Proposals in short fits; the first is the present defaults. Returns them and the cost."""
    study = _study(settings.seed)
    study.enqueue_trial(dict(defaults))
    candidates: list[Candidate] = []
    spent = 0.0
    while spent < SCREENING_END * settings.total_seconds or len(candidates) < NUM_FINALISTS:
        trial = study.ask()
        candidate = Candidate(suggested(trial, space), is_default=not candidates)
        candidates.append(candidate)
        found: list[float] = []
        for dataset in datasets[:SCREENING_SETS]:
            measured = yield Request(candidate.options, dataset, FIRST_SPLIT, SHORT * settings.cell_seconds)
            spent += measured.cpu_seconds
            found.append(measured.merit)
            trial.report(statistics.fmean(found), len(found))
            if trial.should_prune():
                break
        whole = len(found) == min(SCREENING_SETS, len(datasets))
        if whole:
            candidate.screened = statistics.fmean(found)
        _tell(study, trial, candidate.screened if whole else None)
    return candidates, spent


def _study(seed: int) -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("tuning needs Optuna, which is not installed: pip install 'fsibench[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)


def _tell(study: Any, trial: Any, merit: float | None) -> None:
    import optuna

    if merit is None:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(trial, merit)


def _finalists(compared: Sequence[Candidate]) -> list[Candidate]:
    """The defaults and the best other one."""
    others = sorted(compared[1:], key=lambda candidate: -candidate.merit)
    return [compared[0], *others][:NUM_FINALISTS]


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    ranked = sorted(candidates, key=lambda one: (-len(one.merits), -one.merit, -one.screened))
    defaults = candidates[0]
    if ranked[0] is not defaults and not ranked[0].is_better_than(defaults):
        ranked.remove(defaults)
        ranked.insert(0, defaults)
    return ranked


def _fit(
    candidate: Candidate, datasets: Sequence[str], split: int, seconds: float
) -> Generator[Request, Measured, float]:
    """The candidate on every data set. Returns the cost."""
    spent = 0.0
    for dataset in datasets:
        measured = yield Request(candidate.options, dataset, split, seconds)
        spent += measured.cpu_seconds
        candidate.merits[dataset, split] = measured.merit
    return spent
