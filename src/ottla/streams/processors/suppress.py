"""Suppression of a table's intermediate updates.

Kafka: kstream.internals.suppress.KTableSuppressProcessorSupplier,
state.internals.InMemoryTimeOrderedKeyValueChangeBuffer.

The buffer is a store of rows by key; the order by time is kept in memory for the life of a task.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

from ottla.formats.primitives import Packing
from ottla.streams.data.records import Change, Header, Record, ValueAndTimestamp
from ottla.streams.data.serdes import Serde
from ottla.streams.errors import StreamsException
from ottla.streams.processors.processor import Processor
from ottla.streams.stores.backend import pack_entries, unpack_entries

if TYPE_CHECKING:
    from ottla.streams.dsl.settings import Suppressed
    from ottla.streams.processors.processor import ProcessorContext
    from ottla.streams.processors.tables import TableView

    BufferedRow = tuple[int, int, Any, Any, tuple[Header, ...], int]

_HEAD = Packing(">qqI")
_PLACE_BYTES: Final = 28
"""Of a row, as Kafka counts: two times, an offset and a number of a partition."""


class Suppress(Processor):
    """Holds a table's changes back by key until their time has passed.

    If `is_final` the time of a row is its window's end, and deletions are not forwarded.
    """

    def __init__(
        self,
        store: str,
        given: Suppressed,
        serdes: tuple[Serde, Serde],
        wait_ms: int,
        *,
        is_final: bool,
    ) -> None:
        self._store_name, self._given = store, given
        self._key, self._value = serdes
        self._wait_ms, self._is_final = wait_ms, is_final
        self._store: Any = None
        self._order: list[tuple[int, bytes]] = []
        self._numbers: dict[str, int] = {}
        self._count = self._bytes = 0

    def init(self, context: ProcessorContext) -> None:
        """Open the buffer and sort what it holds."""
        super().init(context)
        self._store = context.get_state_store(self._store_name)
        self._numbers = context.memory()
        self._order, self._bytes = [], 0
        for key, entry in self._store.all():
            self._order.append((entry[0], key))
            self._bytes += entry[5]
        heapq.heapify(self._order)
        self._count = len(self._order)

    def process(self, record: Record) -> None:
        """Process a change."""
        observed = max(self._numbers.get("observed", -1), record.timestamp)
        self._numbers["observed"] = observed
        self._buffer(record)
        while self._order and self._order[0][0] <= observed - self._wait_ms:
            self._emit_first()
        while self._is_full():
            if not self._given.emits_when_full:
                raise StreamsException(
                    f"{self._store_name} buffer exceeded its max capacity. Currently "
                    f"[{self._count}/{self._given.max_records}] records and "
                    f"[{self._bytes}/{self._given.max_bytes}] bytes."
                )
            self._emit_first()

    def _buffer(self, record: Record) -> None:
        key = self._key.serialize(record.key) or b""
        change: Change = record.value
        found = self._store.get(key)
        if found is None:
            time = record.key.window.end if self._is_final else record.timestamp
            heapq.heappush(self._order, (time, key))
            self._count += 1
            prior, size = change.old, 0
        else:
            time, prior, size = found[0], found[3], found[5]
        new_size = self._row_size(key, record, prior)
        entry = (time, record.timestamp, change.new, prior, record.headers, new_size)
        self._store.put(key, entry)
        self._bytes += new_size - size

    def _row_size(self, key: bytes, record: Record, prior: Any) -> int:
        """Return the bytes of a row as Kafka estimates them; 0 where no limit needs them."""
        if self._given.max_bytes is None:
            return 0
        values = {self._value.serialize(one) for one in (prior, record.value.old)}
        new = self._value.serialize(record.value.new)
        place = self.context.record_metadata()
        texts = ["" if place is None else place.topic, *(name for name, _ in record.headers)]
        parts = [key, new, *values, *(data for _, data in record.headers)]
        return _PLACE_BYTES + sum(map(len, texts)) + sum(len(part or b"") for part in parts)

    def _is_full(self) -> bool:
        given = self._given
        too_many = given.max_records is not None and self._count > given.max_records
        return too_many or (given.max_bytes is not None and self._bytes > given.max_bytes)

    def _emit_first(self) -> None:
        _, key = heapq.heappop(self._order)
        _, timestamp, new, old, headers, size = self._store.delete(key)
        self._count -= 1
        self._bytes -= size
        if new is None and self._is_final:
            return
        change = Change(new, old)
        self.context.forward(Record(self._key.deserialize(key), change, timestamp, headers))


class SuppressedView:
    """A suppressed table's rows as its readers have seen them: a waiting change is not there."""

    def __init__(self, store: str, parent: TableView, key: Serde) -> None:
        self._store, self._parent, self._key = store, parent, key

    def stores(self) -> list[str]:
        """Return the names of the stores that are read."""
        return [self._store, *self._parent.stores()]

    def get(
        self,
        context: ProcessorContext,
        key: Any,
        as_of: int | None = None,  # noqa: ARG002 - versioned tables are not suppressed
    ) -> ValueAndTimestamp | None:
        """Return the row of a key before its waiting change."""
        found = context.get_state_store(self._store).get(self._key.serialize(key))
        if found is None:
            return self._parent.get(context, key)
        return None if found[3] is None else ValueAndTimestamp(found[3], -1)


def buffer_serde(value: Serde) -> Serde:
    """Return the serde of rows in the buffer: two times, new and prior value, headers, a size."""

    def write(entry: BufferedRow) -> bytes:
        time, timestamp, new, prior, headers, size = entry
        values = [(0, 0, value.serialize(new)), (1, 0, value.serialize(prior))]
        named = [(2 + (v is None), len(n.encode()), n.encode() + (v or b"")) for n, v in headers]
        kept = [(kind, width, data) for kind, width, data in values if data is not None]
        return _HEAD.pack(time, timestamp, size) + pack_entries([*kept, *named])

    def read(data: bytes) -> BufferedRow:
        time, timestamp, size = _HEAD.unpack_from(data)
        values: dict[int, Any] = {}
        headers: list[Header] = []
        for kind, width, part in unpack_entries(data[_HEAD.size :]):
            if kind < 2:
                values[kind] = value.deserialize(part)
            else:
                headers.append((part[:width].decode(), None if kind == 3 else part[width:]))
        return time, timestamp, values.get(0), values.get(1), tuple(headers), size

    return Serde("buffer", write, read)
