"""Colours, dashes and markers. A method has the same ones in every report, and its variants share its hue."""

from __future__ import annotations

import colorsys
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

SOLID: tuple[float, ...] = ()
DASHED = (6.0, 2.5)
# Variants of a method: dashes that no method has by itself.
VARIANT_DASHES: tuple[tuple[float, ...], ...] = ((2, 2), (8, 2, 2, 2), (4, 1.5, 1, 1.5, 1, 1.5), (10, 3), (1, 3))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Mostly Okabe and Ito's and Tol's colours: told apart under the common forms of colour blindness, and of middling
# lightness, so that they show on white paper and on a dark page. Two methods of one colour differ in their dash.
BLUE, RED, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
WINE, GREY, TEAL, OLIVE, VIOLET, BROWN = "#AA3377", "#8C8C8C", "#44AA99", "#999933", "#7A68D8", "#9C6644"
METHODS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sip": (BLUE, SOLID),
    "vip": (RED, SOLID),
    "fbnn": (GREEN, SOLID),
    "fvi": (PINK, SOLID),
    "aadm": (ORANGE, SOLID),
    "avb": (SKY, SOLID),
    "bbb": (WINE, SOLID),
    "hmc": (VIOLET, SOLID),
    "hmc_wide": (WINE, DASHED),
    "gp": (TEAL, SOLID),
    "svgp": (TEAL, DASHED),
    "linear": (OLIVE, SOLID),
    "constant": (GREY, SOLID),
    "ensemble": (BROWN, SOLID),
    "dropout": (PINK, DASHED),
    "laplace": (BROWN, DASHED),
    "tfsvi": (ORANGE, DASHED),
    "gfsvi": (VIOLET, DASHED),
    "dvip": (RED, DASHED),
}


@dataclass(frozen=True)
class Style:
    colour: str
    dash: tuple[float, ...]
    marker: str


def style(entry: str) -> Style:
    """The style of an entry, from its name alone: `vip_collapsed` and `vip[layers=2]` have the hue of `vip`."""
    name, bracket, _ = entry.partition("[")
    family = name if name in METHODS else name.split("_")[0]
    if family in METHODS:
        colour, dash = METHODS[family]
        plain = name == family and not bracket
    else:
        colour, dash = _foreign_colour(family), SOLID
        plain = entry == family
    number = _number(entry)
    if not plain:
        dash = VARIANT_DASHES[number % len(VARIANT_DASHES)]
    return Style(colour, dash, MARKERS[_number(family) % len(MARKERS)])


def styles(stored_names: Mapping[str, str]) -> dict[str, Style]:
    """Entry -> its style; an entry that a report renames keeps the style of its name in the store."""
    return {entry: style(stored) for entry, stored in stored_names.items()}


def _foreign_colour(family: str) -> str:
    """A colour of middling lightness for a method that is not ours, from its name."""
    red, green, blue = colorsys.hls_to_rgb(_number(family) % 360 / 360, 0.47, 0.55)
    return f"#{round(255 * red):02X}{round(255 * green):02X}{round(255 * blue):02X}"


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
