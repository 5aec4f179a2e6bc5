"""`fsibench tune`: choose the defaults of a method on the development suite; the same command resumes."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from fsibench.cli.exits import INTERRUPTED, OK

DEFAULT_STORE = "results/tune-METHOD.sqlite"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("tune", help="choose a method's defaults on the development suite")
    parser.add_argument("method", help="a method; options written in brackets stay as they are")
    parser.add_argument("--total", default="1h", metavar="1h", help="CPU time of the whole search (default: 1h)")
    parser.add_argument("--budget", default="20s", metavar="20s", help="training CPU time of one fit (default: 20s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of proposals and fits (default: 0)")
    parser.add_argument("--datasets", metavar="A,B", help="only these of the development suite")
    parser.add_argument("--store", type=Path, metavar="PATH", help=f"default: {DEFAULT_STORE}")
    parser.add_argument("--out", type=Path, default=Path("methods/defaults"), metavar="DIR", help="folder of METHOD.toml")
    parser.add_argument("--mirror", type=Path, metavar="DIR", help="folder with data files by name")
    parser.set_defaults(handler=_tune)


def _tune(arguments: argparse.Namespace) -> int:
    from fsibench.harness import environment
    from fsibench.harness.plan import parse_budget
    from fsibench.harness.store import Store
    from fsibench.tuning import record, session
    from fsibench.tuning.search import Settings

    if arguments.mirror is not None:
        os.environ["FSIBENCH_MIRROR"] = str(arguments.mirror.resolve())
    settings = Settings(parse_budget(arguments.total), parse_budget(arguments.budget), arguments.seed)
    task = session.Task.of(arguments.method, settings, _datasets(arguments.datasets), _say)
    path = arguments.store or Path(DEFAULT_STORE.replace("METHOD", task.entry.label))
    with Store.create(path) as store:
        run = store.begin_run(_command(), {"name": "tune", "title": f"search of {task.entry.label}"}, environment.describe())
        try:
            outcome = session.tune(task, store, run, lambda: _executor(settings.cell_seconds), _say)
        except KeyboardInterrupt:
            store.end_run(run, "interrupted")
            _say("fsibench: stopped; the same command goes on from here")
            return INTERRUPTED
        store.end_run(run, "finished")
    text = record.record(task.entry.label, task.space, outcome, settings, task.datasets, _repeatable(arguments))
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / f"{task.entry.label}.toml"
    file.write_text(text, encoding="utf-8")
    changed = {name: value for name, value in outcome.best.options.items() if value != task.defaults[name]}
    _say(f"written to {file}; " + ("these options differ from the defaults in the method's file:" if changed else "the defaults stay as they are"))
    for name, value in changed.items():
        print(f"{name} = {value}  # was {task.defaults[name]}")
    return OK


def _datasets(text: str | None) -> list[str]:
    from fsibench.errors import unknown
    from fsibench.options import split_list
    from fsibench.tuning import objective

    known = objective.datasets()
    chosen = split_list(text) if text else known
    for name in chosen:
        if name not in known:
            raise unknown("data set of the development suite", name, known)
    return chosen


def _executor(seconds: float) -> Any:
    from fsibench.executors.base import Limits
    from fsibench.executors.local import LocalExecutor

    return LocalExecutor(1, Limits(20.0 * seconds + 120.0))


def _command() -> list[str]:
    return ["fsibench", *sys.argv[1:]]


def _repeatable(arguments: argparse.Namespace) -> str:
    """The command for anybody's machine: what decides the result, and no place of this one."""
    words = ["fsibench", "tune", arguments.method, "--total", arguments.total, "--budget", arguments.budget]
    words += ["--seed", str(arguments.seed), *(["--datasets", arguments.datasets] if arguments.datasets else [])]
    return shlex.join([*words, *(["--mirror", "MIRROR"] if arguments.mirror else [])])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
