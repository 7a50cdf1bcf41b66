"""Durations of the turns of a node's event loop, with the callbacks of slow ones.

Rule: no turn takes more than 10 ms, else other clients wait. Longer work is done by a worker or in
slices. Every callback that a node schedules is measured; it costs two readings of a clock.

Kafka: none; its requests have threads of their own.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

log = logging.getLogger("ottla.loop")
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REPORTED_S: Final = 0.1
"""Turns of this duration are logged."""
WINDOW_S: Final = 300.0
"""Length of a window; the slowest turn is that of the current and the previous window."""


class SlowTurn(NamedTuple):
    """A turn and the callback that ran in it."""

    duration_s: float
    name: str


class TurnWatch:
    """Counts the turns of one loop by duration; on its thread only."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Turns by BOUNDS_S, not cumulative; the last count is of those above all bounds."""
        self.total_s = 0.0
        self._report_at_s = inf
        self._report_every_s = inf
        self._on_work: Callable[[], object] | None = None
        self._part = SlowTurn(0.0, "")
        self._window_ends_s = 0.0
        self._slowest = [SlowTurn(0.0, ""), SlowTurn(0.0, "")]
        """Turns of the previous and of the current window."""

    @property
    def slowest(self) -> SlowTurn:
        """The slowest turn of the last five to ten minutes."""
        return max(self._slowest)

    def quantile_s(self, quantile: float) -> float:
        """Return the upper bound of the bucket that holds this share of all turns."""
        left = quantile * sum(self.counts)
        for bound_s, count in zip(BOUNDS_S, self.counts, strict=False):
            left -= count
            if left <= 0:
                return bound_s
        return self.slowest.duration_s

    def run(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call back and measure it as a turn."""
        elapsed_s = self._elapsed_s
        start_s = elapsed_s()
        try:
            callback(*arguments)
        finally:
            duration_s = elapsed_s() - start_s
            self.total_s += duration_s
            if self.total_s >= self._report_at_s:
                self._report()
            if duration_s < 0.001:
                self.counts[0] += 1
            else:
                self._record_slow(callback, duration_s, start_s)

    def report_work(self, every_s: float, on_work: Callable[[], object] | None) -> None:
        """Call back at the end of a turn each time the turns took so long in all; None: never."""
        self._on_work = on_work
        self._report_every_s = every_s if on_work is not None else inf
        self._report_at_s = self.total_s + self._report_every_s

    def _report(self) -> None:
        self._report_at_s = self.total_s + self._report_every_s
        if self._on_work is not None:
            self._on_work()

    def has_time_left(self, budget_s: float) -> Callable[[], bool]:
        """Return a predicate that is true for the next `budget_s` seconds."""
        elapsed_s = self._elapsed_s
        until_s = elapsed_s() + budget_s
        return lambda: elapsed_s() < until_s

    def run_part(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call back as one of several parts of a turn; the part may name the turn."""
        start_s = self._elapsed_s()
        try:
            callback(*arguments)
        finally:
            duration_s = self._elapsed_s() - start_s
            if duration_s > BOUNDS_S[0]:
                self.part_took(name_of(callback), duration_s)

    def part_took(self, name: str, duration_s: float) -> None:
        """Note that a part of the present turn took more than a millisecond."""
        if duration_s > self._part.duration_s:
            self._part = SlowTurn(duration_s, name)

    def _record_slow(
        self, callback: Callable[..., object], duration_s: float, start_s: float
    ) -> None:
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        part, self._part = self._part, SlowTurn(0.0, "")
        name = part.name if part.duration_s > duration_s / 2 else name_of(callback)
        if start_s >= self._window_ends_s:
            self._slowest = [self._slowest[1], SlowTurn(0.0, "")]
            self._window_ends_s = start_s + WINDOW_S
        self._slowest[1] = max(self._slowest[1], SlowTurn(duration_s, name))
        if duration_s >= REPORTED_S:
            text = (
                "the event loop was busy for %d ms in %s, or waited for a processor; if the "
                "machine is not overloaded, report this as a bug"
            )
            log.warning(text, round(duration_s * 1000), name, extra={"event": "loop.slow_turn"})


class WatchedLoop:
    """An event loop whose callbacks are measured; all else is the loop's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: TurnWatch) -> None:
        self._loop = loop
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def add_reader(self, fd: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Watch a socket for bytes."""
        self._loop.add_reader(fd, self._watch.run, callback, *arguments)

    def add_writer(self, fd: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Watch a socket for room."""
        self._loop.add_writer(fd, self._watch.run, callback, *arguments)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        """Call back in the next turn."""
        return self._loop.call_soon(self._watch.run, callback, *arguments)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.Handle:
        """Call back in the next turn, from any thread."""
        return self._loop.call_soon_threadsafe(self._watch.run, callback, *arguments)

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Call back after a delay."""
        return self._loop.call_later(delay_s, self._watch.run, callback, *arguments)

    async def create_connection(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], *address: Any, **options: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect; the turns of arriving bytes are measured."""

        def make() -> asyncio.BaseProtocol:
            protocol = make_protocol()
            received = getattr(protocol, "buffer_updated", None)
            if received is not None:
                protocol.buffer_updated = partial(self._watch.run, received)  # type: ignore[attr-defined] # of BufferedProtocol
            return protocol

        return await self._loop.create_connection(make, *address, **options)


def name_of(callback: Callable[..., object]) -> str:
    """Return a callback's qualified name; of a partial that of its function."""
    while isinstance(callback, partial):
        inner = callback.args[0] if callback.args else None
        callback = inner if callable(inner) else callback.func
    name = getattr(callback, "__qualname__", type(callback).__qualname__)
    return f"{getattr(callback, '__module__', '')}.{name}".removeprefix("ottla.")
