"""Records of a ShareFetch response: those that were acquired, and the gaps among them.

Kafka: org.apache.kafka.clients.consumer.internals.ShareCompletedFetch.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.consumer.fetched import records_of
from ottla.errors import CorruptMessage, KafkaError
from ottla.records.batches import iterate_batches
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.clients.consumer.deserializing import Deserializers
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.records.record import Headers
    from ottla.types import TopicPartition, Uuid


MAX_ACQUIRED = 1_000_000
"""The most offsets that one response may acquire of a partition; brokers lock 10,000 at most."""


class ShareRecord(NamedTuple):
    """A record returned by a share consumer; delivery_count is 1 at its first delivery."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers
    delivery_count: int


class PartitionKey(NamedTuple):
    """A partition as one node has delivered it: acknowledgements return to that node."""

    node_id: int
    topic_id: Uuid
    partition: TopicPartition


class AcquiredRange(NamedTuple):
    """Acquired offsets, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquiredPartitionRecords:
    """The acquired records of one partition in one response, decoded when they are first taken."""

    def __init__(self, key: PartitionKey, records: memoryview, ranges: Sequence[Any]) -> None:
        self.key = key
        self.error: KafkaError | None = None
        """Of the first record that cannot be read; the ones before it are returned first."""
        self.decided: dict[int, AcknowledgeType] = {}
        """Offsets without a record for the user: gaps, and records that cannot be read."""
        self.unreadable: set[int] = set()
        self._view = records
        self._ranges = sorted(
            AcquiredRange(range_.first_offset, range_.last_offset, range_.delivery_count)
            for range_ in ranges
        )
        counts = [range_.last_offset - range_.first_offset + 1 for range_ in self._ranges]
        if min(counts, default=1) < 1 or sum(counts) > MAX_ACQUIRED:
            raise CorruptMessage(f"{key.partition}: the broker sent {sum(counts)} acquired offsets")
        self._records: list[ShareRecord] | None = None
        self._next = 0

    def take(self, limit: int, deserializers: Deserializers, *, check_crcs: bool) -> list[Any]:
        """Return up to limit records, in order; none when all were taken."""
        if self._records is None:
            self._records = self._decode(deserializers, check_crcs=check_crcs)
        taken = self._records[self._next : self._next + limit]
        self._next += len(taken)
        return taken

    @property
    def is_used_up(self) -> bool:
        """Whether all records were taken."""
        return self._records is not None and self._next >= len(self._records)

    def offsets(self) -> Iterator[int]:
        """Yield the acquired offsets."""
        for range_ in self._ranges:
            yield from range(range_.first_offset, range_.last_offset + 1)

    @property
    def size(self) -> int:
        """The bytes of the response's records."""
        return len(self._view)

    def _decode(self, deserializers: Deserializers, *, check_crcs: bool) -> list[ShareRecord]:
        found: list[ShareRecord] = []
        next_offset = self._ranges[0].first_offset if self._ranges else 0
        try:
            for batch in iterate_batches(self._view, partial_tail=True):
                next_offset = batch.next_offset
                try:
                    if check_crcs:
                        batch.check_crc()
                    records = [] if batch.is_control else records_of(batch, self.key.partition)
                except KafkaError as error:
                    self._reject(batch.base_offset, next_offset, error)
                    continue
                found += self._acquired(records, deserializers)
        except CorruptMessage as error:  # the size of the next batch is damaged
            self._reject(next_offset, inf, error)
        readable = {record.offset for record in found}
        for offset in self.offsets():
            if offset not in readable:
                self.decided.setdefault(offset, AcknowledgeType.GAP)
        return found

    def _reject(self, first_offset: int, end_offset: float, error: KafkaError) -> None:
        """Reject records that cannot be decoded: no other member could decode them."""
        text = f"{self.key.partition} at offset {first_offset}: {error.message}"
        self.error = self.error or KafkaError(error.code, text)
        for offset in self.offsets():
            if first_offset <= offset < end_offset:
                self.decided[offset] = AcknowledgeType.REJECT
                self.unreadable.add(offset)

    def _acquired(
        self, records: list[ConsumerRecord], deserializers: Deserializers
    ) -> list[ShareRecord]:
        counts = [(record, self._delivery_count(record.offset)) for record in records]
        mine = [record for record, count in counts if count]
        found: list[ConsumerRecord] = []
        while mine:
            read = deserializers.read(mine) if deserializers else None
            if read is None:
                found += mine
                break
            found += read.records
            if read.failure is None:
                break
            self._release(mine[len(read.records)], read.failure)
            mine = mine[len(read.records) + 1 :]
        return [ShareRecord(*record, self._delivery_count(record.offset)) for record in found]

    def _release(self, record: ConsumerRecord, failure: KafkaError) -> None:
        """Release a record that the deserializers refuse: another member may read it."""
        self.error = self.error or failure
        self.decided[record.offset] = AcknowledgeType.RELEASE
        self.unreadable.add(record.offset)

    def _delivery_count(self, offset: int) -> int:
        """Return the delivery count of an offset, 0 if it was not acquired."""
        index = bisect_right(self._ranges, offset, key=lambda range_: range_.first_offset) - 1
        if index < 0 or offset > self._ranges[index].last_offset:
            return 0
        return self._ranges[index].delivery_count
