"""Joins with tables: of a stream with a table, and of two tables with one key.

Kafka: kstream.internals.{KStreamKTableJoinProcessor, KTableKTableInnerJoin, KTableKTableLeftJoin,
KTableKTableRightJoin, KTableKTableOuterJoin, KTableKTableJoinMerger}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.formats.primitives import Packing
from ottla.streams.processor import Processor
from ottla.streams.processors.tables import OUT_OF_ORDER, TableProcessor
from ottla.streams.records import Change, Record, ValueAndTimestamp
from ottla.streams.serdes import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.processor import ProcessorContext
    from ottla.streams.processors.tables import TableView
    from ottla.streams.serdes import Serde

NUMBER = Packing(">i")


class StreamTableJoin(Processor):
    """Joins each record with the row of its key, or of the key that a function returns."""

    def __init__(
        self,
        view: TableView,
        joiner: Callable[[Any, Any, Any], Any],
        key_of: Callable[[Any, Any], Any],
        *,
        is_left: bool,
        is_versioned: bool = False,
    ) -> None:
        self._view, self._joiner, self._key_of = view, joiner, key_of
        self._is_left, self._is_versioned = is_left, is_versioned

    def process(self, record: Record) -> None:
        """Process a record."""
        key = self._key_of(record.key, record.value)
        if record.value is None or (key is None and not self._is_left):
            self.context.drop("null join key or value")
            return
        self._take(record, key)

    def _take(self, record: Record, key: Any) -> None:
        self._join(record, key)

    def _join(self, record: Record, key: Any) -> None:
        as_of = record.timestamp if self._is_versioned else None
        row = None if key is None else self._view.get(self.context, key, as_of)
        other = None if row is None else row.value
        if other is not None or self._is_left:
            self.context.forward(record.with_value(self._joiner(record.key, record.value, other)))


class WaitingStreamTableJoin(StreamTableJoin):
    """Joins records when stream time has passed their grace period, the earliest first."""

    def __init__(
        self,
        view: TableView,
        joiner: Callable[[Any, Any, Any], Any],
        *,
        is_left: bool,
        store: str,
        key: Serde,
        grace_ms: int,
    ) -> None:
        super().__init__(view, joiner, lambda own, _: own, is_left=is_left, is_versioned=True)
        self._store_name, self._key, self._grace_ms = store, key, grace_ms
        self._store: Any = None
        self._numbers: dict[str, int] = {}

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._store = context.get_state_store(self._store_name)
        self._numbers = context.memory()

    def _take(self, record: Record, key: Any) -> None:
        time, numbers = record.timestamp, self._numbers
        if key is None or time < numbers.get("observed", -1) - self._grace_ms:
            self._join(record, key)
        else:
            numbers["observed"] = max(numbers.get("observed", -1), time)
            number = numbers["count"] = (numbers.get("count", 0) + 1) % 2**31
            place = LONG.pack(time) + (self._key.serialize(key) or b"") + NUMBER.pack(number)
            self._store.put(place, (time, time, record.value, None, record.headers, 0))
        self._join_due(numbers.get("observed", -1) - self._grace_ms)

    def _join_due(self, latest: int) -> None:
        if latest < 0:
            return
        for place, entry in self._store.range(None, LONG.pack(latest + 1)):
            self._store.delete(place)
            key = self._key.deserialize(place[LONG.size : -NUMBER.size])
            self._join(Record(key, entry[2], entry[0], entry[4]), key)


class TableJoin(Processor):
    """One side of a join of two tables.

    `needs_other`: a row without a partner gives no result; `needs_own`: nor does one of the other.
    """

    sends_old_values = False

    def __init__(
        self,
        other: TableView,
        joiner: Callable[[Any, Any], Any],
        *,
        needs_other: bool,
        needs_own: bool,
        is_versioned: bool = False,
    ) -> None:
        self._other, self._joiner = other, joiner
        self._needs_other, self._needs_own = needs_other, needs_own
        self._is_versioned = is_versioned

    def process(self, record: Record) -> None:
        """Process a change."""
        change: Change = record.value
        if record.key is None or (self._is_versioned and not change.is_latest):
            self.context.drop("null key of a table" if record.key is None else OUT_OF_ORDER)
            return
        row = self._other.get(self.context, record.key)
        other = None if row is None else row.value
        if other is None and (self._needs_other or (change.new is None and change.old is None)):
            return
        timestamp = record.timestamp
        if row is not None and other is not None:
            timestamp = max(timestamp, row.timestamp)
        new = self._join(change.new, other)
        old = self._join(change.old, other) if self.sends_old_values else None
        joined = Change(new, old, change.is_latest)
        self.context.forward(record.with_value(joined).with_timestamp(timestamp))

    def _join(self, own: Any, other: Any) -> Any:
        if (own is None and (self._needs_own or other is None)) or (
            other is None and self._needs_other
        ):
            return None
        return self._joiner(own, other)


class JoinedView:
    """The rows of a join that has no store."""

    def __init__(
        self,
        left: TableView,
        right: TableView,
        joiner: Callable[[Any, Any], Any],
        *,
        needs_left: bool,
        needs_right: bool,
    ) -> None:
        self._left, self._right, self._joiner = left, right, joiner
        self._needs_left, self._needs_right = needs_left, needs_right

    def stores(self) -> list[str]:
        """Return the names of the stores that are read."""
        return [*self._left.stores(), *self._right.stores()]

    def get(
        self,
        context: ProcessorContext,
        key: Any,
        as_of: int | None = None,  # noqa: ARG002 - a join has no versions
    ) -> ValueAndTimestamp | None:
        """Return the joined row of a key."""
        rows = (self._left.get(context, key), self._right.get(context, key))
        left, right = (None if row is None else row.value for row in rows)
        if left is None and right is None:
            return None
        if (left is None and self._needs_left) or (right is None and self._needs_right):
            return None
        joined = self._joiner(left, right)
        if joined is None:
            return None
        return ValueAndTimestamp(joined, max(row.timestamp for row in rows if row is not None))


class JoinMerge(TableProcessor):
    """Takes the changes of both sides of a join."""

    def process(self, record: Record) -> None:
        """Process a change."""
        change: Change = record.value
        self.update(record, change.new, change.old, is_latest=change.is_latest)
