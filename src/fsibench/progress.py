"""A bar for a fit: one line that is overwritten, in terminals and notebooks."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

WIDTH = 30
# Seconds between two updates.
EVERY = 0.1


class Bar:
    """`name [#####     ] 50 %  120 steps, 5.0 s`; only in terminals and notebooks, unless told."""

    def __init__(self, name: str, shown: bool | None = None) -> None:
        self._name = name
        self._shown = (sys.stderr.isatty() or "ipykernel" in sys.modules) if shown is None else shown
        self._latest = 0.0
        self._line = ""

    def __enter__(self) -> Self:
        self.show(0.0, "before the first step")  # which can take most of a fit
        return self

    def show(self, fraction: float, text: str) -> None:
        if not self._shown:
            return
        filled = round(WIDTH * fraction)
        self._line = f"{self._name} [{'#' * filled}{' ' * (WIDTH - filled)}] {fraction:4.0%}  {text}"
        if time.monotonic() - self._latest >= EVERY:
            self._write()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._line:
            self._write()
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _write(self) -> None:
        sys.stderr.write(f"\r{self._line}")
        sys.stderr.flush()
        self._latest = time.monotonic()
