"""What makes two cells the same: content hashes of options, data, budget and the code that matters.

The code that matters for a cell is
  * the method's own file,
  * what it imports, directly or not, of `fsibench.blocks`, of `fsibench.methods`, of its own package, and of code that
    lies neither in the standard library nor among the installed packages (a `helper.py` beside the method),
  * the module of a prior from another package (entry point `fsibench.priors`) that an option names,
  * `CORE_MODULES`: what turns a fit into scores.
Imports are read from the source: absolute and relative ones, wherever they stand, and `import_module("name")`. Where a
package computes the names that it imports, all its files count; a single file must write them out.
Each file counts as its syntax tree without docstrings, so a comment, a docstring or a blank line changes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench.errors import UsageError

if TYPE_CHECKING:
    from fsibench.contract import Method

CORE_MODULES = (
    "fsibench.contract",
    "fsibench.predictive",
    "fsibench.predictive.grid",
    "fsibench.predictive.mixture",
    "fsibench.predictive.spread",
    "fsibench.predictive.student_t",
    "fsibench.predictive.values",
    "fsibench.metrics",
    "fsibench.scoring",
    "fsibench.data.arrays",
    "fsibench.data.encode",
    "fsibench.data.splits",
    "fsibench.data.standardise",
    "fsibench.data.tables",
    "fsibench.harness.runner",
    "fsibench.harness.schedule",
    "fsibench.harness.speed",
)
COUNTED_ROOMS = ("fsibench.blocks", "fsibench.methods", "fsibench.tuning.space")


def digest(content: Mapping[str, Any]) -> str:
    """A short stable hash of JSON-able content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def derive_seed(*axes: object) -> int:
    """A seed for torch from named axes: equal axes, equal seed, on every machine; otherwise unrelated."""
    return int.from_bytes(hashlib.sha256(repr(axes).encode()).digest()[:8], "little") >> 1


def code_version(module_name: str) -> str:
    """Hash of the code that matters for a method defined in `module_name`, as the files are now."""
    files = {name: _parsed(path).syntax for name, path in sorted(relevant_files(module_name).items())}
    # A file given by path carries its location in its module name; its content is what counts.
    content = [value for name, value in files.items() if name == module_name]
    return digest({"method": content, "rest": {n: v for n, v in files.items() if n != module_name}})


def version_of(method: Method) -> str:
    """Hash of the code that matters for an entry, that of methods that it runs and of foreign priors included."""
    versions = [code_version(part.__module__) for part in method.parts()]
    versions += [code_version(module) for module in _foreign_priors(method)]
    return versions[0] if len(versions) == 1 else digest({"parts": versions})


def _foreign_priors(method: Method) -> list[str]:
    """Modules of priors from other packages that the options of an entry name, also inside a nested entry."""
    texts = [value for value in vars(method).values() if isinstance(value, str)]
    return sorted({
        module
        for name, module in _prior_modules()
        if any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for text in texts)
    })


@functools.cache
def _prior_modules() -> tuple[tuple[str, str], ...]:
    """(name, module) of each entry point in the group `fsibench.priors`; reading the entry points takes milliseconds."""
    points = importlib.metadata.entry_points(group="fsibench.priors")
    return tuple((point.name, point.value.partition(":")[0].strip()) for point in points)


def relevant_files(module_name: str) -> dict[str, Path]:
    """Module name -> file of everything that counts."""
    files: dict[str, Path] = {}
    waiting = [module_name, *CORE_MODULES]
    while waiting:
        name = waiting.pop()
        path = None if name in files else _source(name)
        if path is None:
            continue
        files[name] = path
        if name not in CORE_MODULES:
            waiting.extend(imported for imported in _imports(name, path) if _counts(imported, module_name))
    return files


def _counts(imported: str, owner: str) -> bool:
    top = imported.partition(".")[0]
    if top == "fsibench":
        return any(imported.startswith(f"{room}.") for room in COUNTED_ROOMS)
    return top == owner.partition(".")[0] or _is_local(top)


def _imports(name: str, path: Path) -> Iterator[str]:
    """Every module that the code of module `name` may import, with the packages that hold it."""
    parsed = _parsed(path)
    is_package = path.name == "__init__.py"
    for level, module in parsed.imports:
        # `from . import x` in a.b.c means a.b.x, and in the package a.b itself (its __init__.py) as well.
        above = name.split(".")[: len(name.split(".")) - level + is_package] if level else []
        parts = [*above, *(module.split(".") if module else [])]
        yield from (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    if parsed.computed is not None:
        yield from _whole_package(name, path, parsed.computed)


def _whole_package(name: str, path: Path, line: int) -> Iterator[str]:
    is_package = path.name == "__init__.py"
    if "." not in name and not is_package:
        raise UsageError(
            f"{path}, line {line}: the name of an imported module is computed, so a change of that module would go "
            "unseen; write the name out, or make the method a package."
        )
    top = name.partition(".")[0]
    folder = path.parents[name.count(".") - (not is_package)]
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        yield ".".join([top, *(parts[:-1] if parts[-1] == "__init__" else parts)])


@functools.cache
def _is_local(top: str) -> bool:
    """Whether a top-level module is neither of the standard library nor an installed package."""
    path = None if top in sys.stdlib_module_names else _source(top)
    if path is None or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib"))


def _source(module_name: str) -> Path | None:
    return _own_source(module_name) if module_name.startswith("fsibench.") else _find_source(module_name)


@functools.cache
def _own_source(module_name: str) -> Path | None:
    return _find_source(module_name)  # our own modules do not appear while we run; a search for a name costs 0.1 ms


def _find_source(module_name: str) -> Path | None:
    if module_name in sys.modules:
        file = getattr(sys.modules[module_name], "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(module_name)
        except (ImportError, ValueError, AttributeError):
            return None  # `from package import name` also yields names that are no modules
        file = spec.origin if spec else None
    return Path(file) if file and file.endswith(".py") else None


@dataclass(frozen=True)
class _Parsed:
    """One source file: hash of its syntax, its imports as (level, module), first line of a computed import."""

    syntax: str
    imports: tuple[tuple[int, str], ...]
    computed: int | None


def _parsed(path: Path) -> _Parsed:
    status = path.stat()
    return _parse(path, status.st_mtime_ns, status.st_size)


def read_ahead(path: Path) -> None:
    """Parse a file, without running it, for processes that are forked from this one and will ask for its hash."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # the cell says what is wrong
        _parsed(path)


@functools.cache
def _parse(path: Path, _changed: int, _size: int) -> _Parsed:
    """Kept for as long as the file is unchanged: a cell checks its version in well under a millisecond."""
    tree = ast.parse(path.read_bytes())
    imports: set[tuple[int, str]] = set()
    computed = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            imports.update((node.level, ".".join(filter(None, (module, alias.name)))) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            literal = node.args[0] if node.args else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                module = literal.value.lstrip(".")
                imports.add((len(literal.value) - len(module), module))
            else:
                computed.append(node.lineno)
    return _Parsed(_syntax_hash(tree), tuple(sorted(imports)), min(computed, default=None))


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _syntax_hash(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
    return hashlib.sha256(repr(_plain(tree)).encode()).hexdigest()


def _plain(node: Any) -> Any:
    """A syntax tree as nested tuples, without the empty fields that one version of Python has and another has not."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.Constant):
        return ("Constant", type(node.value).__name__, repr(node.value))
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return (type(node).__name__, *((name, _plain(value)) for name, value in fields))


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:]
