"""Deferred KeyboardInterrupt while a client's event loop runs in the main thread.

Kafka: no counterpart; a JVM handles signals on threads of its own.

Python raises KeyboardInterrupt between any two instructions of the main thread: while a lock is
held, or inside a callback of the event loop, which treats it as a socket failure and continues.
While a client runs its loop in the main thread, the first Ctrl-C therefore only cancels the call
that is waiting, and is raised after the loop has stopped and the locks are released. A second one
is raised immediately.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Interrupts:
    """Defers Ctrl-C between `hold` and `release`; calls may be nested.

    Has no effect in other threads, and where the program has its own handler for SIGINT. Such a
    handler must not raise during a client's call: it can set a flag, or call `wakeup`.
    """

    def __init__(self) -> None:
        self.is_pending = False
        self._depth = 0
        self._armed = False
        self._on_interrupt: Callable[[], object] | None = None

    def hold(self) -> None:
        """Start deferring; raises the KeyboardInterrupt that the last `release` kept."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth > 1:
            return
        try:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._handle)
                self._armed = True
        except KeyboardInterrupt:  # just before the change of handlers
            self.is_pending = True
        if self.is_pending:
            self.release()

    def release(self, *, keep: bool = False) -> None:
        """Stop deferring; raise a pending KeyboardInterrupt, or keep it for the next `hold`."""
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
                self.is_pending = True
        if self.is_pending and not keep:
            self.is_pending = False
            raise KeyboardInterrupt from None

    def set_callback(self, on_interrupt: Callable[[], object] | None) -> None:
        """Set the function called on Ctrl-C, immediately if one is pending; None for none."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._on_interrupt = on_interrupt
        if self.is_pending and on_interrupt is not None:
            on_interrupt()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_pending:
            raise KeyboardInterrupt
        self.is_pending = True
        if self._on_interrupt is not None:
            self._on_interrupt()
