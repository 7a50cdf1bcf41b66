"""Aggregations in windows: tumbling, hopping and unlimited ones, sliding ones, and sessions.

Kafka: kstream.internals.{KStreamWindowAggregate, AbstractKStreamTimeWindowAggregateProcessor,
KStreamSlidingWindowAggregate, KStreamSessionWindowAggregate}.

Late records are those whose window has closed by the highest timestamp that this processor has
seen, whatever their keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.data.records import Change, Record, ValueAndTimestamp
from ottla.streams.data.windows import Window, Windowed
from ottla.streams.processors.aggregates import aggregated, combined, fold_of
from ottla.streams.processors.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.streams.data.windows import (
        EmitStrategy,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UnlimitedWindows,
    )
    from ottla.streams.processors.aggregates import Fold
    from ottla.streams.processors.processor import ProcessorContext


NOTHING_EMITTED: Final = -1


class WindowedProcessor(Processor):
    """Base of windowed aggregations: their stream time, and when they forward."""

    sends_old_values = False

    def __init__(self, store: str, emit: EmitStrategy) -> None:
        self.store_name, self._emit = store, emit
        self._store: Any = None
        self._numbers: dict[str, int] = {}

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._store = context.get_state_store(self.store_name)
        self._numbers = context.memory()

    def observe(self, timestamp: int) -> int:
        """Take a record's time into account; return the stream time."""
        observed = max(self._numbers.get("observed", -1), timestamp)
        self._numbers["observed"] = observed
        return observed

    def update(self, record: Record, window: Window, old: Any, new: ValueAndTimestamp) -> None:
        """Forward an update of a window, unless windows are forwarded when they close."""
        if not self._emit.on_close:
            change = Change(new.value, old if self.sends_old_values else None)
            key = Windowed(record.key, window)
            self.context.forward(Record(key, change, new.timestamp, record.headers))

    def last_close(self) -> int:
        """Return the close time of the last windows forwarded."""
        return self._numbers.get("closed", NOTHING_EMITTED)

    def emit_closed(self, record: Record, close_time: int) -> None:
        """Forward the windows that have closed since the last time."""
        last = self.last_close()
        if not self._emit.on_close or (last != NOTHING_EMITTED and last >= close_time):
            return
        first, end = self.closed_range(last, close_time)
        if end < 0 or not self.has_closed(first, end):
            return
        for key, found in self._store.fetch_all(first, end):
            change = Change(found.value, None)
            self.context.forward(Record(key, change, found.timestamp, record.headers))
        self._numbers["closed"] = close_time

    def closed_range(self, last: int, close_time: int) -> tuple[int, int]:
        """Return the first and the last start of windows that have closed."""
        raise NotImplementedError

    def has_closed(self, first: int, end: int) -> bool:  # noqa: ARG002 - a subclass compares them
        """Whether a window may have closed in a range of starts."""
        return True


class TimeWindowAggregate(WindowedProcessor):
    """Aggregates the values of each key and window."""

    def __init__(
        self,
        store: str,
        emit: EmitStrategy,
        windows: TimeWindows | UnlimitedWindows,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store, emit)
        self._windows = windows
        self._initializer, self._aggregator = initializer, aggregator

    @property
    def fold(self) -> Fold | None:
        """The aggregator, if its parts can be combined: results on close need each record's."""
        return None if self._emit.on_close else fold_of(self._aggregator)

    @property
    def windows(self) -> TimeWindows | UnlimitedWindows:
        """The windows."""
        return self._windows

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None:
            self.context.drop("null key of a windowed aggregation")
            return
        close_time = self.observe(record.timestamp) - self._windows.grace_ms
        for window in self._windows.windows_for(record.timestamp):
            self._add(
                record,
                window,
                close_time,
                lambda old: aggregated(self._initializer, self._aggregator, record, old),
            )
        self.emit_closed(record, close_time)

    def combine(self, record: Record, start: int, part: Sequence[Any]) -> None:
        """Process what records of a key and window make together, with their latest timestamp."""
        close_time = self.observe(record.timestamp) - self._windows.grace_ms
        window = Window(start, start + self._windows.size_ms)
        self._add(record, window, close_time, lambda old: combined(self.fold, old, part))

    def _add(
        self, record: Record, window: Window, close_time: int, aggregate: Callable[[Any], Any]
    ) -> None:
        if window.end <= close_time:
            self.context.drop(f"the window {window} has closed at {close_time}")
            return
        found = self._store.get(record.key, window.start)
        old = None if found is None else found.value
        timestamp = record.timestamp if found is None else max(record.timestamp, found.timestamp)
        row = ValueAndTimestamp(aggregate(old), timestamp)
        self._store.put(record.key, row, window.start)
        self.update(record, window, old, row)

    def closed_range(self, last: int, close_time: int) -> tuple[int, int]:
        """Return the first and the last start of windows that have closed."""
        size = self._windows.size_ms
        first = 0 if last == NOTHING_EMITTED else max(0, last - size) + 1
        return first, close_time - size

    def has_closed(self, first: int, end: int) -> bool:
        """Whether another window has closed than at the last time."""
        if self.last_close() == NOTHING_EMITTED:
            return True
        return self._windows.windows_for(end) != self._windows.windows_for(first - 1)


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
    """Aggregates the values of each key and sliding window (KIP-450).

    For a record at t the stored windows of its key that touch t are updated, and up to three are
    made: the one that ends at t, the one that starts after t if it holds later records, and the one
    that starts after the record before t. A record earlier than the time difference has no window
    that ends at it; it belongs to the window that starts at 0.
    """

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


class SessionAggregate(WindowedProcessor):
    """Aggregates the values of each key and session."""

    def __init__(
        self,
        store: str,
        emit: EmitStrategy,
        windows: SessionWindows,
        *,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store, emit)
        self._gap, self._grace = windows.gap_ms, windows.grace_ms
        self._initializer, self._aggregator, self._merger = initializer, aggregator, merger

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None:
            self.context.drop("null key of a session")
            return
        time = record.timestamp
        close_time = self.observe(time) - self._grace - self._gap
        merged = list(self._store.find_sessions(record.key, time - self._gap, time + self._gap))
        aggregate = self._initializer()
        window = Window(time, time)
        for session, value in merged:
            aggregate = self._merger(record.key, aggregate, value)
            start, end = session.window
            window = Window(min(window.start, start), max(window.end, end))
        if window.end < close_time:
            self.context.drop(f"the session {window} has closed at {close_time}")
        else:
            if window != (time, time):
                for session, value in merged:
                    self._store.remove(session)
                    self._update_session(session, value, None)
            aggregate = self._aggregator(record.key, record.value, aggregate)
            session = Windowed(record.key, window)
            self._store.put(session, aggregate)
            self._update_session(session, None, aggregate)
        self._emit_closed_sessions(record, close_time)

    def _update_session(self, session: Windowed, old: Any, new: Any) -> None:
        if not self._emit.on_close:
            change = Change(new, old if self.sends_old_values else None)
            self.context.forward(Record(session, change, session.window.end))

    def _emit_closed_sessions(self, record: Record, close_time: int) -> None:
        last = self.last_close()
        if not self._emit.on_close or (last != NOTHING_EMITTED and last >= close_time):
            return
        first, end = max(0, last), close_time - 1
        if end < 0 or end < first:
            return
        for session, value in self._store.ending_within(first, end):
            change = Change(value, None)
            self.context.forward(Record(session, change, session.window.end, record.headers))
        self._numbers["closed"] = close_time
