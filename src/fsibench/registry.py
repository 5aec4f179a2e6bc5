"""What there is: methods, data sets and protocols, found by name.

Methods come from three places: files in `fsibench.methods`, the entry-point group `fsibench.methods` of any installed
package (value: a module or a Method class), and a file named by the user, `./file.py:Class`. Data sets come from the
same three places: a module offers `DATASETS`, or a `PREFIX` with `resolve(text)` for references such as `openml:189`,
and `expand(text)` if a reference stands for several. A plugin that cannot be imported is listed with its
error and affects nothing else; a name offered twice is an error for that name only.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fsibench import options
from fsibench.errors import FsibenchError, UsageError, told, unknown

if TYPE_CHECKING:
    from fsibench.contract import Method
    from fsibench.data import Dataset

# However the import of a plugin ends, only that plugin is broken; Ctrl-C is for us.
PLUGIN_FAILURES = (Exception, SystemExit, GeneratorExit)
# What is wrong with an entry point of a group that gives nothing.
EMPTY = {
    "fsibench.methods": "it defines no Method; name the module that does, or module:Class",
    "fsibench.datasets": "it has neither DATASETS nor PREFIX",
    "fsibench.protocols": "no TOML file lies beside it",
}


@dataclass
class Found:
    """Everything offered under one kind, by name, with where it came from; and what failed to load."""

    items: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def offer(self, name: str, item: Any, origin: str) -> None:
        self.origins.setdefault(name, []).append(origin)
        self.items[name] = item

    def get(self, kind: str, name: str) -> Any:
        if name not in self.items and name in self.broken:
            raise UsageError(f"{kind} {name!r} cannot be loaded: {self.broken[name]}")
        if name not in self.items:
            raise unknown(kind, name, self.items)
        if len(self.origins[name]) > 1:
            raise UsageError(f"{kind} {name!r} is offered twice: by {' and by '.join(self.origins[name])}; remove one.")
        return self.items[name]


@dataclass(frozen=True)
class Entry:
    """A method with its options, ready to run; `file` is `path.py:Class` where it was given as a file."""

    label: str
    file: str | None
    method: Method


# Methods -----------------------------------------------------------------------------------------------------------


@functools.cache
def methods() -> Found:
    """Every method of the package and of installed plugins."""
    return _collect("fsibench.methods", _offer_methods)


def entry(text: str) -> Entry:
    """`bbb[prior=scale_mixture]` or `./file.py:Class[option=1]` as something that can run."""
    name, raw = options.parse_entry(text)
    cls = method_class(name)
    method = options.build(cls, cls.name, raw)
    file = None if _file_reference(name) is None else _absolute(name)
    return Entry(options.label(cls.name, options.changed(method)), file, method)


def method_class(reference: str) -> type[Method]:
    file = _file_reference(reference)
    if file is None:
        found: type[Method] = methods().get("method", reference)
        return found
    path, class_name = file
    cls = _class_in_file(path, class_name)
    if cls.name in methods().items:
        origins = " and by ".join([*methods().origins[cls.name], str(path)])
        raise UsageError(f"method {cls.name!r} is offered twice: by {origins}; give the class another name.")
    return cls


def _offer_methods(found: Found, value: Any, origin: str) -> None:
    from fsibench.contract import Method

    if inspect.isclass(value):
        found.offer(_method_name(value, Method, origin), value, origin)
        return
    for cls in vars(value).values():
        own = inspect.isclass(cls) and cls.__module__ == value.__name__
        if own and issubclass(cls, Method) and not inspect.isabstract(cls):
            found.offer(_method_name(cls, Method, origin), cls, origin)


def _method_name(cls: type, base: type, origin: str) -> str:
    if not issubclass(cls, base):
        raise TypeError(f"{cls.__name__} is not a fsibench Method; derive it from fsibench.Method")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"{cls.__name__} in {origin} has no `name`; add `name: ClassVar[str] = ...`")
    if fault := options.fault_of_fields(cls, base):
        raise TypeError(fault)
    return name


def _file_reference(reference: str) -> tuple[Path, str] | None:
    """File and class of `./file.py:Class`; the class is empty where it was forgotten."""
    path, colon, class_name = reference.rpartition(":")
    if not colon and class_name.endswith(".py"):
        return Path(class_name), ""
    return (Path(path), class_name) if colon and path.endswith(".py") else None


def _absolute(reference: str) -> str:
    path, _, class_name = reference.rpartition(":")
    return f"{Path(path).resolve()}:{class_name}"


def _class_in_file(path: Path, class_name: str) -> type[Method]:
    from fsibench.contract import Method

    cls = _named_class(path, class_name, Method)
    try:
        _method_name(cls, Method, str(path))
    except TypeError as error:
        raise UsageError(f"{path}: {error}.") from None
    found: type[Method] = cls
    return found


def _named_class(path: Path, class_name: str, base: type) -> Any:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; write ./file.py:Class.")
    module = _module_from_file(path.resolve())
    cls = getattr(module, class_name, None)
    if inspect.isclass(cls):
        return cls
    offered = [
        name for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and issubclass(value, base)
    ]  # fmt: skip
    if not class_name:
        raise UsageError(f"{path} is a file; write {path}:CLASS with one of its classes: {', '.join(offered) or 'none'}.")
    raise unknown(f"class in {path}", class_name, offered)


@functools.cache
def _module_from_file(path: Path) -> ModuleType:
    name = f"fsibench_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except PLUGIN_FAILURES as error:
        del sys.modules[name]
        raise UsageError(f"{path} cannot be loaded: {_last_line(error)}{_line_of(path, error)}") from None
    return module


# Data sets ---------------------------------------------------------------------------------------------------------


@functools.cache
def datasets() -> Found:
    """Every named data set of the package and of installed plugins."""
    return _collect("fsibench.datasets", _offer_datasets)


@functools.cache
def sources() -> Found:
    """Prefix (`openml:`, `file:`) -> the module that makes a data set of what follows."""
    return _collect("fsibench.datasets", _offer_source)


def _source(text: str) -> Any:
    """The module whose prefix a text begins with, or None."""
    prefix = next((prefix for prefix in sources().items if text.startswith(prefix)), None)
    return None if prefix is None else sources().get("data source", prefix)


def dataset(text: str) -> Dataset:
    """`boston`, `bimodal[num_train=500]`, `openml:44959`, `file:path.csv?target=y` or `./file.py:Class[option=1]`.

    References have their options after a question mark; there the names of data sets may have them too.
    """
    source = _source(text)
    if source is not None:
        return _resolved(source, text)
    name, mark, query = text.partition("?")
    name, raw = options.parse_entry(f"{name}[{query.replace('&', ',')}]" if mark else text)
    file = _file_reference(name)
    if file is not None:
        return options.build(_dataset_class(*file), name, raw, name=text)  # type: ignore[no-any-return]
    found: Dataset = datasets().get("dataset", name)
    if not raw:
        return found
    return options.build(type(found), name, raw, name=name)  # type: ignore[no-any-return]


def _resolved(source: Any, text: str) -> Dataset:
    """What a source makes of a reference; an error of a plugin is one sentence."""
    try:
        found: Dataset = source.resolve(text)
    except Exception as error:
        if isinstance(error, FsibenchError) or source.__name__.startswith("fsibench."):
            raise
        raise UsageError(f"the plugin {source.__name__} cannot read {text!r}: {told(error)}.") from None
    return found


def expand(text: str) -> list[str]:
    """The data sets that a reference stands for: one, unless it names a suite."""
    expand = getattr(_source(text), "expand", None)
    return [text] if expand is None else expand(text)


def with_option(text: str, key: str, value: object) -> str:
    """The text of the same data set with one more option."""
    if _source(text) is not None or "?" in text:
        return f"{text}{'&' if '?' in text else '?'}{key}={value}"
    return f"{text[:-1]},{key}={value}]" if text.endswith("]") else f"{text}[{key}={value}]"


def _dataset_class(path: Path, class_name: str) -> type[Dataset]:
    from fsibench.data import Dataset

    cls = _named_class(path, class_name, Dataset)
    if fault := _fault_of_dataset(cls):
        raise UsageError(f"{path}: {fault}.")
    found: type[Dataset] = cls
    return found


def _fault_of_dataset(cls: type) -> str | None:
    from fsibench.data import Dataset, TableDataset

    if not issubclass(cls, Dataset):
        return f"{cls.__name__} is no data set; derive it from fsibench.data.TableDataset"
    if inspect.isabstract(cls):
        absent = " and ".join(f"`{name}`" for name in sorted(cls.__abstractmethods__))
        return f"{cls.__name__} is no complete data set: it has no {absent}"
    return options.fault_of_fields(cls, TableDataset if issubclass(cls, TableDataset) else Dataset)


def _offer_source(found: Found, module: Any, origin: str) -> None:
    if hasattr(module, "PREFIX"):
        found.offer(module.PREFIX, module, origin)


def _offer_datasets(found: Found, module: Any, origin: str) -> None:
    for item in getattr(module, "DATASETS", ()):
        if fault := _fault_of_dataset(type(item)):
            raise TypeError(fault)
        found.offer(item.name, item, origin)


# Protocols ---------------------------------------------------------------------------------------------------------


def protocols() -> Found:
    """Every protocol, a TOML file: those of the package, then those beside the modules of the group `fsibench.protocols`."""
    found = Found()
    for path in sorted((Path(__file__).parent / "protocols").glob("*.toml")):
        found.offer(path.stem, path, str(path))
    _offer_plugins(found, "fsibench.protocols", _offer_protocols)
    return found


def _offer_protocols(found: Found, module: Any, origin: str) -> None:
    for path in sorted(Path(module.__file__).parent.glob("*.toml")):
        found.offer(path.stem, path, origin)


# Discovery ---------------------------------------------------------------------------------------------------------


def _collect(group: str, offer: Callable[[Found, Any, str], None]) -> Found:
    found = Found()
    for module in _modules(group):
        if isinstance(module, ModuleType):
            offer(found, module, str(module.__file__))
        else:
            found.broken.update(module)
    _offer_plugins(found, group, offer)
    return found


def _offer_plugins(found: Found, group: str, offer: Callable[[Found, Any, str], None]) -> None:
    for point in importlib.metadata.entry_points(group=group):
        origin = f"the installed package {point.dist.name if point.dist else point.value}"
        before = sum(map(len, found.origins.values()))
        try:
            value = point.load()
            offer(found, value, origin)
        except PLUGIN_FAILURES as error:
            found.broken[point.name] = f"{_last_line(error)} (from {origin})"
        else:
            if sum(map(len, found.origins.values())) == before and not (hasattr(value, "PREFIX") or hasattr(value, "DATASETS")):
                found.broken[point.name] = f"{EMPTY[group]} (from {origin})"


def _modules(package_name: str) -> Iterator[ModuleType | dict[str, str]]:
    """Each module in a plugin folder, or {name: error} for one that cannot be imported."""
    for name in file_names(package_name):
        try:
            yield importlib.import_module(f"{package_name}.{name}")
        except PLUGIN_FAILURES as error:
            yield {name: _last_line(error)}


def file_names(package_name: str) -> list[str]:
    """The modules in a plugin folder, none of them imported."""
    return [info.name for info in pkgutil.iter_modules(importlib.import_module(package_name).__path__)]


def _line_of(path: Path, error: BaseException) -> str:
    """` (line 3)`: the last line of this file that was at work; empty where none was."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f" (line {error.lineno})"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def _last_line(error: BaseException) -> str:
    line = traceback.format_exception_only(error)[-1].strip()
    return f"it ends the program when it is imported ({line})" if isinstance(error, SystemExit) else line
