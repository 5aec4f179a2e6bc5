"""Parts of a plan for array schedulers: `--shard 3/8` runs every cell whose id falls into the third of eight parts.

Membership is a function of the cell alone. Machines need not talk to each other, and a plan that grows, or lacks a data
set on one machine, moves no cell to another shard.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsibench.errors import UsageError
from fsibench.harness.plan import Cell


@dataclass(frozen=True)
class Shard:
    """Part `number` of `total`, counted from one."""

    number: int
    total: int

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in cells if int(cell.id, 16) % self.total == self.number - 1]

    def store(self, path: Path) -> Path:
        """A store of its own beside the given one: two drivers never write one file."""
        return path.with_name(f"{path.stem}-{self.number}of{self.total}{path.suffix}")


def parse_shard(text: str) -> Shard:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"cannot read the shard {text!r}; write for example 3/8, from 1/8 to 8/8.")
    return Shard(int(match[1]), int(match[2]))
