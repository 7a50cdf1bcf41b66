"""Joins: of a stream with a table, of two tables with one key, and of two streams in windows.

Kafka: kstream.internals.{KStreamKTableJoinProcessor, KTableKTableInnerJoin, KTableKTableLeftJoin,
KTableKTableRightJoin, KTableKTableOuterJoin, KTableKTableJoinMerger, KStreamJoinWindow,
KStreamKStreamJoin}.

Of two streams, each side stores its records and looks the other's up. A record of an outer side
without a match waits in a store that both share, until stream time has passed its window and grace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.formats.primitives import Packing
from ottla.streams.data.records import Change, Record, ValueAndTimestamp
from ottla.streams.data.serdes import LONG, Serde
from ottla.streams.processors.processor import Processor
from ottla.streams.processors.tables import OUT_OF_ORDER, TableProcessor
from ottla.streams.stores.backend import pack_entries, unpack_entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.windows import JoinWindows
    from ottla.streams.processors.processor import ProcessorContext
    from ottla.streams.processors.tables import TableView


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


_NONE_WAITS: Final = 2**63 - 1
_LEFT, _RIGHT = b"\x01", b"\x00"


def waiting_serde() -> Serde:
    """Return the serde of the values that wait at one time."""
    return Serde(
        "waiting",
        lambda values: pack_entries((0, 0, one) for one in values),
        lambda data: [one for _, _, one in unpack_entries(data)],
    )


class StoreForJoin(Processor):
    """Stores the records of one side."""

    def __init__(self, store: str) -> None:
        self._store_name = store
        self._store: Any = None

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._store = context.get_state_store(self._store_name)

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is not None and record.value is not None:
            self._store.put(record.key, record.value, record.timestamp)
        self.context.forward(record)


class JoinSide:
    """What both sides of a join share in a task, by way of the context's numbers."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers

    def observe(self, timestamp: int) -> None:
        """Take a record's time into account."""
        self._numbers["time"] = max(self.time, timestamp)

    @property
    def time(self) -> int:
        """The highest timestamp of both sides."""
        return self._numbers.get("time", -1)

    @property
    def earliest(self) -> int:
        """No waiting record is earlier."""
        return self._numbers.get("earliest", _NONE_WAITS)

    @earliest.setter
    def earliest(self, timestamp: int) -> None:
        self._numbers["earliest"] = timestamp


class StreamJoin(Processor):
    """Joins the records of one side with those that the other has stored."""

    def __init__(
        self,
        windows: JoinWindows,
        joiner: Callable[[Any, Any, Any], Any],
        *,
        other_store: str,
        waiting_store: str | None,
        is_left: bool,
        is_outer: bool,
        serdes: tuple[Serde, Serde, Serde],
        shared: str,
    ) -> None:
        self._windows, self._joiner = windows, joiner
        self._other_name, self._waiting_name = other_store, waiting_store
        self._is_left, self._is_outer = is_left, is_outer
        self._key, self._left, self._right = serdes
        self._shared_name = shared
        own = windows if is_left else windows.reversed()
        self._before, self._after = own.before_ms, own.after_ms
        self._other: Any = None
        self._waiting: Any = None
        self._shared = JoinSide({})

    def init(self, context: ProcessorContext) -> None:
        """Open the stores."""
        super().init(context)
        self._other = context.get_state_store(self._other_name)
        if self._waiting_name is not None:
            self._waiting = context.get_state_store(self._waiting_name)
        self._shared = JoinSide(context.shared_memory(self._shared_name))

    def process(self, record: Record) -> None:
        """Process a record."""
        time = record.timestamp
        self._shared.observe(time)
        if self._is_outer and record.key is None and record.value is not None:
            self._forward_alone(record)
            return
        if record.key is None or record.value is None:
            self.context.drop("null key or value of a join")
            return
        if self._waiting is not None and time == self._shared.time:
            self._forward_closed(record)
        until = max(0, time + self._after)
        matches = list(self._other.fetch(record.key, max(0, time - self._before), until))
        for other_time, other in matches:
            if self._waiting is not None:
                self._waiting.put(self._place(other_time, not self._is_left, record.key), None)
            joined = self._join(record.key, record.value, other)
            latest = max(time, other_time)
            self.context.forward(record.with_value(joined).with_timestamp(latest))
        if self._is_outer and not matches:
            if self._waiting is None or until < self._shared.time:
                self._forward_alone(record)
            else:
                self._wait(record)

    def _wait(self, record: Record) -> None:
        self._shared.earliest = min(self._shared.earliest, record.timestamp)
        place = self._place(record.timestamp, self._is_left, record.key)
        serde = self._left if self._is_left else self._right
        data = serde.serialize(record.value) or b""
        self._waiting.put(place, [*(self._waiting.get(place) or ()), data])

    def _forward_alone(self, record: Record) -> None:
        joined = self._join(record.key, record.value, None)
        self.context.forward(record.with_value(joined))

    def _forward_closed(self, record: Record) -> None:
        """Forward the waiting records whose window has closed, the earliest first."""
        shared, grace = self._shared, self._windows.grace_ms
        if shared.earliest + self._after + grace >= shared.time:
            return
        shared.earliest = _NONE_WAITS
        open_sides: set[bytes] = set()
        for place, values in self._waiting.all():
            (shared.earliest,) = LONG.unpack(place[:8])
            if len(open_sides) == 2:
                break
            side = place[8:9]
            reach = self._windows.after_ms if side == _LEFT else self._windows.before_ms
            if shared.earliest + reach + grace >= shared.time:
                open_sides.add(side)
                continue
            for data in values:
                self._forward_waiting(record, place, data)
            self._waiting.put(place, None)

    def _forward_waiting(self, record: Record, place: bytes, data: bytes) -> None:
        key = self._key.deserialize(place[9:])
        is_left = place[8:9] == _LEFT
        left = self._left.deserialize(data) if is_left else None
        right = None if is_left else self._right.deserialize(data)
        own, other = (left, right) if self._is_left else (right, left)
        (timestamp,) = LONG.unpack(place[:8])
        joined = self._join(key, own, other)
        self.context.forward(record.with_key(key).with_value(joined).with_timestamp(timestamp))

    def _place(self, timestamp: int, is_left: bool, key: Any) -> bytes:  # noqa: FBT001 - a field
        side = _LEFT if is_left else _RIGHT
        return LONG.pack(timestamp) + side + (self._key.serialize(key) or b"")

    def _join(self, key: Any, own: Any, other: Any) -> Any:
        left, right = (own, other) if self._is_left else (other, own)
        return self._joiner(key, left, right)
