"""`name[option=value,...]`: how methods and data sets are written on the command line and in protocols.

Options are the fields of a frozen dataclass. Text becomes values by the field's annotation; a wrong name or value is
one sentence that says what is allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from fsibench.errors import UsageError, unknown

_ENTRY = re.compile(r"^(?P<name>[^\[\]]+)(\[(?P<options>[^\[\]]*)\])?$")
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def split_list(text: str) -> list[str]:
    """`a,b[x=1,y=2],c` -> three entries: commas inside brackets belong to the entry.

    So do commas in the path of a `file:` reference, which goes on until it has named its target.
    """
    parts: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        if parts and parts[-1].startswith("file:") and not re.search(r"[?&]target=", parts[-1]):
            parts[-1] += f",{part}"
        elif part.strip():
            parts.append(part.strip())
    return parts


def parse_entry(text: str) -> tuple[str, dict[str, str]]:
    """`sip[prior=ns]` -> ("sip", {"prior": "ns"})."""
    match = _ENTRY.match(text.strip())
    if match is None:
        raise UsageError(f"cannot read {text!r}; write name or name[option=value,option=value].")
    options: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in (match["options"] or "").split(","))):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"cannot read {pair!r} in {text!r}; write option=value.")
        if key.strip() in options:
            raise UsageError(f"option {key.strip()!r} is given twice in {text!r}.")
        options[key.strip()] = value.strip()
    return match["name"].strip(), options


def build(cls: type[Any], owner: str, raw: Mapping[str, Any], **fixed: Any) -> Any:
    """Make `cls` from option texts (or values from TOML and JSON); `owner` names it in messages."""
    fields = {field.name: field for field in dataclasses.fields(cls) if field.name not in fixed}
    hints = _type_hints(cls)  # type: ignore[arg-type]  # classes can be hashed
    values: dict[str, Any] = {}
    for key, value in _expand_preset(cls, owner, raw).items():
        if key not in fields:
            raise unknown(f"option of {owner}", key, fields)
        values[key] = _convert(value, hints[key], f"{owner}[{key}=...]")
    try:
        return cls(**fixed, **values)
    except ValueError as error:
        raise UsageError(f"{owner}: {error}") from None


def fault_of_fields(cls: type[Any], base: type[Any]) -> str | None:
    """Why the fields of a class that somebody derived from `base` would not work as its options, or None."""
    for part in (part for part in cls.__mro__ if part not in base.__mro__):
        fields = [name for name, hint in vars(part).get("__annotations__", {}).items() if "ClassVar" not in str(hint)]
        if fields and "__dataclass_fields__" not in vars(part):
            return f"{part.__name__} has options ({', '.join(fields)}) and is no dataclass; write @dataclass(frozen=True) above it"
    inherited = {field.name for field in dataclasses.fields(base)}
    hidden = [f.name for f in dataclasses.fields(cls) if f.name not in inherited and hasattr(base, f.name)]
    return f"the option `{hidden[0]}` of {cls.__name__} hides `{base.__name__}.{hidden[0]}`; give it another name" if hidden else None


@functools.cache
def _type_hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _expand_preset(cls: type[Any], owner: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(raw)
    preset = options.pop("preset", None)
    if preset is None:
        return options
    presets: Mapping[str, Mapping[str, Any]] = getattr(cls, "presets", {})
    if preset not in presets:
        raise unknown(f"preset of {owner}", str(preset), presets)
    return {**presets[preset], **options}


def changed(instance: Any) -> dict[str, Any]:
    """The options that differ from the defaults, in field order."""
    result = {}
    for field in dataclasses.fields(instance):
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        value = getattr(instance, field.name)
        if value != default:
            result[field.name] = value
    return result


def label(name: str, options: Mapping[str, Any]) -> str:
    """The one spelling of an entry: `sip[prior=ns,alpha=1]`."""
    if not options:
        return name
    return f"{name}[{','.join(f'{key}={show(value)}' for key, value in options.items())}]"


def show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "x".join(show(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "none" if value is None else str(value)


def _convert(value: Any, hint: Any, where: str) -> Any:
    """A text (or a value that came from TOML) as the annotated type."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return _one_of(value, typing.get_args(hint), where)
    if origin in (typing.Union, types.UnionType):
        return _optional(value, typing.get_args(hint), where)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        parts = value.split("x") if isinstance(value, str) else list(value)
        return tuple(_convert(part, item, where) for part in parts)
    return _scalar(value, hint, where)


def _one_of(value: Any, allowed: tuple[Any, ...], where: str) -> Any:
    for choice in allowed:
        if value == choice or str(value) == show(choice):
            return choice
    raise UsageError(f"{where} must be one of {', '.join(map(show, allowed))}; got {value!r}.")


def _optional(value: Any, members: tuple[Any, ...], where: str) -> Any:
    if type(None) in members and (value is None or str(value).lower() == "none"):
        return None
    problem = None
    for member in members:
        if member is type(None):
            continue
        try:
            return _convert(value, member, where)
        except UsageError as error:
            problem = error
    assert problem is not None
    raise problem


def _scalar(value: Any, kind: Any, where: str) -> Any:
    try:
        if kind is bool:
            if str(value).lower() in _TRUE | _FALSE:
                return str(value).lower() in _TRUE
        elif kind is int:
            if float(value) == int(float(value)) and not isinstance(value, bool):
                return int(float(value))
        elif kind is float:
            if not isinstance(value, bool) and abs(float(value)) < float("inf"):
                return float(value)
        elif kind is str:
            return str(value)
    except (ValueError, TypeError, OverflowError):
        pass  # falls through to the one message for every kind of mismatch
    expected = {bool: "true or false", int: "a whole number", float: "a finite number"}.get(kind, str(kind))
    raise UsageError(f"{where} must be {expected}; got {value!r}.")
