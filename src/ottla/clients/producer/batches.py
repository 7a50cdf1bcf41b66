"""Producer batches, and the handles of their records.

Kafka: org.apache.kafka.clients.producer.internals.{ProducerBatch, FutureRecordMetadata}.
Hot path: field access; compiled with `batches.pxd`, runs uncompiled too.
benchmarks/clients.py.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ottla.records.record import Headers
    from ottla.types import TopicPartition

_log = logging.getLogger("ottla.clients")

RECORD_OVERHEAD = 12
"""Typical size of a record without key, value and headers: lengths, deltas, attributes."""
BATCH_OVERHEAD = 61

RecordInput = tuple[int, bytes | None, bytes | None, "Headers"]


class RecordMetadata(NamedTuple):
    """Where a record was stored; offset is -1 if unknown (acks=0, duplicates)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key_size: int
    value_size: int


class ProducerBatch:
    """Records of one partition that are sent, retried and acknowledged together."""

    __slots__ = (
        "asked",
        "attempts",
        "base_offset",
        "base_sequence",
        "callbacks",
        "created_ms",
        "done",
        "encoded",
        "encoded_count",
        "error",
        "full",
        "log_append_time_ms",
        "order",
        "owner",
        "payload",
        "pending",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "records",
        "reserved",
        "retry_at_ms",
        "size",
        "split_into",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, created_ms: int, owner: Any) -> None:
        self.topic_partition = topic_partition
        self.records: list[RecordInput] = []
        self.encoded: bytearray | None = None  # in place of records, without a producer id
        self.encoded_count = 0
        self.size = BATCH_OVERHEAD
        self.reserved = 0  # reserved bytes of buffer.memory: the size it may grow to
        self.full = False  # has reached batch.size
        self.created_ms = created_ms
        self.owner = owner
        self.attempts = 0
        self.order = (0, 0)  # sequence in the partition, and index in the batch it was split from
        self.retry_at_ms = 0
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.payload: bytearray | None = None
        self.done = False
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: KafkaError | None = None
        self.record_errors: dict[int, str] | None = None
        self.callbacks: list[tuple[int, Callable[[Delivery], None]]] | None = None
        self.pending: Pending[ProducerBatch] | None = None
        self.split_into: list[tuple[int, ProducerBatch]] | None = None
        self.asked: set[int] | None = None  # records whose results were requested

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.encoded_count or len(self.records)

    def when_done(self) -> Pending[ProducerBatch]:
        """Return a Pending that completes with the batch; it never fails."""
        if self.pending is None:
            self.pending = Pending()
            if self.done:
                self.pending.complete(self)
        return self.pending

    def finish(self, *, error: KafkaError | None = None) -> None:
        """Mark the batch acknowledged or failed, and run callbacks and waiters."""
        self.error = error
        self.done = True
        self.payload = self.encoded = None
        if error is None:
            self.asked = None
        if self.pending is not None:
            self.pending.complete(self)
        callbacks, self.callbacks = self.callbacks, None
        for index, callback in callbacks or ():
            run_callback(callback, delivery_of(self, index))


class Delivery:
    """The handle of one sent record.

    `done`, `error` and `metadata` do not wait; `result(timeout)` waits in a thread; `await` waits
    in a coroutine. A handle keeps the record's batch in memory: do not keep millions of them.
    """

    __slots__ = ("batch", "position")

    batch: ProducerBatch
    position: int

    def __repr__(self) -> str:
        state = "waiting"
        if self.done:
            state = repr(self.failure() or self.metadata)
        return f"<Delivery to {self.batch.topic_partition}: {state}>"

    @property
    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self.batch.done

    def _resolve(self) -> tuple[ProducerBatch, int]:
        batch, index = self.batch, self.position
        while batch.split_into is not None:
            start, batch = next(part for part in reversed(batch.split_into) if part[0] <= index)
            index -= start
        return batch, index

    def ask(self, *, asks: bool = True) -> None:
        """Note that the result was requested, or no longer is."""
        batch, index = self._resolve()
        if batch.asked is None:
            batch.asked = set()
        if asks:
            batch.asked.add(index)
        else:
            batch.asked.discard(index)

    @property
    def error(self) -> KafkaError | None:
        """The error of a failed record, None before that or when acknowledged."""
        failure = self.failure()
        if failure is not None:
            self.ask()
        return failure

    def failure(self) -> KafkaError | None:
        """Return the error; does not count as a request of the result."""
        batch, index = self._resolve()
        if batch.error is not None and batch.record_errors:
            text = batch.record_errors.get(index)
            if text is not None:
                return KafkaError(batch.error.code, text)
        return batch.error

    @property
    def metadata(self) -> RecordMetadata:
        """Where the record was stored; raises its error, or KafkaError if it is not done."""
        if not self.done:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not delivered yet")
        error = self.error
        if error is not None:
            raise error
        batch, index = self._resolve()
        timestamp, key, value, _ = batch.records[index]
        if batch.log_append_time_ms >= 0:
            timestamp = batch.log_append_time_ms
        return RecordMetadata(
            *batch.topic_partition,
            batch.base_offset + index if batch.base_offset >= 0 else -1,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to timeout seconds, in a thread other than the client's own.

        Raises the record's KafkaError, TimeoutError after the timeout, and in the client's own
        thread KafkaError(INVALID_REQUEST): there, `await` the delivery.
        """
        if not self.batch.done:
            self.batch.owner.wait(self, timeout)
        return self.metadata

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.batch.done:
            yield from self.batch.owner.wait_async(self).__await__()
        return self.metadata


def delivery_of(batch: ProducerBatch, position: int) -> Delivery:
    """Return the handle of a batch's record.

    A constructor would convert its arguments to Python objects again.
    """
    delivery = Delivery.__new__(Delivery)
    delivery.batch = batch
    delivery.position = position
    return delivery


def run_callback(callback: Callable[[Delivery], None], delivery: Delivery) -> None:
    """Call a user's callback; its exception is logged, and other callbacks still run."""
    try:
        callback(delivery)
    except Exception:  # noqa: BLE001 - as in Kafka, the user's error stays the user's
        _log.exception(
            "Error executing user-provided callback on message for topic-partition '%s-%d'",
            *delivery.batch.topic_partition,
        )


class Deliveries(Sequence[Delivery]):
    """The handles of many records, created on access."""

    def __init__(self) -> None:
        self._runs: list[tuple[ProducerBatch, int, int]] = []  # batch, first position, count
        self._starts: list[int] = []
        self._length = 0

    def add(self, batch: ProducerBatch, position: int, count: int) -> None:
        """Add count records of a batch, from position."""
        if count:
            self._runs.append((batch, position, count))
            self._starts.append(self._length)
            self._length += count

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        run = bisect_right(self._starts, index) - 1
        batch, position, _ = self._runs[run]
        return delivery_of(batch, position + index - self._starts[run])

    @property
    def done(self) -> bool:
        """Whether all were acknowledged or have failed."""
        return all(batch.done for batch, _, _ in self._runs)

    @property
    def error(self) -> KafkaError | None:
        """Return the first error, None without one."""
        errors = [
            delivery_of(batch, position).error
            for batch, start, count in self._runs
            if batch.error is not None
            for position in range(start, start + count)
        ]
        return next((error for error in errors if error is not None), None)


class PartitionQueue:
    """The batches of one partition, and its idempotence state."""

    __slots__ = (
        "closed",
        "in_flight",
        "last_acked_sequence",
        "last_error",
        "needs_reset",
        "next_sequence",
        "open",
        "producer_epoch",
        "producer_id",
        "queued_bytes",
        "retries",
        "sent_count",
        "topic_partition",
        "unresolved_sequence",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.open: ProducerBatch | None = None
        self.closed: deque[ProducerBatch] = deque()
        self.retries: list[ProducerBatch] = []
        self.in_flight: list[ProducerBatch] = []
        self.queued_bytes = 0
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_error: KafkaError | None = None  # of a retried batch
        self.needs_reset = False
        self.sent_count = 0
        self.unresolved_sequence = -1  # after expired batches with unknown outcome

    def waits_since(self, when_ms: int) -> bool:
        """Whether an unsent batch was created at or before that time."""
        for waiting in (self.retries, self.closed):
            if waiting:
                first: ProducerBatch = waiting[0]
                return first.created_ms <= when_ms
        return self.open is not None and self.open.created_ms <= when_ms

    @property
    def is_idle(self) -> bool:
        """Whether no batch is queued or in flight."""
        return not (self.open or self.closed or self.retries or self.in_flight)
