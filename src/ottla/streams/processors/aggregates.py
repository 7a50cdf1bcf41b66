"""Aggregations of streams by key: aggregate, count, reduce.

Kafka: kstream.internals.{KStreamAggregate, KStreamReduce}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.processors.tables import TableProcessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.records import Record


class StreamAggregate(TableProcessor):
    """Aggregates the values of each key; without an initializer the first one is the aggregate."""

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store)
        self._initializer, self._aggregator = initializer, aggregator

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None or record.value is None:
            self.context.drop("null key or value of an aggregation")
            return
        found = self._store.get(record.key)
        timestamp = record.timestamp
        if found is not None:
            timestamp = max(timestamp, found.timestamp)
        old = None if found is None else found.value
        new = aggregated(self._initializer, self._aggregator, record, old)
        self.update(record.with_timestamp(timestamp), new, old)


def aggregated(
    initializer: Callable[[], Any] | None,
    aggregator: Callable[[Any, Any, Any], Any],
    record: Record,
    old: Any,
) -> Any:
    """Return the aggregate after a record."""
    if old is None:
        if initializer is None:
            return record.value
        old = initializer()
    return aggregator(record.key, record.value, old)
