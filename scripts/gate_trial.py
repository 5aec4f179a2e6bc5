"""How often the gate is wrong: comparisons of a commit with itself, and with a copy of it that was made worse on purpose.

    python scripts/gate_trial.py self --tries 200          # how many are called a regression
    python scripts/gate_trial.py slow --tries 100          # 5 % more CPU time in every step of bbb
    python scripts/gate_trial.py loss --tries 100          # 0.02 nats off every log score of bbb
    python scripts/gate_trial.py loss --reseed             # the same, and all random numbers of a fit are others
    python scripts/gate_trial.py memory --tries 20         # 30 MB (a tenth of the whole) kept by every fit of bbb
    python scripts/gate_trial.py summary

Every try is one line of `results/gate_trial.jsonl`; run again, it goes on where it was. `summary` counts them, and
judges pairs of the recorded rounds whose sides were swapped at random, which no commit can have changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fsibench.history import gate, verdicts
from fsibench.history.checkouts import Repository
from fsibench.history.duet import Pair
from fsibench.history.workers import Place

RECORD = Path("results") / "gate_trial.jsonl"
TRIES_PER_PAIR = 10  # then new processes
WITHIN = 100.0

SERIES = {
    "self": "steps.Step.time_step(bbb)",
    "slow": "steps.Step.time_step(bbb)",
    "loss": "quality.Quality.track_ll(bbb, boston)",
    "self-quality": "quality.Quality.track_ll(bbb, boston)",
    "memory": "memory.Fit.peakmem_fit(bbb, 10000)",
}
SLOW = '''

def _plant(cls):
    import time
    fit = cls.fit
    def slower(self, train, budget, generator):
        steps = fit(self, train, budget, generator)
        while True:
            start = time.process_time()
            posterior = next(steps)
            now = time.process_time()
            while time.process_time() < now + 0.05 * (now - start):
                pass
            yield posterior
    cls.fit = slower
_plant(BBB)
'''
MEMORY = '''

def _plant(cls):
    fit = cls.fit
    def larger(self, train, budget, generator):
        ballast = torch.ones(30 * 2**18)
        yield from fit(self, train, budget, generator)
        del ballast
    cls.fit = larger
_plant(BBB)
'''
LOSS = '''

def _plant(cls):
    log_prob = cls.log_prob
    cls.log_prob = lambda self, y: log_prob(self, y) - 0.02
_plant(Predictive)
'''
PLANTS = {"slow": ("methods", "bbb.py", SLOW), "memory": ("methods", "bbb.py", MEMORY), "loss": ("predictive", "mixture.py", LOSS)}


def plant(site: Path, kind: str) -> None:
    """Replace one file of a laid-out package by a copy with more lines at its end."""
    if kind not in PLANTS:
        return
    folder, name, lines = PLANTS[kind]
    room = site / "fsibench" / folder
    real = room.resolve()
    room.unlink()
    shutil.copytree(real, room, ignore=shutil.ignore_patterns("__pycache__"))
    (room / name).write_text((room / name).read_text(encoding="utf-8") + lines, encoding="utf-8")


def places(kind: str, reseed: bool, folder: Path) -> tuple[Place, Place]:
    repository = Repository(Path.cwd())
    commit = repository.commit("HEAD")
    sites = [repository.lay_out(commit, folder / side) for side in ("base", "head")]
    plant(sites[1], kind)
    extra = {"FSIBENCH_SEED_SHIFT": str(1 + time.time_ns() % 10**6)} if reseed else {}
    return (
        Place("base", sites[0], repository.root, folder / "base" / "run"),
        Place("head", sites[1], repository.root, folder / "head" / "run", extra),
    )


def tries(kind: str, reseed: bool, count: int, series: str) -> Iterator[dict[str, object]]:
    done = 0
    while done < count:
        with TemporaryDirectory(prefix="gate-trial-") as scratch:
            base, head = places(kind, reseed, Path(scratch))
            (one,) = gate.chosen(gate.catalogue(head), [series])
            with Pair(base, head) as pair:
                # fits are kept in the folder of the processes, so that one try of a score is all that they can give
                for _ in range(min(TRIES_PER_PAIR if one.kind != "track" else 1, count - done)):
                    start = time.monotonic()
                    outcome = gate.outcome_of(pair, one, start + WITHIN)
                    done += 1
                    change = outcome.change
                    yield {
                        "kind": kind + (" reseeded" if reseed else ""),
                        "series": series,
                        "verdict": outcome.verdict,
                        "change": None if change is None else [round(v, 4) for v in (change.middle, change.low, change.high)],
                        "seconds": round(time.monotonic() - start, 1),
                        "samples": [[float(f"{value:.4g}") for value in part] for part in outcome.samples],
                    }


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []


def summary() -> None:
    kinds: dict[tuple[object, object], list[dict[str, object]]] = {}
    for row in rows():
        kinds.setdefault((row["kind"], row["series"]), []).append(row)
    for (kind, series), found in kinds.items():
        alarms = sum(row["verdict"] == "regression" for row in found)
        seconds = sorted(float(str(row["seconds"])) for row in found)
        print(f"{kind} {series}: {alarms} regressions in {len(found)} tries; seconds {seconds[len(seconds) // 2]:.0f} (most {seconds[-1]:.0f})")
    swapped()


def swapped(repeats: int = 2000) -> None:
    """The rule on recorded rounds of equal commits, signs at random by copy: how often it would call a regression."""
    recorded = [row["samples"] for row in rows() if str(row["kind"]).startswith("self") and "time_" in str(row["series"])]
    generator = np.random.default_rng(0)
    alarms = 0
    for _ in range(repeats if recorded else 0):
        samples = recorded[generator.integers(len(recorded))]
        signs = generator.choice([-1.0, 1.0], len(samples))  # type: ignore[arg-type]
        copies = [[sign * value for value in part] for sign, part in zip(signs, samples, strict=True)]  # type: ignore[call-overload]
        alarms += verdicts.duet_change(copies).verdict(verdicts.TIME.tolerance) == "regression"
    if recorded:
        print(f"sides of the {len(recorded)} recorded duets swapped at random: {alarms} regressions in {repeats}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=(*SERIES, "summary"))
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--series", help="another series than the usual one")
    parser.add_argument("--reseed", action="store_true", help="other random numbers on the second side")
    arguments = parser.parse_args()
    if arguments.kind == "summary":
        summary()
        return 0
    series = arguments.series or SERIES[arguments.kind]
    name = arguments.kind + (" reseeded" if arguments.reseed else "")
    done = sum(row["kind"] == name and row["series"] == series for row in rows())
    RECORD.parent.mkdir(exist_ok=True)
    for row in tries(arguments.kind, arguments.reseed, arguments.tries - done, series):
        with RECORD.open("a", encoding="utf-8") as record:
            record.write(json.dumps(row) + "\n")
        print(row["kind"], row["verdict"], row["change"], row["seconds"], file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
