"""What a command costs before it does anything: CPU seconds and memory of the command line."""

from __future__ import annotations

import functools
import resource
import subprocess
import sys

COMMANDS = ("--help", "list methods", "list datasets", "list metrics")
# the command as a person starts it; at its end the highest resident memory of the process
PROGRAM = """
import sys
from fsibench.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
if code:
    sys.exit(code)
line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(line.split()[1], file=sys.stderr)
"""


def children_cpu_seconds() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def peak_kilobytes(command: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *command.split()], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotImplementedError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return int(done.stderr.split()[-1])


@functools.cache
def warm_up(command: str) -> None:
    """Writes bytecode, and finds out whether there is such a command."""
    peak_kilobytes(command)


class Command:
    """A command in a new process."""

    params = COMMANDS
    param_names = ("command",)
    timer = staticmethod(children_cpu_seconds)
    number = 1

    def setup(self, command: str) -> None:
        warm_up(command)

    def time_command(self, command: str) -> None:
        peak_kilobytes(command)

    def track_peak(self, command: str) -> float:
        return peak_kilobytes(command) / 1024


Command.track_peak.unit = "MB"  # type: ignore[attr-defined]
