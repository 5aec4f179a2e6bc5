"""What makes two cells the same: content hashes of options, data, budget and the code that matters.

The code that matters for a cell is
  * the method's own file,
  * the modules of its own package, or of `fsibench.blocks`, that it imports, directly or not,
  * `CORE_MODULES`: what turns a fit into scores.
Each file counts as its syntax tree without docstrings, so a comment, a docstring or a blank line changes nothing.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CORE_MODULES = (
    "fsibench.contract",
    "fsibench.predictive",
    "fsibench.metrics",
    "fsibench.scoring",
    "fsibench.data.arrays",
    "fsibench.data.encode",
    "fsibench.data.splits",
    "fsibench.data.standardise",
    "fsibench.data.tables",
    "fsibench.harness.runner",
)


def digest(content: Mapping[str, Any]) -> str:
    """A short stable hash of JSON-able content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def derive_seed(*axes: object) -> int:
    """A seed for torch from named axes: equal axes, equal seed, on every machine; otherwise unrelated."""
    return int.from_bytes(hashlib.sha256(repr(axes).encode()).digest()[:8], "little") >> 1


@functools.cache
def code_version(module_name: str) -> str:
    """Hash of the code that matters for a method defined in `module_name`."""
    files = {name: _syntax_hash(path) for name, path in sorted(_relevant_files(module_name).items())}
    # A file given by path carries its location in its module name; its content is what counts.
    content = [value for name, value in files.items() if name == module_name]
    return digest({"method": content, "rest": {n: v for n, v in files.items() if n != module_name}})


def _relevant_files(module_name: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    waiting = [module_name, *CORE_MODULES]
    while waiting:
        name = waiting.pop()
        path = _source(name)
        if name in files or path is None:
            continue
        files[name] = path
        if name not in CORE_MODULES:
            waiting.extend(imported for imported in _imports(path) if _counts(imported, module_name))
    return files


def _counts(imported: str, owner: str) -> bool:
    if imported.startswith("fsibench"):
        return imported.startswith("fsibench.blocks")
    return imported.partition(".")[0] == owner.partition(".")[0]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _source(module_name: str) -> Path | None:
    if module_name in sys.modules:
        file = getattr(sys.modules[module_name], "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(module_name)
        except (ImportError, ValueError):
            return None  # `from package import name` also yields names that are no modules
        file = spec.origin if spec else None
    return Path(file) if file and file.endswith(".py") else None


@functools.cache
def _syntax_hash(path: Path) -> str:
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:]
