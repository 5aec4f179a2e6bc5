"""`fsibench rescore`: metrics that a store lacks, from the predictives that its cells kept."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from fsibench.cli.exits import OK
from fsibench.errors import UsageError, unknown
from fsibench.harness.store import DEFAULT_STORE


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "rescore",
        help="compute new metrics for an old store",
        description="Fill in metrics that the final rows of a store lack, from predictives kept with "
        "`fsibench run --keep predictives`. Values that are there already are never changed.",
    )
    parser.add_argument("--store", type=Path, default=DEFAULT_STORE, metavar="PATH", help="default: %(default)s")
    parser.add_argument("--metrics", metavar="A,B", help="only these (default: every metric of the list)")
    parser.set_defaults(handler=_rescore)


def _rescore(arguments: argparse.Namespace) -> int:
    from fsibench.harness.predictives import restored
    from fsibench.harness.store import Store
    from fsibench.metrics import Prediction, known, left_out, value

    wanted = arguments.metrics.split(",") if arguments.metrics else list(known())
    for key in wanted:
        if key not in known():
            raise unknown("metric", key, known())
    Store.read(arguments.store).close()  # an absent store is a mistake here, not a reason to make one
    with Store.create(arguments.store) as store:
        kept = store.artifacts("predictives")
        if not kept:
            raise UsageError(f"no cell of {arguments.store} kept its predictives; run it with --keep predictives.")
        filled = 0
        faults: dict[str, str] = {}
        for cell, content in kept.items():
            prediction = Prediction(*restored(content))
            present = store.final_scores(cell)
            values = {key: value(known()[key], prediction, faults) for key in wanted if present.get(key) is None}
            values = {key: number for key, number in values.items() if math.isfinite(number)}
            store.add_scores(cell, values)
            filled += len(values)
    print(f"{filled} values filled in for {len(kept)} cells", file=sys.stderr)
    if faults:
        print(left_out(faults), file=sys.stderr)
    return OK
