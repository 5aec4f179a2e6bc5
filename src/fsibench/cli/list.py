"""`fsibench list`: what there is, where it comes from, and what is broken."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import textwrap
from pathlib import Path
from typing import Any

import fsibench
from fsibench import options, registry
from fsibench.cli import faults
from fsibench.errors import UsageError, told

OK = 0


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("list", help="show methods, data sets, metrics or protocols")
    parser.add_argument("kind", nargs="?", choices=KINDS, help="without it: the names of all four kinds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(handler=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.kind is None:
        found = {kind: rows() for kind, rows in KINDS.items()}
        names = {kind: [_name(row) for row in rows] for kind, rows in found.items()}
        broken = _broken(found, getattr(arguments, "broken_commands", {}))
        print(json.dumps({**names, "broken": broken}, indent=1) if arguments.json else _overview(names, broken))
        return OK
    rows: list[dict[str, Any]] = KINDS[arguments.kind]()
    print(json.dumps(rows, indent=1) if arguments.json else table(rows))
    return OK


def _name(row: dict[str, Any]) -> str:
    return f"{row.get('name', row.get('key'))}{' (BROKEN)' if faults.of_row(row) else ''}"


def _broken(found: dict[str, list[dict[str, Any]]], commands: dict[str, str]) -> list[str]:
    """One line for each plugin that is broken, of every kind."""
    return faults.told_all({
        **{kind.removesuffix("s"): faults.of_rows(rows) for kind, rows in found.items()},
        "page": faults.of_pages(),
        "prior": _broken_priors(),
        "command": commands,
    })


def _broken_priors() -> dict[str, str]:
    """Without an import of torch where there is an index: it is kept only while none is broken."""
    if not importlib.metadata.entry_points(group="fsibench.priors") or _index(_state_of_the_code()) is not None:
        return {}
    return faults.of_priors()


def _overview(names: dict[str, list[str]], broken: list[str]) -> str:
    parts = [_wrapped(found) for found in names.values()]
    lines = [f"{kind} (fsibench list {kind})\n{part}" for kind, part in zip(names, parts, strict=True)]
    return "\n".join([*lines, *(["broken"] if broken else []), *(f"  {line}" for line in broken)])


def _wrapped(names: list[str]) -> str:
    """Lines of names, none of which is broken in two: not at its hyphens, not before (BROKEN)."""
    text = ", ".join(name.replace(" ", "\u00a0") for name in names)
    lines = textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return lines.replace("\u00a0", " ")


def methods() -> list[dict[str, Any]]:
    """From an index where that is known to be up to date: importing the methods means importing torch."""
    key = _state_of_the_code()
    known = _index(key)
    if known is not None:
        return known
    rows = _methods()
    if not registry.methods().broken and not faults.of_priors():  # a broken one may be mended without a change of ours
        _keep_index(key, rows)
    return rows


def _index_place() -> Path:
    from fsibench.data.sources import cache

    return cache.folder() / "methods.json"


def _index(key: str) -> list[dict[str, Any]] | None:
    """The rows that were kept for this state of the code; None where they are absent or damaged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        index = json.loads(_index_place().read_text(encoding="utf-8"))
        if index["key"] == key:
            rows: list[dict[str, Any]] = index["rows"]
            return rows
    return None


def _keep_index(key: str, rows: list[dict[str, Any]]) -> None:
    place = _index_place()
    with contextlib.suppress(OSError):  # nowhere to write: the next one imports torch again
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        fresh.write_text(json.dumps({"key": key, "rows": rows}), encoding="utf-8")
        fresh.replace(place)


def _state_of_the_code() -> str:
    """A hash of every file that a row of the list can depend on: ours, and those of installed plugins."""
    points = [p for group in ("fsibench.methods", "fsibench.priors") for p in importlib.metadata.entry_points(group=group)]
    digest = hashlib.sha256(fsibench.__version__.encode())
    digest.update(repr(sorted((p.group, p.name, p.value, p.dist.version if p.dist else "") for p in points)).encode())
    plugins = {point.value.partition(":")[0].partition(".")[0] for point in points}
    for package in ("fsibench.methods", "fsibench.blocks", *sorted(plugins - {"fsibench"})):
        for file in _files_of(package):
            digest.update(f"{file} ".encode() + file.read_bytes())
    return digest.hexdigest()


def _files_of(module: str) -> list[Path]:
    """The source files of a module or package, without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [Path(spec.origin)] if spec.origin and spec.origin.endswith(".py") else []
    return sorted(file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))


def _methods() -> list[dict[str, Any]]:
    found = registry.methods()
    rows = [_method_row(name, found) for name in sorted(found.items)]
    broken = [{"name": name, "what": f"BROKEN: {error}"} for name, error in sorted(found.broken.items())]
    return rows + broken


def _method_row(name: str, found: registry.Found) -> dict[str, Any]:
    cls = found.items[name]
    if len(found.origins[name]) > 1:
        return {"name": name, "what": f"OFFERED TWICE: {' and '.join(found.origins[name])}"}
    return {
        "name": name,
        "what": (cls.__doc__ or "").strip().partition("\n")[0],
        "note": cls.note,
        "reproduces": cls.reproduces,
        "variant": cls.variant,
        "paper": cls.paper,
        "presets": ", ".join(cls.presets),
        "options": ", ".join(f"{f.name}={options.show(f.default)}" for f in dataclasses.fields(cls)),
    }


def datasets() -> list[dict[str, Any]]:
    found = registry.datasets()
    rows = [_dataset_row(name, found) for name in sorted(found.items)]
    return rows + [{"name": name, "note": f"BROKEN: {error}"} for name, error in sorted(found.broken.items())]


def _dataset_row(name: str, found: registry.Found) -> dict[str, Any]:
    if len(found.origins[name]) > 1:
        return {"name": name, "note": f"OFFERED TWICE: {' and '.join(found.origins[name])}"}
    try:
        return dataclasses.asdict(found.items[name].describe())
    except Exception as error:  # noqa: BLE001 (a plugin may fail in any way)
        return {"name": name, "note": f"BROKEN: {told(error)}"}


def protocols() -> list[dict[str, Any]]:
    found = registry.protocols()
    rows = [_protocol_row(name) for name in found.items]
    return rows + [{"name": name, "title": f"BROKEN: {error}"} for name, error in sorted(found.broken.items())]


def _protocol_row(name: str) -> dict[str, Any]:
    from fsibench.data import show_splits
    from fsibench.harness.plan import load_protocol

    try:
        protocol = load_protocol(name, {})
    except UsageError as error:
        return {"name": name, "title": f"BROKEN: {error}"}
    return {
        "name": protocol.name,
        "title": protocol.title,
        "methods": len(protocol.methods),
        "datasets": len(protocol.datasets),
        "splits": show_splits(protocol.splits),
        "scheme": protocol.scheme,
        "budget": protocol.budget,
    }


def metrics() -> list[dict[str, Any]]:
    from fsibench import metrics as found

    rows = [
        {
            "key": metric.key,
            "label": metric.label,
            "unit": metric.unit,
            "better": "larger" if metric.larger_is_better else "smaller",
            "computed": f"{metric.looks} look",
            "meaning": metric.meaning,
        }
        for metric in found.known().values()
    ]
    return rows + [{"key": name, "meaning": f"BROKEN: {error}"} for name, error in sorted(found.broken().items())]


# Shown in full with --json; too wide for a terminal.
WIDE = {"options", "citation", "paper", "licence", "columns", "sha256", "twins"}


def table(rows: list[dict[str, Any]]) -> str:
    from tabulate import tabulate

    shown = [{key: value for key, value in row.items() if key not in WIDE} for row in rows]
    return tabulate(shown, headers="keys", tablefmt="simple", maxcolwidths=60)


KINDS = {"methods": methods, "datasets": datasets, "metrics": metrics, "protocols": protocols}
