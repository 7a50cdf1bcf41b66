"""Fetched record batches, decoded when the user takes their records.

Kafka: org.apache.kafka.clients.consumer.internals.CompletedFetch. Hot path: benchmarks/clients.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.record_decoder import ConsumerRecord, simple_records, with_topic
from ottla.errors import KafkaError
from ottla.records.batch import LOG_APPEND_TIME_FLAG
from ottla.records.batches import iterate_batches
from ottla.records.compression import DEFAULT_LIMIT_BYTES
from ottla.records.control import ControlRecordType, decode_control_type
from ottla.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.records.batch import RecordBatch
    from ottla.types import TopicPartition


class AppendedRecord(ConsumerRecord):
    """A record whose timestamp is when the broker appended it (LogAppendTime)."""

    __slots__ = ()


def next_offset_after(records: memoryview) -> int | None:
    """Return the offset after the last complete batch, None without one; reads headers only."""
    position, end, found = 0, len(records), None
    while end - position >= 61:
        size = int.from_bytes(records[position + 8 : position + 12], "big") + 12
        if position + size > end:
            break
        if records[position + 16] < 2:  # message formats 0 and 1: rare, not optimized
            batches = list(iterate_batches(records, position, partial_tail=True))
            return batches[-1].next_offset if batches else found
        base = int.from_bytes(records[position : position + 8], "big")
        found = base + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size
    return found


def records_of(batch: RecordBatch, topic_partition: TopicPartition) -> list[ConsumerRecord]:
    """Decode a batch."""
    if batch.magic < 2 or not batch.record_count:
        return with_topic(topic_partition, batch.records())
    plain = bytes(batch.decompressed_payload(DEFAULT_LIMIT_BYTES))
    records = simple_records(
        plain,
        batch.record_count,
        batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_FLAG else None,
        *topic_partition,
    )
    return with_topic(topic_partition, batch.records()) if records is None else records


class FetchedPartitionRecords:
    """The records of one partition in one Fetch response, and the user's position in them."""

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_batches",
        "_check_crcs",
        "_decoded",
        "_failure",
        "_next",
        "end_offset",
        "leader_epoch",
        "position",
        "size",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        fetch_offset: int,
        end_offset: int,
        *,
        aborted: Sequence[Any] | None,
        check_crcs: bool,
    ) -> None:
        self.topic_partition = topic_partition
        self.position = fetch_offset
        self.end_offset = end_offset
        self.leader_epoch = -1
        self.size = len(records)
        self._batches: Iterator[RecordBatch] = iterate_batches(records, partial_tail=True)
        self._decoded: list[Any] = []  # Record, or ConsumerRecord after `take_with_topic`
        self._next = 0  # index of the next record to return
        self._failure: Exception | None = None  # raised by every further `take`
        # None: read_uncommitted. Otherwise the aborted transactions by first offset.
        self._aborted = (
            None
            if aborted is None
            else sorted(aborted, key=lambda transaction: -transaction.first_offset)
        )
        self._aborted_producers: set[int] = set()
        self._check_crcs = check_crcs

    @classmethod
    def again(
        cls, topic_partition: TopicPartition, records: list[ConsumerRecord], end_offset: int
    ) -> FetchedPartitionRecords:
        """Make one from records that were taken before."""
        nothing = memoryview(b"")
        offset = records[0].offset
        made = cls(topic_partition, nothing, offset, end_offset, aborted=None, check_crcs=False)
        made._decoded = records
        return made

    def take(self, limit: int) -> list[Record]:
        """Return up to limit records and advance; empty at the end.

        Raises CorruptMessage, on every call, for a batch with a wrong checksum or structure; the
        position stays at that batch.
        """
        taken = self._take(limit, self._plain)
        if taken and isinstance(taken[0], ConsumerRecord):  # decoded by `take_with_topic`
            return [Record(*record[2:]) for record in taken]
        return taken

    def take_with_topic(self, limit: int) -> list[ConsumerRecord]:
        """Return ConsumerRecords, otherwise as `take`."""
        taken = self._take(limit, self._decode_with_topic)
        if taken and not isinstance(taken[0], ConsumerRecord):
            return with_topic(self.topic_partition, taken)
        return taken

    def give_back(self, count: int) -> None:
        """Return the last `count` records of the last `take` or `take_with_topic` to the buffer."""
        self._next -= count
        self.position = self._decoded[self._next].offset

    def _take(self, limit: int, decode: Callable[[RecordBatch], list[Any]]) -> list[Any]:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        try:
            found = self._next < len(self._decoded) or self._open_batch(decode)
        except Exception as error:
            self._failure = self._located(error)
            raise self._failure from error
        if not found:
            self.position = max(self.position, self.end_offset)
            return []
        taken = self._decoded[self._next : self._next + limit]
        self._next += len(taken)
        self.position = taken[-1].offset + 1
        return taken

    def _open_batch(self, decode: Callable[[RecordBatch], list[Any]]) -> bool:
        """Decode the next batch with records to return; False without one."""
        for batch in self._batches:
            self._decoded, self._next = self._decode(batch, decode), 0
            if self._decoded:
                return True
            self.position = max(self.position, batch.next_offset)
        return False

    def _located(self, error: Exception) -> Exception:
        if not isinstance(error, KafkaError):
            return error
        place = f"{self.topic_partition} at offset {self.position}"
        return KafkaError(error.code, f"{place}: {error.message}; seek past it to continue")

    def _decode(self, batch: RecordBatch, decode: Callable[[RecordBatch], list[Any]]) -> list[Any]:
        if batch.next_offset <= self.position:
            return []
        if self._check_crcs:
            batch.check_crc()
        self.leader_epoch = batch.leader_epoch
        if self._aborted is not None and self._is_aborted(batch):
            return []
        if batch.is_control:
            return []
        records = decode(batch)
        if records and records[0].offset < self.position:
            position = self.position
            records = [record for record in records if record.offset >= position]
        return records

    @staticmethod
    def _plain(batch: RecordBatch) -> list[Record]:
        return batch.records()

    def _decode_with_topic(self, batch: RecordBatch) -> list[ConsumerRecord]:
        records = records_of(batch, self.topic_partition)
        if batch.attributes & LOG_APPEND_TIME_FLAG:
            records = [AppendedRecord(*record) for record in records]
        return records

    def _is_aborted(self, batch: RecordBatch) -> bool:
        """Whether a transactional batch belongs to an aborted transaction (read_committed)."""
        assert self._aborted is not None
        while self._aborted and self._aborted[-1].first_offset <= batch.last_offset:
            self._aborted_producers.add(self._aborted.pop().producer_id)
        if batch.is_control:
            records = batch.records()
            if records and decode_control_type(records[0].key) == ControlRecordType.ABORT:
                self._aborted_producers.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._aborted_producers
