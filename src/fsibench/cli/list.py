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
from fsibench.errors import UsageError, told

OK = 0


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("list", help="show methods, data sets, metrics or protocols")
    parser.add_argument("kind", nargs="?", choices=KINDS, help="without it: the names of all four kinds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(handler=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.kind is None:
        names = {kind: [_name(row) for row in rows()] for kind, rows in KINDS.items()}
        print(json.dumps(names, indent=1) if arguments.json else _overview(names))
        return OK
    rows: list[dict[str, Any]] = KINDS[arguments.kind]()
    print(json.dumps(rows, indent=1) if arguments.json else table(rows))
    return OK


def _name(row: dict[str, Any]) -> str:
    broken = any(str(row.get(column, "")).startswith("BROKEN") for column in ("what", "note", "title", "meaning"))
    return f"{row.get('name', row.get('key'))}{' (BROKEN)' if broken else ''}"


def _overview(names: dict[str, list[str]]) -> str:
    parts = [textwrap.fill(", ".join(found), 100, initial_indent="  ", subsequent_indent="  ") for found in names.values()]
    return "\n".join(f"{kind} (fsibench list {kind})\n{part}" for kind, part in zip(names, parts, strict=True))


def methods() -> list[dict[str, Any]]:
    """From an index where that is known to be up to date: importing the methods means importing torch."""
    from fsibench.data.sources import cache

    place, key = cache.folder() / "methods.json", _state_of_the_code()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # absent or damaged: made again
        index = json.loads(place.read_text(encoding="utf-8"))
        if index["key"] == key:
            rows: list[dict[str, Any]] = index["rows"]
            return rows
    rows = _methods()
    if not registry.methods().broken:  # a broken one may be mended without a change of ours
        with contextlib.suppress(OSError):  # nowhere to write: the next one imports torch again
            place.parent.mkdir(parents=True, exist_ok=True)
            fresh = place.with_name(f"{place.name}.{os.getpid()}")
            fresh.write_text(json.dumps({"key": key, "rows": rows}), encoding="utf-8")
            fresh.replace(place)
    return rows


def _state_of_the_code() -> str:
    """A hash of every file that a row of the list can depend on: ours, and those of installed plugins."""
    points = importlib.metadata.entry_points(group="fsibench.methods")
    digest = hashlib.sha256(fsibench.__version__.encode())
    digest.update(repr(sorted((p.name, p.value, p.dist.version if p.dist else "") for p in points)).encode())
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
