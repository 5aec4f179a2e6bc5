"""A small repository with a package, plugins and suites of its own: nothing in it imports torch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SUITE = '''
import time
import fsibench

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

class Work:
    params = ("a", "b")
    param_names = ("entry",)
    timer = time.process_time

    def setup(self, entry):
        if entry not in fsibench.ENTRIES:
            raise NotImplementedError(f"no entry {entry}")

    def time_work(self, entry):
        burn(0.002 * fsibench.COST)

    def peakmem_work(self, entry):
        self.kept = bytearray(fsibench.MEGABYTES * 2**20)
        self.kept[:: 1024] = b"x" * len(self.kept[:: 1024])

class Quality:
    params = (("a",), (0, 1, 2, 3, 4, 5))
    param_names = ("entry", "split")

    def track_ll(self, entry, split):
        print("a word that must not reach the answers")
        return -1.0 - 0.1 * split - fsibench.LOSS * (1 + 0.1 * (split % 2))

Quality.track_ll.unit = "nats"
'''
PACKAGE = 'ENTRIES = ("a",)\nCOST = 1.0\nMEGABYTES = 40\nLOSS = 0.0\n'


class Toy:
    """Commits of the small repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("src/fsibench", "methods", "datasets", "reports", "benchmarks", "docs"):
            (root / folder).mkdir(parents=True)
            (root / folder / "__init__.py").write_text("")
        (root / "benchmarks" / "toy.py").write_text(SUITE)
        (root / ".gitignore").write_text("__pycache__/\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.email", "someone@example.org")
        self.git("config", "user.name", "Someone")
        self.commit("first")

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.root), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    def write(self, **values: object) -> None:
        lines = [f"{name} = {value!r}\n" for name, value in values.items()]
        (self.root / "src/fsibench/__init__.py").write_text(PACKAGE + "".join(lines))

    def commit(self, message: str, **values: object) -> str:
        self.write(**values)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "toy")
