"""Files of a commit, laid out so that Python finds them as the package `fsibench`; the environment is shared by all.

The files come from `git archive`, not from a worktree: nothing is left in the repository when a run is killed, and a
shallow clone will do. The folders `methods`, `datasets` and `reports` are linked into the package, as installing does.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from fsibench.errors import UsageError

PLUGIN_FOLDERS = ("methods", "datasets", "reports")
CODE_FOLDERS = ("src", *PLUGIN_FOLDERS)
WORKING_TREE = "working tree"


@dataclass(frozen=True)
class Commit:
    """A commit, or the files as they are (`sha` is then that of HEAD and `dirty` is true)."""

    sha: str
    date: str
    subject: str
    dirty: bool = False

    @property
    def label(self) -> str:
        return f"{self.sha[:10]} + changes" if self.dirty else self.sha[:10]


class Repository:
    """Questions to git about the repository that holds `folder`."""

    def __init__(self, folder: Path) -> None:
        try:
            self.root = Path(self._git(folder, "rev-parse", "--show-toplevel"))
        except FileNotFoundError:
            raise UsageError("git is needed to compare commits, and is not installed.") from None
        except subprocess.CalledProcessError:
            raise UsageError(f"{folder} is in no git repository; run this inside a clone of the project.") from None
        if not (self.root / "benchmarks").is_dir():
            raise UsageError(f"{self.root} holds no benchmarks/; run this inside a clone of the project.")

    @staticmethod
    def _git(folder: Path, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def git(self, *arguments: str) -> str:
        return self._git(self.root, *arguments)

    def commit(self, name: str) -> Commit:
        try:
            sha = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except subprocess.CalledProcessError:
            shallow = self.git("rev-parse", "--is-shallow-repository") == "true"
            hint = "this clone is shallow: `git fetch --unshallow` brings the rest" if shallow else "`git log` lists them"
            raise UsageError(f"there is no commit {name!r} here; {hint}.") from None
        date, subject = self.git("show", "--no-patch", "--format=%cI%n%s", sha).split("\n", 1)
        return Commit(sha, date, subject)

    def commits(self, revisions: str) -> list[Commit]:
        """Commits of a range such as `A..B`, oldest first, along first parents."""
        try:
            lines = self.git("log", "--first-parent", "--reverse", "--format=%H%x09%cI%x09%s", revisions, "--").splitlines()
        except subprocess.CalledProcessError:
            raise UsageError(f"{revisions!r} is no range of commits; write for example HEAD~20..HEAD.") from None
        return [Commit(sha, date, subject) for sha, date, subject in (line.split("\t", 2) for line in lines)]

    def has_changes(self) -> bool:
        """Whether files that git knows differ from the last commit, or code is not yet known to it."""
        return bool(self.git("status", "--porcelain", "--", *[f for f in CODE_FOLDERS if (self.root / f).exists()]))

    def working_tree(self) -> Commit:
        head = self.commit("HEAD")
        return Commit(head.sha, head.date, head.subject, dirty=True)

    def changed_code(self, base: Commit, head: Commit) -> list[str]:
        """Files that the package is made of and that differ between the two."""
        ends = [base.sha] if head.dirty else [base.sha, head.sha]
        changed = self.git("diff", "--name-only", *ends, "--", *CODE_FOLDERS).splitlines()
        new = self.git("ls-files", "--others", "--exclude-standard", "--", *CODE_FOLDERS).splitlines() if head.dirty else []
        return [*changed, *new]

    def acceptances(self, base: Commit, head: Commit) -> dict[str, str]:
        """Series whose regression a commit message between the two accepts: `Accept-regression: SERIES reason`."""
        messages = self.git("log", "--format=%B", f"{base.sha}..{head.sha}")
        return accepted_series(messages)

    def lay_out(self, commit: Commit, folder: Path) -> Path:
        """The files of a commit below `folder`; returns what belongs on Python's path."""
        root = self.root if commit.dirty else self._extract(commit, folder / "files")
        package = folder / "site" / "fsibench"
        package.mkdir(parents=True)
        source = root / "src" / "fsibench"
        if not source.is_dir():
            raise UsageError(f"commit {commit.label} has no src/fsibench, so that there is nothing to measure.")
        for path in source.iterdir():
            if path.name != "__pycache__":
                (package / path.name).symlink_to(path)
        for name in PLUGIN_FOLDERS:
            if (root / name).is_dir():
                (package / name).symlink_to(root / name)
        return package.parent

    def _extract(self, commit: Commit, folder: Path) -> Path:
        folder.mkdir(parents=True)
        command = ["git", "-C", str(self.root), "archive", commit.sha]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as packed:
            assert packed.stdout is not None
            with tarfile.open(fileobj=packed.stdout, mode="r|") as archive:
                archive.extractall(folder, filter="data")
            packed.stdout.read()  # the padding at the end, without which git would die of a closed pipe
        if packed.returncode != 0:
            raise UsageError(f"git cannot read the files of {commit.label}; `git fsck` may say why.")
        return folder


def accepted_series(messages: str) -> dict[str, str]:
    """Series and reasons, from lines `Accept-regression: SERIES reason`."""
    lines = re.findall(r"^Accept-regression:[ \t]*([\w.*]+(?:\([^)\n]*\))?)[ \t]*(.*)$", messages, flags=re.MULTILINE)
    return {series: reason.strip() or "no reason given" for series, reason in lines}


def covers(pattern: str, series: str) -> bool:
    """Whether a name given by a person means a series: in full, without its parameters, or with `*` for any text."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*") + r"(\(.*\))?", series) is not None
