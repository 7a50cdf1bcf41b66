"""Ctrl-C while a client works in the main thread: noted at once, raised where it does no harm.

Kafka: no counterpart; a JVM handles signals on threads of its own.

Python raises KeyboardInterrupt between any two instructions of the main thread: with a lock just
taken, or inside a callback of the event loop, which takes it for a failure of the socket and goes
on. So while a client drives its loop in the main thread, the first Ctrl-C only cancels what is
waited for, and is raised when loop and locks are at rest. A second one is raised on the spot.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Interrupts:
    """Holds Ctrl-C back between `hold` and `release`; calls may be nested.

    Does nothing in other threads, and where the program has its own handler for SIGINT. Such a
    handler must not raise while a client's call runs: let it set a flag, or call `wakeup`.
    """

    def __init__(self) -> None:
        self.came = False
        self._depth = 0
        self._armed = False
        self._on_interrupt: Callable[[], object] | None = None

    def hold(self) -> None:
        """Begin; raises KeyboardInterrupt when one was kept by the last `release`."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth > 1:
            return
        try:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._note)
                self._armed = True
        except KeyboardInterrupt:  # just before the change of handlers
            self.came = True
        if self.came:
            self.release()

    def release(self, *, keep: bool = False) -> None:
        """End; raises KeyboardInterrupt if one came, or with keep leaves it to the next `hold`."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth:
            return
        self._on_interrupt = None
        if self._armed:
            self._armed = False
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            except KeyboardInterrupt:  # just after the change of handlers
                self.came = True
        if self.came and not keep:
            self.came = False
            raise KeyboardInterrupt from None

    def tell(self, on_interrupt: Callable[[], object] | None) -> None:
        """Have a function called as Ctrl-C comes (at once when it came already); None for none."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._on_interrupt = on_interrupt
        if self.came and on_interrupt is not None:
            on_interrupt()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True
        if self._on_interrupt is not None:
            self._on_interrupt()
