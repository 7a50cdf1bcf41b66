"""A progress bar for commands that take longer than two seconds.

Kafka: none.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
_DELAY_S: Final = 2.0
"""Shorter work needs no bar; a bar that flashes up is noise."""
_WIDTH: Final = 30


def progress(items: Iterable[T], total: int, noun: str) -> Iterator[T]:
    """Yield the items; after two seconds draw a bar on a terminal's standard error."""
    started_s = time.monotonic()
    is_drawn = False
    try:
        for number, item in enumerate(items, 1):
            yield item
            seconds = time.monotonic() - started_s
            if seconds > _DELAY_S and sys.stderr.isatty():
                is_drawn = True
                filled = _WIDTH * number // max(total, 1)
                bar = "#" * filled + "." * (_WIDTH - filled)
                left_s = seconds / number * (total - number)
                sys.stderr.write(f"\r[{bar}] {number}/{total} {noun}, {left_s:.0f} s left ")
                sys.stderr.flush()
    finally:
        if is_drawn:
            sys.stderr.write("\r\033[K")
