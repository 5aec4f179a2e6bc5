"""How often the gate is wrong: comparisons of a commit with itself, and with a copy of it that was made worse on purpose.

    python scripts/gate_trial.py self-all --tries 200      # the usual times and peaks in turn: how many are called a regression
    python scripts/gate_trial.py self --tries 200          # the same of one step
    python scripts/gate_trial.py slow --tries 100          # 5 % more CPU time in every step of bbb
    python scripts/gate_trial.py loss --tries 100          # 0.02 nats off every log score of bbb
    python scripts/gate_trial.py loss --reseed             # the same, and all random numbers of a fit are others
    python scripts/gate_trial.py memory --tries 20         # a tenth of the whole memory kept by every fit of bbb
    python scripts/gate_trial.py summary

Every try is one line of `benchmarks/gate_trials.jsonl`, which is kept; run again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fsibench.history import gate
from fsibench.history.checkouts import Repository
from fsibench.history.duet import Pairs
from fsibench.history.workers import Place

RECORD = Path("benchmarks") / "gate_trials.jsonl"
TRIES_PER_PAIR = 10  # then new processes
WITHIN = 100.0

# what each kind compares: names or patterns of series; kinds with several take them in turn
BBB_STEP, BBB_LL = "steps.Step.time_step(bbb)", "quality.Quality.track_ll(bbb, boston)"
SERIES = {
    "self-all": tuple(pattern for pattern in gate.USUAL if not pattern.startswith("quality")),
    "self": (BBB_STEP,),
    "self-quality": (BBB_LL,),
    "slow": (BBB_STEP,),
    "loss": (BBB_LL,),
    "memory": ("memory.Fit.peakmem_fit(bbb, 10000)",),
}
# `burden` is held while a fit goes on; one step of `every` is made twice. In one process, one in 20 was
# measured as 4.0 % and one in 18 as 5.3 %, give or take 0.8; a loop that burns 5 % between steps, as 7.5 to 14 %
FIT = '''

def _plant(cls, burden, every):
    fit = cls.fit
    def planted(self, train, budget, generator):
        held, steps = burden(), fit(self, train, budget, generator)
        for number, posterior in enumerate(steps):
            if every and number % every == 0:
                next(steps)
            yield posterior
    cls.fit = planted
'''
SLOW = FIT + "_plant(BBB, lambda: None, 19)\n"
MEMORY = FIT + "_plant(BBB, lambda: torch.ones(22 * 2**18), 0)  # a tenth of the peak: 22 MB\n"
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


def tries(kind: str, reseed: bool, done: int, count: int, patterns: Sequence[str]) -> Iterator[dict[str, object]]:
    while done < count:
        with TemporaryDirectory(prefix="gate-trial-") as scratch:
            base, head = places(kind, reseed, Path(scratch))
            series = gate.by_relevance(gate.chosen(gate.catalogue(head), patterns), [])
            with Pairs(base, head) as pairs:
                # fits are kept in the folder of the processes, so that one try of a score is all that they can give
                for _ in range(min(TRIES_PER_PAIR if series[0].kind != "track" else 1, count - done)):
                    yield one_try(pairs, series[done % len(series)])
                    done += 1


def one_try(pairs: Pairs, series: gate.Series) -> dict[str, object]:
    start = time.monotonic()
    outcome = gate.outcome_of(pairs, series, start + WITHIN)
    change = outcome.change
    return {
        "series": series.name,
        "verdict": outcome.verdict,
        "change": None if change is None else [round(v, 4) for v in (change.middle, change.low, change.high)],
        "seconds": round(time.monotonic() - start, 1),
        "pairs": outcome.pairs,
        "note": outcome.note,
    }


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()] if RECORD.exists() else []


def summary() -> None:
    """One line per kind, and every change that was called between equal commits."""
    kinds: dict[object, list[dict[str, object]]] = {}
    for row in rows():
        kinds.setdefault(row["kind"], []).append(row)
    for kind, found in kinds.items():
        verdicts = Counter(str(row["verdict"]) for row in found)
        seconds = sorted(float(str(row["seconds"])) for row in found)
        names = len({row["series"] for row in found})
        print(f"{kind}: {len(found)} tries of {names} series; {', '.join(f'{n} {verdict}' for verdict, n in verdicts.most_common())}; "
              f"seconds {seconds[len(seconds) // 2]:.0f} (most {seconds[-1]:.0f})")  # fmt: skip
    for row in rows():
        if str(row["kind"]).startswith("self") and row["verdict"] in ("regression", "improved"):
            print(row["verdict"], row["series"], row["change"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=(*SERIES, "summary"))
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--series", help="other series than the usual ones")
    parser.add_argument("--reseed", action="store_true", help="other random numbers on the second side")
    arguments = parser.parse_args()
    if arguments.kind == "summary":
        summary()
        return 0
    patterns = (arguments.series,) if arguments.series else SERIES[arguments.kind]
    name = " ".join(part for part in (arguments.kind, "reseeded" if arguments.reseed else "", arguments.series or "") if part)
    done = sum(row["kind"] == name for row in rows())
    for row in tries(arguments.kind, arguments.reseed, done, arguments.tries, patterns):
        with RECORD.open("a", encoding="utf-8") as record:
            record.write(json.dumps({"kind": name, **row, "load": round(os.getloadavg()[0], 1)}) + "\n")
        print(name, *(row[key] for key in ("series", "verdict", "change", "seconds")), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
