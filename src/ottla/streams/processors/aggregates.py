"""Aggregations of streams by key: aggregate, count, reduce.

Kafka: kstream.internals.{KStreamAggregate, KStreamReduce}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.processors.folds import Fold
from ottla.streams.processors.tables import TableProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

    @property
    def fold(self) -> Fold | None:
        """The aggregator, if its parts can be combined."""
        return fold_of(self._aggregator)

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None or record.value is None:
            self.context.drop("null key or value of an aggregation")
            return
        functions = (self._initializer, self._aggregator)
        self._update(record, lambda old: aggregated(*functions, record, old))

    def combine(self, record: Record, _start: int, part: Sequence[Any]) -> None:
        """Process what records of a key make together."""
        self._update(record, lambda old: combined(self.fold, old, part))

    def _update(self, record: Record, aggregate: Callable[[Any], Any]) -> None:
        found = self._store.get(record.key)
        timestamp = record.timestamp
        if found is not None:
            timestamp = max(timestamp, found.timestamp)
        old = None if found is None else found.value
        self.update(record.with_timestamp(timestamp), aggregate(old), old)


def fold_of(aggregator: Any) -> Fold | None:
    """Return an aggregator whose parts can be combined."""
    return aggregator if isinstance(aggregator, Fold) else None


def combined(fold: Fold | None, old: Any, part: Sequence[Any]) -> Any:
    """Return the aggregate with a part."""
    assert fold is not None
    return fold.combined(fold.empty() if old is None else old, part)


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


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return an aggregator for a function of the aggregate and a value."""
    return lambda _, value, aggregate: value if aggregate is None else reducer(aggregate, value)
