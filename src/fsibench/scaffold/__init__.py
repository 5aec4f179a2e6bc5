"""New plugins from templates: one file, or a small installable project with a test, a README and a nox file.

What is written works as it is: the method trains and keeps the contract, the tests pass.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import keyword
import re
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from string import Template

from fsibench import metrics, registry
from fsibench.errors import UsageError

# kind -> entry-point group, and what to try once the project is installed
KINDS = {
    "method": ("fsibench.methods", "fsibench run quick --methods constant,$name"),
    "dataset": ("fsibench.datasets", "fsibench run smoke --datasets $name"),
    "metric": ("fsibench.metrics", "fsibench list metrics"),
    "page": ("fsibench.pages", "fsibench report"),
    "protocol": ("fsibench.protocols", "fsibench run $name"),
}


def write_file(kind: str, name: str, folder: Path) -> Path:
    """One file: `NAME.py`, or `NAME.toml` for a protocol."""
    words = _words(kind, name)
    ending = "toml" if kind == "protocol" else "py"
    path = folder / f"{name}.{ending}"
    if ending == "py" and not path.exists() and importlib.util.find_spec(name) is not None:
        raise UsageError(f"{path.name} would hide the module {name!r} from programs in its folder; choose another name.")
    return _write(path, f"{kind}.{ending}", words)


def write_package(kind: str, name: str, folder: Path) -> Path:
    """A project folder `fsibench-NAME`, ready for `pip install -e`."""
    words = _words(kind, name)
    project = folder / f"fsibench-{words['dashed']}"
    if project.exists():
        raise UsageError(f"{project} exists already; choose another name or remove it.")
    code = project / "src" / words["package"]
    for path, template in {
        project / "pyproject.toml": "pyproject.toml",
        project / "README.md": "README.md",
        project / "noxfile.py": "noxfile.py",
        project / "tests" / f"test_{name}.py": f"test_{kind}.py",
    }.items():
        _write(path, template, words)
    if kind == "protocol":
        _write(code / f"{name}.toml", "protocol.toml", words)
        (code / "__init__.py").write_text(f'"""Protocols of fsibench-{words["dashed"]}: every TOML file here."""\n')
    else:
        _write(code / "__init__.py", f"{kind}.py", words)
    return project


def _words(kind: str, name: str) -> dict[str, str]:
    if not re.fullmatch("[a-z][a-z0-9_]{0,40}", name):
        raise UsageError(f"a name has lower-case letters, digits and _, and begins with a letter; got {name!r}.")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if keyword.iskeyword(name) or keyword.iskeyword(class_name):
        raise UsageError(f"{name!r} is a word of Python; choose another name.")
    if kind == "metric":
        metrics.require_key(name)
    if name in _taken(kind):
        raise UsageError(f"there is a {kind} {name!r} already; choose another name.")
    group, try_it = KINDS[kind]
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "Class": class_name,
        "package": f"fsibench_{name}",
        "kind": kind,
        "group": group,
    }
    return {**words, "try_it": Template(try_it).substitute(words)}


def _taken(kind: str) -> set[str]:
    """Names that are known under a kind already. Methods go by their files: importing them would import torch."""
    found: dict[str, Callable[[], Iterable[str]]] = {
        "method": lambda: registry.file_names(KINDS[kind][0]),
        "dataset": lambda: registry.datasets().items,
        "metric": metrics.known,
        "protocol": lambda: registry.protocols().items,
    }
    installed = (point.name for point in importlib.metadata.entry_points(group=KINDS[kind][0]))
    return {*found.get(kind, tuple)(), *installed}


def _write(path: Path, template: str, words: dict[str, str]) -> Path:
    text = (resources.files(__name__) / "templates" / f"{template}.txt").read_text(encoding="utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(Template(text).substitute(words))
    except FileExistsError:
        raise UsageError(f"{path} exists already; choose another name or remove it.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    return path
