"""Aggregations in sliding windows: a window ends at each record, and one starts after it.

Kafka: kstream.internals.KStreamSlidingWindowAggregate (KIP-450).

For a record at t the stored windows of its key that touch t are updated, and up to three are made:
the one that ends at t, the one that starts after t if it holds later records, and the one that
starts after the record before t. A record earlier than the time difference has no window that ends
at it; it belongs to the window that starts at 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.streams.processors.aggregates import aggregated
from ottla.streams.processors.time_windows import NOTHING_EMITTED, WindowedProcessor
from ottla.streams.records import ValueAndTimestamp
from ottla.streams.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.records import Record
    from ottla.streams.windows import EmitStrategy, SlidingWindows


@dataclass
class _Found:
    """What the windows stored around a record say."""

    starts: set[int] = field(default_factory=set)
    left: ValueAndTimestamp | None = None
    right: ValueAndTimestamp | None = None
    has_left: bool = False
    has_right: bool = False
    previous: int | None = None


class SlidingWindowAggregate(WindowedProcessor):
    """Aggregates the values of each key and sliding window."""

    def __init__(
        self,
        store: str,
        emit: EmitStrategy,
        windows: SlidingWindows,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store, emit)
        self._size, self._grace = windows.time_difference_ms, windows.grace_ms
        self._initializer, self._aggregator = initializer, aggregator

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None or record.value is None:
            self.context.drop("null key or value of a sliding aggregation")
            return
        close_time = self.observe(record.timestamp) - self._grace
        if record.timestamp + self._size < close_time:
            self.context.drop(f"its windows have closed at {close_time}")
            return
        if record.timestamp < self._size:
            self._process_early(record, close_time)  # which closes no window, as Kafka
            return
        self._process(record, close_time)
        self.emit_closed(record, close_time)

    def _process(self, record: Record, close_time: int) -> None:
        time, found = record.timestamp, _Found()
        first = max(0, time - 2 * self._size)
        stored = list(self._store.fetch(record.key, first, time + 1))
        for start, row in reversed(stored):
            found.starts.add(start)
            end = start + self._size
            if start == time + 1:
                found.has_right = True
            elif end > time:
                found.right = found.right or row
                self._update(Window(start, end), row, record, close_time)
            elif end == time:
                found.has_left = True
                self._update(Window(start, end), row, record, close_time)
                if row.timestamp >= time:
                    return  # another record of this time has made all windows
                found.previous = row.timestamp
            else:
                found.left, found.previous = row, row.timestamp
                break
        self._create(record, close_time, found)

    def _create(self, record: Record, close_time: int, found: _Found) -> None:
        time = record.timestamp
        if found.previous is not None:
            start = found.previous + 1
            if start not in found.starts and start + self._size >= time:
                self._update(Window(start, start + self._size), None, record, close_time)
        if not found.has_left:
            old = None
            if found.previous is not None and time - self._size <= found.previous:
                assert found.left is not None
                old = ValueAndTimestamp(found.left.value, time)
            self._update(Window(time - self._size, time), old, record, close_time)
        if not found.has_right:
            self._create_right(record, found.right)

    def _process_early(self, record: Record, close_time: int) -> None:
        time, found = record.timestamp, _Found()
        combined: ValueAndTimestamp | None = None
        for start, row in list(self._store.fetch(record.key, 0, time + 1)):
            found.starts.add(start)
            if start == 0:
                combined = row
                if row.timestamp < time:
                    found.previous = row.timestamp
            elif start <= time:
                found.right = row
                self._update(Window(start, start + self._size), row, record, close_time)
            else:
                found.has_right = True
        if found.right is None and combined is not None and combined.timestamp > time:
            found.right = combined
        if not found.has_right:
            self._create_right(record, found.right)
        if found.previous is not None and found.previous + 1 not in found.starts:
            start = found.previous + 1
            self._update(Window(start, start + self._size), None, record, close_time)
        self._update(Window(0, self._size), combined, record, close_time)

    def _create_right(self, record: Record, row: ValueAndTimestamp | None) -> None:
        """Store the window that starts after the record, if it holds a later one."""
        if row is None or row.timestamp <= record.timestamp:
            return
        start = record.timestamp + 1
        self._store.put(record.key, row, start)
        self.update(record, Window(start, start + self._size), None, row)

    def _update(
        self, window: Window, row: ValueAndTimestamp | None, record: Record, close_time: int
    ) -> None:
        if window.end < close_time:
            self.context.drop(f"the window {window} has closed at {close_time}")
            return
        old = None if row is None else row.value
        timestamp = record.timestamp if row is None else max(record.timestamp, row.timestamp)
        new = aggregated(self._initializer, self._aggregator, record, old)
        found = ValueAndTimestamp(new, timestamp)
        self._store.put(record.key, found, window.start)
        self.update(record, window, old, found)

    def closed_range(self, last: int, close_time: int) -> tuple[int, int]:
        """Return the first and the last start of windows that have closed."""
        first = 0 if last == NOTHING_EMITTED else max(0, last - self._size)
        return first, close_time - self._size - 1
