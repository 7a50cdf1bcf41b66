"""Simulated processes: whose callbacks run, and what dies with them.

A callback belongs to the process in whose context it was scheduled. When a process is killed its
callbacks are dropped, its coroutines never resume and its sockets are reset, in one step. Those of
a paused process wait until it goes on.

Kafka: none.
"""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from asyncio import Handle
    from collections.abc import Callable
    from contextvars import Context

T = TypeVar("T")


class Process:
    """One incarnation of a program on a simulated host."""

    def __init__(self, name: str, *, clock_rate: float = 1.0) -> None:
        """Take how fast the clocks of its host run: its timers fire early where they run fast."""
        self.name = name
        self.is_alive = True
        self.is_running = True
        """Whether its callbacks run: it is alive and not paused."""
        self.is_serving = False
        """Whether it has started: from then on none of its turns may take long."""
        self.clock_rate = clock_rate
        self._on_death: list[Callable[[], None]] = []
        self._held: list[Handle] = []

    def __repr__(self) -> str:
        return f"Process({self.name!r})"

    def on_death(self, callback: Callable[[], None]) -> None:
        """Call back when the process is killed."""
        self._on_death.append(callback)

    def kill(self) -> None:
        """End the process at once; idempotent."""
        if not self.is_alive:
            return
        self.is_alive = self.is_running = False
        self._held.clear()
        callbacks, self._on_death = self._on_death, []
        for callback in callbacks:
            callback()

    def pause(self) -> None:
        """Stop it as SIGSTOP does: nothing of it runs until `resume`, and its clocks go on."""
        self.is_running = False

    def hold(self, handle: Handle) -> None:
        """Take a callback that is due: it is dropped if the process is dead, else it waits."""
        if self.is_alive:
            self._held.append(handle)

    def resume(self) -> list[Handle]:
        """Let it go on; return the callbacks that were due meanwhile, in order."""
        held, self._held = self._held, []
        self.is_running = self.is_alive
        return held

    def context(self) -> Context:
        """Return a context whose callbacks belong to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""The process that the running callback belongs to; None outside of all."""
