"""`fsibench new`: a plugin that works as it is written, to be changed into yours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fsibench import scaffold
from fsibench.cli.exits import OK


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("new", help="write a method, data set, metric, page or protocol to start from")
    parser.add_argument("kind", choices=tuple(scaffold.KINDS))
    parser.add_argument("name", help="lower-case letters, digits and _")
    parser.add_argument("--package", action="store_true", help="an installable project with test, README and nox file")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where to write (default: here)")
    parser.set_defaults(handler=_new)


def _new(arguments: argparse.Namespace) -> int:
    kind, name = arguments.kind, arguments.name
    if arguments.package:
        project = scaffold.write_package(kind, name, arguments.folder)
        print(f"{project}: install it with `pip install -e {project}`, then `pytest {project}`")
        return OK
    path = scaffold.write_file(kind, name, arguments.folder)
    print(f"{path}: {_next_step(kind, path)}")
    return OK


def _next_step(kind: str, path: Path) -> str:
    place = path if path.is_absolute() else f"./{path}"
    class_name = "".join(part.capitalize() for part in path.stem.split("_"))
    return {
        "method": f"try `fsibench check {place}:{class_name}`",
        "dataset": f"try `fsibench run smoke --datasets {place}:{class_name}`",
        "protocol": f"try `fsibench run {place}`",
    }.get(kind, f"a {kind} is found once it is installed: `fsibench new {kind} {path.stem} --package` writes a project")
