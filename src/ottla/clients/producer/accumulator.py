"""Records that wait to be sent, by partition.

Kafka: org.apache.kafka.clients.producer.internals.{RecordAccumulator, ProducerBatch}.
Hot path: `append`; benchmarks/clients.py.

A batch is due when it has reached `batch.size` or its linger time. While its partition cannot be
sent (every request of the connection is in flight) it goes on growing, up to `growth_limit`: a
busy producer makes large batches without being configured for it. A record keeps the order in
which it was appended: unsent batches leave from the left of `closed`, then `open`; batches that
must be sent again stand in `retries`, ahead of both, and are sent one at a time.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.producer.partitioner import choose_by_load, key_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ottla.clients.client import Random
    from ottla.clients.metadata import ClusterMetadata
    from ottla.clients.settings import Settings
    from ottla.records.record import Headers

RECORD_OVERHEAD = 12
"""Typical bytes of a record besides key, value and headers: lengths, deltas, attributes."""
BATCH_OVERHEAD = 61
MAX_GROWTH_BYTES = 1_000_000

RecordInput = tuple[int, bytes | None, bytes | None, "Headers"]


class RecordMetadata(NamedTuple):
    """Where a record was stored. offset is -1 when the broker did not say (acks=0, duplicates)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key_size: int
    value_size: int


class ProducerBatch:
    """Records of one partition that are sent, retried and acknowledged together."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "callbacks",
        "created_ms",
        "done",
        "error",
        "log_append_time_ms",
        "owner",
        "payload",
        "pending",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "records",
        "retry_at_ms",
        "size",
        "split_into",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, created_ms: int, owner: Any) -> None:
        self.topic_partition = topic_partition
        self.records: list[RecordInput] = []
        self.size = BATCH_OVERHEAD
        self.created_ms = created_ms
        self.owner = owner
        self.attempts = 0
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

    def when_done(self) -> Pending[ProducerBatch]:
        """Return a Pending that is complete when the batch is; it never fails."""
        if self.pending is None:
            self.pending = Pending()
            if self.done:
                self.pending.complete(self)
        return self.pending

    def finish(self, *, error: KafkaError | None = None) -> None:
        """Mark it acknowledged or failed and tell everyone who asked."""
        self.error = error
        self.done = True
        self.payload = None
        if self.pending is not None:
            self.pending.complete(self)
        for index, callback in self.callbacks or ():
            callback(Delivery(self, index))


class Delivery:
    """What became of one record: a light handle, made for every send.

    `done`, `error`, `metadata` look; `result(timeout)` waits in a thread; `await` waits in a
    coroutine. The record's batch is kept alive by it, so do not collect millions of them.
    """

    __slots__ = ("batch", "index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self.batch = batch
        self.index = index

    def __repr__(self) -> str:
        state = "waiting" if not self.done else repr(self.error or self.metadata)
        return f"<Delivery to {self.batch.topic_partition}: {state}>"

    @property
    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self.batch.done

    def _resolve(self) -> tuple[ProducerBatch, int]:
        batch, index = self.batch, self.index
        while batch.split_into is not None:
            start, batch = next(part for part in reversed(batch.split_into) if part[0] <= index)
            index -= start
        return batch, index

    @property
    def error(self) -> KafkaError | None:
        """Why the record could not be stored, None while unknown or when it was."""
        batch, index = self._resolve()
        if batch.error is not None and batch.record_errors:
            text = batch.record_errors.get(index)
            if text is not None:
                return KafkaError(batch.error.code, text)
        return batch.error

    @property
    def metadata(self) -> RecordMetadata:
        """Where the record was stored; raises its error, or KafkaError when not done yet."""
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
        """Wait, at most timeout seconds, in a thread that is not the client's own.

        Raises the record's KafkaError, TimeoutError when the time is up first.
        """
        if not self.batch.done:
            self.batch.owner.wait(self.batch, timeout)
        return self.metadata

    def __await__(self) -> Any:
        if not self.batch.done:
            yield from self.batch.owner.wait_async(self.batch).__await__()
        return self.metadata


class PartitionQueue:
    """Everything that one partition still has to send, and its idempotence state."""

    __slots__ = (
        "closed",
        "in_flight",
        "last_acked_sequence",
        "needs_reset",
        "next_sequence",
        "open",
        "producer_epoch",
        "producer_id",
        "queued_bytes",
        "retries",
        "topic_partition",
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
        self.needs_reset = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not (self.open or self.closed or self.retries or self.in_flight)


class _Topic:
    """The queues of a topic and the sticky choice among them."""

    __slots__ = ("name", "queues", "sticky", "sticky_bytes", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0
        self.version = -1


class Accumulator:
    """All queues, and the memory they share."""

    def __init__(
        self,
        settings: Settings,
        metadata: ClusterMetadata,
        *,
        rng: Random,
        lock: AbstractContextManager[Any] | None = None,
        owner: Any = None,
    ) -> None:
        self.lock: AbstractContextManager[Any] = lock or nullcontext()
        self.batch_size: int = max(settings.batch_size, 1)
        self.growth_limit = max(self.batch_size, min(settings.max_request_size, MAX_GROWTH_BYTES))
        self.max_request_size: int = settings.max_request_size
        self.buffer_memory: int = settings.buffer_memory
        self.used_bytes = 0
        self.now_ms = 0
        self.flushing = 0
        self.closing = False
        self.active: dict[PartitionQueue, None] = {}
        self.unfinished: dict[ProducerBatch, None] = {}
        self.wake: Callable[[], None] = _nothing
        self.error: KafkaError | None = None
        self._metadata = metadata
        self._rng = rng
        self._owner = owner
        self._ignore_keys: bool = settings.partitioner_ignore_keys
        self._adaptive: bool = settings.partitioner_adaptive_partitioning_enable
        self._partitioner: Any = (
            settings.partitioner_class if callable(settings.partitioner_class) else None
        )
        self._topics: dict[str, _Topic] = {}

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers = (),
    ) -> Delivery | None:
        """Queue a record; None when it must wait: topic not known yet, or memory used up.

        Raises KafkaError(MESSAGE_TOO_LARGE) for a record above max.request.size and
        INVALID_REQUEST for a partition the topic does not have.
        """
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(len(name) + len(data or b"") + 4 for name, data in headers)
        state = self._topics.get(topic)
        if (state is None or state.version != self._metadata.version) and (
            state := self._refresh(topic)
        ) is None:
            return None
        with self.lock:
            used = self.used_bytes + size
            if used > self.buffer_memory:
                self._no_room(size)
                return None
            if partition is not None or (key is not None and not self._ignore_keys):
                queue = state.queues[self._explicit(state, partition, key)]
            else:
                queue = self._sticky(state, size)
            batch = queue.open
            if batch is None or batch.size + size > self.growth_limit:
                batch = self._open(queue, size)
            records = batch.records
            records.append((timestamp, key, value, headers))
            self.used_bytes = used
            queue.queued_bytes += size
            before = batch.size
            batch.size = before + size
            if before < self.batch_size <= before + size:
                self.wake()
            return Delivery(batch, len(records) - 1)

    def _no_room(self, size: int) -> None:
        if size > self.buffer_memory:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes does not fit into buffer.memory={self.buffer_memory}",
            )
        self.wake()

    def _explicit(self, state: _Topic, partition: int | None, key: bytes | None) -> int:
        count = len(state.queues)
        if partition is None:
            if self._partitioner is not None:
                partition = int(self._partitioner(state.name, key, count))
            else:
                assert key is not None
                return key_hash(key) % count
        if not 0 <= partition < count:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of {state.name}: it has {count} partition(s), from 0",
            )
        return partition

    def _sticky(self, state: _Topic, size: int) -> PartitionQueue:
        """Stay with one partition for batch.size bytes, then take another (KIP-794)."""
        state.sticky_bytes += size
        if state.sticky is None or state.sticky_bytes > self.batch_size:
            state.sticky_bytes = size
            usable = [
                queue for queue in state.queues if self._metadata.leader(queue.topic_partition) >= 0
            ] or state.queues
            loads = [queue.queued_bytes if self._adaptive else 0 for queue in usable]
            state.sticky = usable[choose_by_load(loads, self._rng)]
        return state.sticky

    def _refresh(self, topic: str) -> _Topic | None:
        """Make the topic's queues agree with the metadata; None while it is unknown."""
        count = self._metadata.partition_count(topic)
        if not count:
            return None
        with self.lock:
            state = self._topics.get(topic)
            if state is None:
                state = self._topics[topic] = _Topic(topic)
            for partition in range(len(state.queues), count):
                state.queues.append(PartitionQueue(TopicPartition(topic, partition)))
            state.version = self._metadata.version
            return state

    def _open(self, queue: PartitionQueue, size: int) -> ProducerBatch:
        if size + BATCH_OVERHEAD > self.max_request_size:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is larger than max.request.size={self.max_request_size}",
            )
        if queue.open is not None:
            queue.closed.append(queue.open)
        batch = queue.open = ProducerBatch(queue.topic_partition, self.now_ms, self._owner)
        if self._owner is not None:
            batch.created_ms = self._owner.now_ms()
        self.active[queue] = None
        self.unfinished[batch] = None
        self.wake()
        return batch

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition that has been appended to."""
        return self._topics[partition.topic].queues[partition.partition]

    def is_due(self, queue: PartitionQueue, now_ms: int, linger_ms: int) -> bool:
        """Whether the partition has something that should leave now."""
        if queue.closed:
            return True
        batch = queue.open
        return batch is not None and (
            batch.size >= self.batch_size
            or now_ms - batch.created_ms >= linger_ms
            or self.flushing > 0
            or self.closing
            or self.used_bytes * 2 > self.buffer_memory
        )

    def take(self, queue: PartitionQueue) -> ProducerBatch | None:
        """Remove the oldest unsent batch of a partition."""
        with self.lock:
            if queue.closed:
                batch = queue.closed.popleft()
            elif queue.open is not None:
                batch, queue.open = queue.open, None
            else:
                return None
            queue.queued_bytes -= batch.size - BATCH_OVERHEAD
            return batch

    def release(self, batch: ProducerBatch, *, error: KafkaError | None = None) -> None:
        """Finish a batch and give its memory back: its bytes are in nobody's hands any more."""
        with self.lock:
            self.used_bytes -= batch.size - BATCH_OVERHEAD
            del self.unfinished[batch]
        batch.finish(error=error)

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Halve a batch that the broker found too large; sequences stay what they were."""
        middle = len(batch.records) // 2
        halves = []
        for start, records in ((0, batch.records[:middle]), (middle, batch.records[middle:])):
            half = ProducerBatch(batch.topic_partition, batch.created_ms, self._owner)
            half.records = records
            half.size = BATCH_OVERHEAD + sum(_size(record) for record in records)
            half.producer_id, half.producer_epoch = batch.producer_id, batch.producer_epoch
            if batch.base_sequence >= 0:
                half.base_sequence = (batch.base_sequence + start) & 0x7FFFFFFF
            halves.append(half)
        first, second = halves
        batch.split_into = [(0, first), (middle, second)]
        with self.lock:
            # Keep the sum that release() gives back equal to what append() took.
            second.size = batch.size + BATCH_OVERHEAD - first.size
            del self.unfinished[batch]
            self.unfinished[first] = self.unfinished[second] = None
        remaining = [2]

        def finished(_half: object) -> None:
            remaining[0] -= 1
            if not remaining[0]:
                batch.finish(error=first.error or second.error)

        for half in halves:
            half.when_done().on_done(finished)
        return first, second


def _size(record: RecordInput) -> int:
    _, key, value, headers = record
    extra = sum(len(name) + len(data or b"") + 4 for name, data in headers)
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + extra


def _nothing() -> None:
    """Stand in until a façade says how to wake it."""
