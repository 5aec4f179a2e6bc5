"""A store as a real run leaves it, made in a second: curves that improve, failures, diagnostics, function panels."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsibench.harness.events import Artifact, Evaluation, Finished, Loaded
from fsibench.harness.store import Store
from fsibench.reports import site

SQRT_2 = math.sqrt(2.0)
ENTRIES = ("aadm", "avb", "bbb", "constant", "fbnn[prior=gp]", "fvi", "gp", "hmc", "sip[prior=bnn]", "vip")
DATASETS = {"boston": 9.2, "concrete": 16.7, "energy": 10.1, "kin8nm": 0.26,
            "naval": 0.0147, "power": 17.1, "wine": 0.81, "yacht": 15.2}  # fmt: skip


@dataclass
class Recipe:
    """What to put into a store. `skill` is the share of the target's sd that remains as error at the end."""

    entries: Sequence[str] = ENTRIES
    datasets: dict[str, float] = field(default_factory=lambda: dict(DATASETS))
    splits: int = 3
    seconds: float = 20.0
    failures: dict[tuple[str, str, int], str] = field(default_factory=dict)
    missing: set[tuple[str, str]] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=lambda: {"fvi": "reconstruction"})
    variants: dict[str, str] = field(default_factory=dict)
    reproduces: dict[str, str] = field(default_factory=dict)  # entry -> published column that it answers for
    citations: dict[str, str] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=lambda: {"hmc"})
    calibrations: dict[str, float] = field(default_factory=dict)  # entry -> seconds of the calibration where it ran
    without_ll: set[str] = field(default_factory=set)  # entries whose predictive has no density
    functions: bool = False
    num_test: int = 60
    message: str = "loss is nan at step 12"
    budget: str | None = None
    scheme: str = "paper"
    shift: float = 0.0  # added to the final skill of every entry: a worse store


def scores(residuals: np.ndarray, scale: float) -> dict[str, Any]:
    """Scores of a Gaussian predictive with the given residuals y − mean and standard deviation."""
    z = residuals / scale
    cdf = 0.5 * (1 + np.array([math.erf(value / SQRT_2) for value in z]))
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    crps = scale * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))
    counts = np.bincount(np.minimum((cdf * 20).astype(int), 19), minlength=20)
    return {
        "rmse": float(np.sqrt((residuals**2).mean())),
        "ll": float(np.log(density / scale).mean()),
        "crps": float(crps.mean()),
        "sharpness": scale,
        "pit": counts.tolist(),
    }


def functions_payload(generator: np.random.Generator) -> dict[str, Any]:
    """A panel of a one-dimensional set, in the form the runner writes."""
    x = np.linspace(-4.0, 4.0, 41)
    centre, width = 7 * np.sin(x) + 10, np.abs(np.sin(x)) + 0.3
    train_x = np.sort(generator.uniform(-4, 4, 60))
    draws = centre + 0.3 * generator.normal(size=(20, 1)) + 0.2 * generator.normal(size=(20, 41)).cumsum(1) / 3
    probabilities = {"0.05": -1.645, "0.25": -0.674, "0.5": 0.0, "0.75": 0.674, "0.95": 1.645}
    arrays = {
        "x": x,
        "train_x": train_x,
        "train_y": 7 * np.sin(train_x) + 10 + generator.normal(size=60) * np.sin(train_x),
        "draws": draws,
        "prior_draws": generator.normal(size=(20, 41)).cumsum(1),
        "samples": centre + width * generator.normal(size=(50, 41)),
    }
    plain: dict[str, Any] = {name: value.tolist() for name, value in arrays.items()}
    plain["oracle"] = {"loc": [centre.tolist()], "scale": [(2 * np.abs(np.sin(x)) + 1e-3).tolist()]}
    plain["quantiles"] = {name: (centre + z * width).tolist() for name, z in probabilities.items()}
    plain["inducing"] = [
        {"train_seconds": 0.1 * 2**k, "z": np.linspace(-1 - 0.3 * k, 1 + 0.3 * k, 10).tolist()} for k in range(8)
    ]
    return plain


def hardest_payload(noise: np.ndarray, scale: float, skill: float, dataset: str, split: int) -> dict[str, Any]:
    """The ten largest residuals, as the runner keeps them; row 7 is hard for everybody in split 0."""
    worst = np.argsort(-np.abs(noise), kind="stable")[:10]
    rows = [7, *(100 * (split + 1) + int(place) for place in worst[1:])] if split == 0 else [100 * (split + 1) + int(p) for p in worst]
    residuals = scale * skill * noise[worst]
    numbers = {"y": residuals, "mean": np.zeros(10), "sd": np.full(10, scale * skill), "crps": np.abs(residuals)}
    fresh = dataset == "heteroscedastic"
    return {
        "row": None if fresh else rows, "place": worst.tolist(), **{name: values.tolist() for name, values in numbers.items()},
        "x": [[0.5]] * len(worst) if fresh else None,
    }  # fmt: skip


def write_store(path: Path, recipe: Recipe) -> Path:
    """Fill a store through its own writing methods."""
    generator = np.random.default_rng(0)
    skill = {entry: 0.25 + 0.04 * index + recipe.shift for index, entry in enumerate(recipe.entries)}
    skill.update({entry: 1.0 for entry in recipe.entries if entry == "constant"})
    with Store.create(path) as store:
        run = store.begin_run(
            ["fsibench", "run", "uci", "--budget", "20s"],
            {"name": "uci", "title": "Eight UCI sets", "citations": recipe.citations},
            {"python": "3.11", "torch": "2.13.0", "cpu": "Test CPU", "calibration_seconds": 0.1},
        )
        for dataset, scale in recipe.datasets.items():
            for split in range(recipe.splits):
                difficulty = generator.lognormal(0.0, 0.1)
                for entry in recipe.entries:
                    if (entry, dataset) not in recipe.missing:
                        _write_cell(store, run, recipe, entry, dataset, split, scale, skill[entry] * difficulty)
        store.end_run(run, "finished")
    return path


def _write_cell(
    store: Store, run: int, recipe: Recipe, entry: str, dataset: str, split: int, scale: float, skill: float
) -> None:
    generator = np.random.default_rng(abs(hash_text(f"{entry}/{dataset}/{split}/{recipe.budget}")))
    status = recipe.failures.get((entry, dataset, split), "ok")
    cell = f"{hash_text(f'{entry}|{dataset}|{split}|{recipe.budget}|{recipe.scheme}'):032x}"
    store.start_cell(run, {
        "id": cell, "entry": entry, "method": entry.split("[")[0], "options": options_of(entry),
        "note": recipe.notes.get(entry, ""), "reproduces": recipe.reproduces.get(entry, column_of(entry)),
        "variant": recipe.variants.get(entry, ""), "dataset": dataset, "scheme": recipe.scheme, "split": split, "seed": 0,
        "budget": recipe.budget or f"{recipe.seconds:g}s", "clock": "wall", "device": "cpu",
        "data_fingerprint": "0", "code_version": "1",
    })  # fmt: skip
    once = entry in ("constant", "gp", "linear")
    instants = [0.5] if once else [0.1 * 10 ** (k / 4) for k in range(40) if 0.1 * 10 ** (k / 4) <= recipe.seconds]
    if status != "ok":
        instants = instants[: len(instants) // 2]
    overconfidence = 0.6 if entry == "vip" else 1.0
    noise = generator.normal(size=recipe.num_test)
    for step, seconds in enumerate(instants):
        share = skill if once else skill + (1.0 - skill) * math.exp(-seconds / (0.1 * recipe.seconds))
        row = scores(scale * share * noise, overconfidence * scale * share)
        trace = {"loss": 3.0 - share}
        if entry in recipe.doubtful:
            trace |= {"rhat": 1.31, "ess": 12.0, "diagnostics_failed": True}
        clocks = {"train_seconds": seconds * 1.01, "wall_seconds": seconds * 1.02, "cpu_seconds": seconds}
        pit = tuple(row.pop("pit"))
        if entry in recipe.without_ll:
            row.pop("ll")
        store.add_evaluation(cell, Evaluation(step=step, **clocks, scores=row, pit=pit, trace=trace))
    if recipe.functions and dataset == "heteroscedastic":
        store.add_artifact(cell, Artifact("functions", functions_payload(generator)))
    if status == "ok":
        store.add_artifact(cell, Artifact("hardest", hardest_payload(noise, scale, skill, dataset, split)))
    message = None if status == "ok" else recipe.message
    seconds = (instants[-1] if instants else 0.05) * 1.01
    store.set_size(cell, Loaded(num_train=400, num_test=recipe.num_test, num_inputs=13, target_scale=scale))
    traceback = None if status == "ok" else f"Traceback:\n  {recipe.message}"
    store.finish_cell(cell, Finished(status, message, traceback, {
        "setup_seconds": 0.1, "train_seconds": seconds, "wall_seconds": seconds * 1.02, "cpu_seconds": seconds,
        "predict_seconds": 0.2, "predict_cpu_seconds": 0.2, "predict_rows": 4000, "evaluate_seconds": 0.3, "total_seconds": seconds + 1.0,
        "peak_memory_mb": 210.0 + 10 * len(entry), "contended": 0, "calibration_seconds": recipe.calibrations.get(entry, 0.1),
    }))  # fmt: skip


def options_of(entry: str) -> str:
    """All options as JSON, as the driver writes them: `fbnn[prior=gp]` has a prior, and so has plain `sip`."""
    inside = entry.partition("[")[2].rstrip("]")
    pairs = (pair.partition("=") for pair in inside.split(",") if "=" in pair)
    return json.dumps({"prior": "bnn", **{key: value for key, _, value in pairs}})


def column_of(entry: str) -> str:
    """The published column that an entry answers for."""
    method, prior = entry.partition("[")[0], json.loads(options_of(entry))["prior"]
    columns = {"bbb": "BBB", "avb": "AVB", "aadm": "AADM", "vip": "VIP"}
    with_prior = {("fbnn", "bnn"): "fBNN_BNN", ("sip", "bnn"): "SIP_BNN", ("sip", "ns"): "SIP_NS"}
    return columns.get(method, with_prior.get((method, prior), ""))


def hash_text(text: str) -> int:
    """A number that is the same in every process, unlike `hash`."""
    import hashlib

    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@pytest.fixture(scope="session")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten entries, eight sets and a one-dimensional one, three splits, some failures, function panels."""
    failures = {("vip", "naval", 1): "diverged", ("fvi", "wine", 0): "oom", ("gp", "power", 2): "error"}
    failures |= {("avb", "yacht", 1): "interrupted"}
    datasets = {**DATASETS, "heteroscedastic": 5.2}
    recipe = Recipe(datasets=datasets, failures=failures, functions=True)
    return write_store(tmp_path_factory.mktemp("store") / "results.sqlite", recipe)


@pytest.fixture(scope="session")
def full_site(full_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of `full_store`, without figures."""

    index: Path = site.build(full_store, tmp_path_factory.mktemp("site"), formats=())
    return index.parent


@pytest.fixture(scope="session")
def fill_store() -> Callable[..., Path]:
    """`fill_store(path, splits=2, ...)`: the same for a path and a scope of the caller's."""
    return lambda path, **changes: write_store(path, Recipe(**changes))


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Path]:
    """`make_store(name="a", splits=2, ...)` writes a store with the given recipe and returns its path."""

    def make(name: str = "results", **changes: Any) -> Path:
        return write_store(tmp_path / f"{name}.sqlite", Recipe(**changes))

    return make


@pytest.fixture
def plane_site(make_store: Callable[..., Path], tmp_path: Path) -> Path:
    """A set with two inputs."""
    store = make_store(entries=("bbb", "constant"), datasets={"plane": 1.0}, splits=1)
    axis = [0.0, 0.5, 1.0]
    payload = {"x": axis, "x2": axis, "train_x": [0.2], "train_x2": [0.7], "mean": [[0.0, 1.0, 2.0]] * 3, "sd": [[1.0] * 3] * 3}
    with Store.create(store) as opened:
        for cell in opened.cells()["id"]:
            opened.add_artifact(cell, Artifact("functions", payload))
    folder: Path = site.build(store, tmp_path / "plane", formats=()).parent
    return folder


@pytest.fixture
def open_page(browser: Any, full_site: Path) -> Iterator[Callable[..., Any]]:
    """Open a page and wait until its script is done; no error, no request to anywhere may have happened by the end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    problems: list[str] = []

    def watch(page: Any) -> None:
        page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _note_request(request.url, problems))

    def open_one(name: str, folder: Path = full_site, **changes: Any) -> Any:
        page = context.new_page()
        watch(page)
        if changes:
            page.set_viewport_size(changes)
        page.goto((folder / f"{name}.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        return page

    yield open_one
    context.close()
    assert problems == []


def _note_request(url: str, problems: list[str]) -> None:
    if not url.startswith(("file:", "data:")):
        problems.append(f"request: {url}")


@pytest.fixture
def download() -> Callable[[Any, Any], str]:
    """`download(page, button)` clicks and returns what was saved."""

    def save(page: Any, button: Any) -> str:
        with page.expect_download() as started:
            button.click()
        return Path(started.value.path()).read_text(encoding="utf-8")

    return save
