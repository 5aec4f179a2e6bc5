"""Protocols and plans: from a TOML file and command-line changes to a list of cells.

A cell is one fit: entry x dataset x split x seed under one budget. Its id is a hash of everything that can change
its result, so the same request finds its earlier results and a changed one does not.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fsibench import registry
from fsibench.data import SPLIT_SCHEMES, SPLIT_SHARES, Dataset, parse_splits, show_splits
from fsibench.errors import UsageError, unknown
from fsibench.harness import identity

_BUDGET = re.compile(
    r"^\s*(?P<number>[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?)\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|ms)?\s*$"
)
# What a cell can keep beside its scores: `functions`, draws and quantiles on a grid, for sets with one input;
# `predictives`, the last predictive distributions in half precision, which `fsibench rescore` reads.
KEEPABLE = ("functions", "predictives")
Clock = Literal["wall", "cpu", "reference"]
CLOCKS = get_args(Clock)
# Test rows that the last look scores under a budget in seconds: so many for each, and no fewer than these.
TEST_ROWS_PER_SECOND, LEAST_TEST_ROWS = 200, 1000
# What the store can hold.
LARGEST_INTEGER = 2**63 - 1
_UNIT_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Protocol:
    """What is compared with what, on which data, for how long."""

    name: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    title: str = ""
    scheme: str = "paper"
    splits: tuple[int, ...] = (0,)
    train_rows: tuple[int, ...] = ()  # also with this many training rows each; see the protocol `growth`
    seeds: tuple[int, ...] = (0,)
    seconds: float | None = None
    steps: int | None = None
    budgets: Mapping[str, float] = field(default_factory=dict)  # entry -> seconds of its own, which reports state
    clock: Clock = "wall"
    device: str = "cpu"
    per_decade: int = 4
    test_rows: int | Literal["all"] | None = None  # that the last look scores at most; None: what `most_test_rows` says
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.scheme not in SPLIT_SCHEMES:
            raise unknown("split scheme", self.scheme, SPLIT_SCHEMES)
        if (self.seconds is None) == (self.steps is None):
            raise UsageError(f"protocol {self.name!r} needs either a budget in seconds or a number of steps.")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"a budget must be positive; got {self.seconds:g} s.")
        if self.budgets and self.seconds is None:
            raise UsageError(f"protocol {self.name!r} counts steps; budgets of single entries are for a budget in seconds.")
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"steps must be at least 1; got {self.steps}.")
        for number in (self.steps or 0, *self.seeds):
            if abs(number) > LARGEST_INTEGER:
                raise UsageError(f"steps and seeds must be at most {LARGEST_INTEGER}; got {number}.")
        if self.clock not in CLOCKS:
            raise unknown("clock", self.clock, CLOCKS)
        for kind in self.keep:
            if kind not in KEEPABLE:
                raise unknown("thing to keep", kind, KEEPABLE)
        if self.test_rows not in (None, "all") and (isinstance(self.test_rows, str) or self.test_rows < 1):
            raise UsageError(f'test_rows must be "all" or at least 1; got {self.test_rows!r}.')
        if not 1 <= self.per_decade <= 100:
            raise UsageError(f"per_decade must be between 1 and 100; got {self.per_decade}.")
        if not (self.methods and self.datasets and self.seeds):
            raise UsageError(f"protocol {self.name!r} names no methods, no datasets or no seeds.")

    @property
    def budget(self) -> str:
        return show_budget(self.seconds, self.steps)


@dataclass(frozen=True)
class Cell:
    """One fit, described by plain values: it travels to another process or machine as JSON."""

    id: str
    entry: str  # the one spelling of method and options, as ranked: sip[prior=ns]
    method: str  # the method's name alone: sip
    file: str | None  # path.py:Class where the method was given as a file, else it is found by its name
    options: tuple[tuple[str, Any], ...]
    note: str
    dataset: str
    scheme: str
    split: int
    seed: int
    seconds: float | None
    steps: int | None
    clock: Clock
    device: str
    per_decade: int
    keep: tuple[str, ...]
    test_rows: int | None  # that the last look scores at most; None for all
    data_fingerprint: str
    code_version: str
    reproduces: str = ""  # the published column it answers for
    variant: str = ""  # how its objective differs from the published one

    @property
    def budget(self) -> str:
        return show_budget(self.seconds, self.steps)

    @property
    def title(self) -> str:
        return f"{self.entry} on {self.dataset}/{self.split}"


def show_budget(seconds: float | None, steps: int | None) -> str:
    return f"{seconds:g}s" if seconds is not None else f"{steps} steps"


def parse_budget(text: str) -> float:
    """`20s`, `1.5m`, `2h` or plain seconds, as seconds."""
    match = _BUDGET.match(text)
    if match is None:
        raise UsageError(f"cannot read the budget {text!r}; write for example 20s, 5m or 1h.")
    unit = match["unit"] or "s"
    seconds = float(match["number"]) * _UNIT_SECONDS["ms" if unit == "ms" else unit[0]]
    if not 0 < seconds < math.inf:
        raise UsageError(f"a budget must be positive; got {text!r}.")
    return seconds


def load_protocol(name_or_path: str, changes: Mapping[str, Any], lite: bool = False) -> Protocol:
    """A built-in protocol by name or a TOML file by path, in its short form if asked for, with command-line changes on top."""
    is_file = name_or_path.endswith(".toml")
    path = Path(name_or_path) if is_file else registry.protocols().get("protocol", name_or_path)
    content = _read_toml(path)
    _refuse_code(path, content)
    short = content.pop("lite", None)
    if lite and not isinstance(short, dict):
        raise UsageError(f"the protocol {path.stem!r} has no short form: it lacks the table [lite].")
    if lite:
        _refuse_code(path, short)
        if "budget" in short or "steps" in short:
            content = {key: value for key, value in content.items() if key not in ("budget", "budgets", "steps")}
        content |= short
    content |= changes
    if "seconds" in changes or "steps" in changes:  # a budget on the command line replaces either kind in the file
        content.pop("budget", None)
        content.pop("budgets", None)
        content.pop("steps" if "seconds" in changes else "seconds", None)
    return _protocol(path, content)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the protocol {path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise UsageError(f"the protocol {path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise UsageError(f"the protocol {path} is not valid TOML: it is nested too deeply.") from None


def _refuse_code(path: Path, content: dict[str, Any]) -> None:
    """A protocol may come from anywhere, so it may not name files to execute; the user may, with --methods."""
    for key in ("methods", "datasets"):
        for entry in _sequence(path, key, content.get(key, []), str):
            if ".py:" in entry:
                raise UsageError(f"{path} names the code file {entry!r}; a protocol runs no code, give it with --{key}.")


# What a protocol file may say: key -> type of a value, or of the items of a list.
_LISTS = {"methods": str, "datasets": str, "seeds": int, "keep": str, "train_rows": int}
_VALUES: dict[str, tuple[type, ...]] = {
    "title": (str,), "scheme": (str,), "clock": (str,), "device": (str,), "budget": (str, int, float),
    "splits": (int, str), "steps": (int,), "per_decade": (int,), "seconds": (int, float),
    "test_rows": (int, str),
}  # fmt: skip
_NAMES = {str: "text", int: "whole number", float: "number"}


def _protocol(path: Path, content: dict[str, Any]) -> Protocol:
    for key, value in content.items():
        if key in _LISTS:
            content[key] = _sequence(path, key, value, _LISTS[key])
        elif key == "budgets":
            content[key] = _own_budgets(path, value)
        elif key not in _VALUES:
            raise unknown(f"key in {path}", key, _LISTS.keys() | _VALUES.keys() | {"budgets"} - {"seconds"})
        elif type(value) not in _VALUES[key]:
            kinds = " or ".join(f"a {_NAMES[kind]}" for kind in _VALUES[key])
            raise UsageError(f"{path}: {key} must be {kinds}; got {value!r}.")
    if "splits" in content:
        content["splits"] = parse_splits(content["splits"])
    if "budget" in content:
        content["seconds"] = parse_budget(str(content.pop("budget")))
    for key in ("methods", "datasets"):
        if key not in content:
            raise UsageError(f"the protocol {path} lacks the key {key!r}.")
    return Protocol(name=path.stem, **content)


def _own_budgets(path: Path, value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or not all(isinstance(budget, str) for budget in value.values()):
        raise UsageError(f'{path}: budgets must be a table of entries, such as {{ hmc = "120s" }}; got {value!r}.')
    # A name without options is its own label; other spellings need the method's class, and with it torch.
    labels = {entry: registry.entry(entry).label if "[" in entry else entry for entry in value}
    return {labels[entry]: parse_budget(budget) for entry, budget in value.items()}


def _sequence(path: Path, key: str, value: Any, item: type) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not all(type(element) is item for element in value):
        raise UsageError(f"{path}: {key} must be a list, each a {_NAMES[item]}; got {value!r}.")
    return tuple(value)


def make_plan(protocol: Protocol) -> list[Cell]:
    """Every cell of a protocol; all names and options are checked before anything runs.

    Ordered by split, then data set, then entry: an interrupted run has finished comparisons, not half of each.
    """
    for entry in protocol.budgets:
        registry.entry(entry)  # refuses a misspelt name
    sets = _datasets(protocol)
    fingerprints = {text: data.fingerprint() for text, data in sets.items()}
    fitting = {text: [entry for entry in _entries(protocol) if _fits(protocol, entry, sets[text])] for text in sets}
    available = {text: data.num_splits(protocol.scheme) for text, data in sets.items()}
    _require_splits(protocol, available)
    versions = {entry.label: identity.version_of(entry.method) for entry in _entries(protocol)}
    return [
        _cell(protocol, entry, versions[entry.label], text, fingerprints[text], split, seed)
        for seed in protocol.seeds
        for split in protocol.splits
        for text in sets
        for entry in fitting[text]
        if split < available[text]
    ]


def _require_splits(protocol: Protocol, available: Mapping[str, int]) -> None:
    """A split that no data set has is a mistake; one that only some have is left out of the others."""
    text, most = max(available.items(), key=lambda item: item[1])
    if (last := max(protocol.splits)) >= most:
        raise UsageError(f"split {last} does not exist: {text} has {most}, numbered 0 to {most - 1}.")
    for text, count in available.items():
        if min(protocol.splits) >= count:
            raise UsageError(f"{text} has none of the splits {show_splits(protocol.splits)}: they end at {count - 1}.")


def left_out(protocol: Protocol) -> list[str]:
    """One sentence for each entry that a plan leaves out: altogether, or of a data set that is too large for it."""
    absent = [
        f"{entry.label} is left out: it needs {', '.join(_missing(entry))}, which is not installed"
        for entry in _all_entries(protocol)
        if _missing(entry)
    ]
    too_large = [
        f"{entry.label} is left out of {text}: it is meant for at most {entry.method.max_rows} training rows"
        for text, data in _datasets(protocol).items()
        for entry in _entries(protocol)
        if not _fits(protocol, entry, data)
    ]
    counts = {text: data.num_splits(protocol.scheme) for text, data in _datasets(protocol).items()}
    too_few = [
        f"{text} has {count} split{'s' * (count > 1)}: the others asked for are left out"
        for text, count in counts.items()
        if max(protocol.splits) >= count
    ]
    return absent + too_large + too_few + _too_small(protocol)


def _too_small(protocol: Protocol) -> list[str]:
    return [
        f"{text} is left out at {rows} training rows: it has {_num_train(protocol, registry.dataset(text))}"
        for text in protocol.datasets
        for rows in protocol.train_rows
        if rows > _num_train(protocol, registry.dataset(text))
    ]


def _all_entries(protocol: Protocol) -> list[registry.Entry]:
    entries: dict[str, registry.Entry] = {}
    for entry in map(registry.entry, protocol.methods):
        known = entries.setdefault(entry.label, entry)
        if known.file != entry.file:
            raise UsageError(
                f"two different methods are both called {entry.label!r}: {known.file} and {entry.file}; "
                "give one of the classes another `name`."
            )
    return list(entries.values())


def _entries(protocol: Protocol) -> list[registry.Entry]:
    return [entry for entry in _all_entries(protocol) if not _missing(entry)]


def _missing(entry: registry.Entry) -> list[str]:
    return [module for module in entry.method.requires if importlib.util.find_spec(module) is None]


def _datasets(protocol: Protocol) -> dict[str, Dataset]:
    sets = {text: registry.dataset(text) for text in protocol.datasets}
    if not protocol.train_rows:
        return sets
    texts = [
        registry.with_option(text, "train_rows", rows)
        for text, data in sets.items()
        for rows in protocol.train_rows
        if rows <= _num_train(protocol, data)
    ]
    return {text: registry.dataset(text) for text in texts}


def _num_train(protocol: Protocol, dataset: Dataset) -> int:
    """About how many rows train in a split; made-up data say so themselves."""
    share = SPLIT_SHARES.get(protocol.scheme, 1.0)
    rows: int = getattr(dataset, "num_train", None) or round(share * dataset.describe().rows)
    return min(rows, getattr(dataset, "train_rows", None) or 1 << 62)


def _fits(protocol: Protocol, entry: registry.Entry, dataset: Dataset) -> bool:
    limit = entry.method.max_rows
    return limit is None or _num_train(protocol, dataset) <= limit


def most_test_rows(protocol: Protocol) -> int | None:
    """How many test rows the last look of a cell scores at most; None for all.

    Scoring ten thousand rows takes longer than a short fit. The number follows from the budget of the comparison, not
    from that of one entry or from what its predictions cost: all entries are scored on the same rows.
    """
    if protocol.test_rows is not None or protocol.seconds is None:
        return None if protocol.test_rows in (None, "all") else int(protocol.test_rows)
    return max(LEAST_TEST_ROWS, int(TEST_ROWS_PER_SECOND * protocol.seconds))


def _cell(
    protocol: Protocol, entry: registry.Entry, version: str, dataset: str, fingerprint: str, split: int, seed: int
) -> Cell:
    all_options = dataclasses.asdict(entry.method)
    # What only adds rows or artifacts (per_decade, keep) is no part of the identity: it changes no score.
    content = {
        "method": entry.method.name,
        "options": all_options,
        "dataset": dataset,
        "scheme": protocol.scheme,
        "split": split,
        "seed": seed,
        "seconds": protocol.budgets.get(entry.label, protocol.seconds),
        "steps": protocol.steps,
        "clock": protocol.clock if protocol.seconds is not None else "wall",
        "device": protocol.device,
        "test_rows": most_test_rows(protocol),
        "data_fingerprint": fingerprint,
        "code_version": version,
    }
    return Cell(
        id=identity.digest(content),
        entry=entry.label,
        file=entry.file,
        per_decade=protocol.per_decade,
        keep=protocol.keep,
        note=entry.method.note,
        reproduces=entry.method.published_column(),
        variant=entry.method.departure(),
        **{**content, "options": tuple(all_options.items())},  # type: ignore[arg-type]
    )
