"""Templates of pages: what reports and the performance history share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any

import jinja2
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup


def page_template(text: str) -> jinja2.Template:
    """A page within the frame of all pages."""
    loader = jinja2.DictLoader({"base": shared_file("base.html.j2"), "page": text})
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["json_pieces"] = json_pieces
    return environment.get_template("page")


def json_pieces(value: Any) -> Iterator[Markup]:
    """What the filter `tojson` gives without its spaces, key by key: the text of a large page is never in memory as a whole."""
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        yield htmlsafe_json_dumps(value, sort_keys=True, separators=(",", ":"))
        return
    for number, key in enumerate(sorted(value)):
        yield Markup("," if number else "{") + htmlsafe_json_dumps(key) + Markup(":")
        yield from json_pieces(value[key])
    yield Markup("}")


def shared_file(name: str) -> str:
    """A file that all pages use: frame, style, scripts."""
    return (resources.files("fsibench.reports.pages") / "shared" / name).read_text(encoding="utf-8")
