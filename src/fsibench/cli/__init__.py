"""The command line: parse, call, print. Heavy imports happen inside the commands, so `--help` answers at once.

A command is a module of this folder, or of the entry-point group `fsibench.commands`, with `add_parser(commands)`,
which adds a parser and sets `handler` on its arguments.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import pkgutil
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import fsibench
from fsibench.cli.exits import INTERRUPTED, OK, USAGE
from fsibench.errors import UsageError, told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 ok, 1 a cell failed, 2 bad usage, 130 interrupted)."""
    try:
        options = _parser().parse_args(arguments)
        handler: Callable[[argparse.Namespace], int] | None = getattr(options, "handler", None)
        if handler is None:
            raise UsageError("this command of a plugin does nothing: its parser sets no `handler`.")
        return handler(options)
    except UsageError as error:
        print(f"fsibench: {error}", file=sys.stderr)
        return USAGE
    except sqlite3.Error as error:  # a store that broke, or a disk that filled up, after it was opened
        place = getattr(options, "store", "")
        print(f"fsibench: the store {place} failed ({error}); what was committed before is safe.", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("fsibench: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The pipe was closed (`fsibench list | head`): exit without a second error message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and takes `-5s` for a value: the command then says what is wrong with it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"fsibench: {message}; `{self.prog} --help` shows how.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fsibench", description=fsibench.__doc__)
    parser.add_argument("--version", action="version", version=f"fsibench {fsibench.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "add_parser"):
            module.add_parser(commands)
    parser.set_defaults(broken_commands=_add_plugins(commands))
    return parser


def _add_plugins(commands: Any) -> dict[str, str]:
    """Add the commands of installed packages; returns the errors of those that cannot be loaded, and prints them."""
    broken = {}
    for point in importlib.metadata.entry_points(group="fsibench.commands"):
        try:
            point.load().add_parser(commands)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a broken plugin breaks only itself)
            broken[point.name] = told(error)
            print(f"fsibench: the command {point.name!r} of a plugin cannot be loaded: {told(error)}", file=sys.stderr)
    return broken


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, for calls from Python."""
    commands = _Parser(prog="fsibench").add_subparsers()
    importlib.import_module(f"{__name__}.{name}").add_parser(commands)
    found: argparse.ArgumentParser = commands.choices[name]
    return found
