"""`fsibench claims`: do the sentences about results hold on the committed results?"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench.cli.exits import FAILED, OK

if TYPE_CHECKING:
    from fsibench.reports.claims import Claim, State


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("claims", help="do the sentences about results hold on the committed results?")
    parser.add_argument("--folder", type=Path, default=Path("leaderboard"), metavar="DIR", help="with claims.toml and packed stores (default: %(default)s)")
    parser.set_defaults(handler=_claims)


def _claims(arguments: argparse.Namespace) -> int:
    from fsibench.reports.claims import citation_problems

    states = judged(arguments.folder)
    for claim, state, why in states.values():
        print(f"{state:5}  {claim.id}: {claim.text}" + (f" ({why})" if why else ""))
    problems = list(citation_problems(pages(arguments.folder), states))
    for problem in problems:
        print(f"stale  {problem}")
    return FAILED if problems else OK


def judged(folder: Path) -> Mapping[str, tuple[Claim, State, str]]:
    """Claim by id, with its state on the committed results and the reason."""
    from fsibench.reports import claims
    from fsibench.reports.publication import Publication

    listed = claims.read(folder / "claims.toml")
    boards = {
        name: Publication.read(folder / f"{name}.parquet", folder / "board.toml")
        for name in {claim.store for claim in listed}
        if (folder / f"{name}.parquet").is_file()
    }
    found: dict[str, tuple[Claim, State, str]] = {}
    for claim in listed:
        absent: tuple[State, str] = ("open", f"there are no committed results {claim.store}")
        state, why = claims.judge(claim, boards[claim.store]) if claim.store in boards else absent
        found[claim.id] = (claim, state, why)
    return found


def pages(folder: Path) -> dict[str, str]:
    """Every page that may cite a claim."""
    root = folder.resolve().parent
    files = [root / "README.md", folder / "README.md", *sorted((root / "docs").glob("*.md"))]
    return {path.name: path.read_text(encoding="utf-8") for path in files if path.is_file()}
