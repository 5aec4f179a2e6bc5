"""`fsibench reference`: make a reference posterior, or check the one that is there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fsibench.cli.exits import FAILED, OK
from fsibench.errors import unknown


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "reference",
        help="make the reference posterior of a small problem",
        description="Sample the posterior of a small problem under the stated prior with two independent samplers and keep "
        "functions at its test rows, predictive quantiles and the evidence as Parquet. Exit code 1: they do not agree, or "
        "have not converged (R-hat below 1.01, 1,000 effective draws); nothing is written then.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="snelson, boston, ... (default: all eight)")
    parser.add_argument("--draws", type=int, default=600, metavar="N", help="iterations of 8 chains (default: %(default)s)")
    parser.add_argument("--particles", type=int, default=400, metavar="N", help="of the second sampler (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: beside the package's other references")
    parser.set_defaults(handler=_reference)


def _reference(arguments: argparse.Namespace) -> int:
    import torch

    from fsibench.references.files import FOLDER, PROBLEMS, path_of, save
    from fsibench.references.making import NotAReference, make

    torch.set_num_threads(1)  # as in a run: more threads slow tiny tensors down, on a busy machine by a factor of ten
    for name in arguments.names:
        if name not in PROBLEMS:
            raise unknown("reference problem", name, PROBLEMS)
    folder: Path = arguments.out or FOLDER
    failed = 0
    for name in arguments.names or PROBLEMS:
        try:
            reference = make(name, arguments.draws, arguments.particles, say=lambda text: print(text, file=sys.stderr))
        except NotAReference as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        save(reference, path_of(name, folder))
        about = reference.about
        print(
            f"{name}: R-hat {about['worst_rhat']:.4f}, {about['least_ess']:.0f} effective draws, samplers agree within "
            f"{about['worst_z']:.1f} Monte Carlo errors, log evidence {about['log_evidence']:.2f} -> {path_of(name, folder)}"
        )
    return FAILED if failed else OK
