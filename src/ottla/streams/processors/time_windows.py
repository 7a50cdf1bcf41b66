"""Aggregations in tumbling, hopping and unlimited windows.

Kafka: kstream.internals.{KStreamWindowAggregate, AbstractKStreamTimeWindowAggregateProcessor}.

Late records are those whose window has closed by the highest timestamp that this processor has
seen, whatever their keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.streams.processor import Processor
from ottla.streams.processors.aggregates import aggregated, combined, fold_of
from ottla.streams.records import Change, Record, ValueAndTimestamp
from ottla.streams.windows import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.streams.processor import ProcessorContext
    from ottla.streams.processors.folds import Fold
    from ottla.streams.windows import EmitStrategy, TimeWindows, UnlimitedWindows

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
