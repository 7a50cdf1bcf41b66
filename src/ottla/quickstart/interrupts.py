"""Ctrl-C and SIGTERM: they end the run once, at any point, and do not interrupt the cleanup.

Kafka: none. A KeyboardInterrupt inside an event loop's callback may be caught by foreign code, so
it is raised again at intervals until the cleanup has begun.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM)
ALARM = (signal.SIGALRM,) if hasattr(signal, "SIGALRM") else ()  # Windows has none
AGAIN_SECONDS = 0.25


class SignalInterrupts:
    """Turns the signals into KeyboardInterrupt until `settle` is called."""

    def __init__(self) -> None:
        self._is_holding = False
        self._has_come = False

    def __enter__(self) -> Self:
        for number in (*STOPPING, *ALARM):
            signal.signal(number, self._interrupt)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Settle; an interrupt that foreign code has caught ends a run that came to its end."""
        self.settle()
        if self._has_come and error is None:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay the signals, so that everything created inside is registered for the cleanup."""
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False
        if self._has_come:
            raise KeyboardInterrupt

    def settle(self) -> None:
        """Ignore the signals from now on, while the cleanup runs."""
        for number in (*STOPPING, *ALARM):
            signal.signal(number, signal.SIG_IGN)
        if ALARM:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        if ALARM:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        self._has_come = True
        if not self._is_holding:
            raise KeyboardInterrupt
