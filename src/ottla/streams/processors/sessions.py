"""Aggregations in sessions, which merge when a record joins them.

Kafka: kstream.internals.KStreamSessionWindowAggregate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.processors.time_windows import NOTHING_EMITTED, WindowedProcessor
from ottla.streams.records import Change, Record
from ottla.streams.windows import Window, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.windows import EmitStrategy, SessionWindows


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
