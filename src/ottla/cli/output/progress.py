"""A progress bar for commands that take longer than two seconds.

Kafka: none.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Self

_DELAY_S: Final = 2.0
"""Shorter work needs no bar; a bar that flashes up is noise."""
_WIDTH: Final = 30


class ProgressBar:
    """Counts steps; after two seconds a bar is drawn on a terminal's standard error."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._started_s = time.monotonic()
        self._count = 0
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\033[K")

    def advance(self, total: int) -> None:
        """Count one more step of `total`."""
        self._count += 1
        seconds = time.monotonic() - self._started_s
        if seconds > _DELAY_S and sys.stderr.isatty():
            self._is_drawn = True
            filled = _WIDTH * self._count // max(total, 1)
            bar = "#" * filled + "." * (_WIDTH - filled)
            left_s = seconds / self._count * (total - self._count)
            text = f"\r[{bar}] {self._count}/{total} {self._noun}, {left_s:.0f} s left "
            sys.stderr.write(text)
            sys.stderr.flush()
