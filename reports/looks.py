"""Colours, dashes and markers: one entry looks the same on every page and in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's colours without yellow and black, then four of Tol's: told apart under the common forms of colour
# blindness, and of middling lightness, so that they show on white paper and on a dark page.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#AA3377", "#8C8C8C", "#44AA99", "#999933"),
)
# Three dashes against ten colours: thirty looks before any repeats, and neighbours never differ by colour alone.
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2.5), (2, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Look:
    colour: str
    dash: tuple[float, ...]
    marker: str


def looks(entries: Sequence[str]) -> dict[str, Look]:
    """A look for each entry, by its place in the alphabet."""
    return {
        entry: Look(
            COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)]
        )
        for index, entry in enumerate(sorted(entries))
    }
