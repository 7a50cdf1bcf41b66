"""The record accumulator: queued records by partition.

Kafka: org.apache.kafka.clients.producer.internals.{RecordAccumulator, ProducerBatch}.
Hot path: `append`; compiled with `accumulator.pxd`, runs uncompiled too. benchmarks/clients.py.

Memory is reserved from `buffer.memory` in steps of `batch.size`: most appends only compare numbers.
A batch is due after linger.ms, or at `batch.size` if no batch of its partition is in flight
(Nagle's algorithm). Otherwise it grows up to `growth_limit`: a busy producer sends large batches in
few requests without configuration. Records are sent in the order of their appends: unsent batches
from the left of `closed`, then `open`; batches to retry are in `retries`, before both, and are sent
one at a time.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ottla.clients.producer.batches import (
    BATCH_OVERHEAD,
    RECORD_OVERHEAD,
    Deliveries,
    Delivery,
    PartitionQueue,
    ProducerBatch,
    RecordInput,
    delivery_of,
)
from ottla.clients.producer.failures import FailedSends
from ottla.clients.producer.partitioner import choose_by_load, key_hash, load_partitioner
from ottla.clients.serdes import serializer, to_bytes
from ottla.errors import ClosedError, ErrorCode, KafkaError
from ottla.records.batch import RecordBatch
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ottla.clients.environment import RandomSource
    from ottla.clients.metadata import ClusterMetadata
    from ottla.clients.settings import ValidatedSettings
    from ottla.records.record import Headers

MAX_GROWTH_BYTES = 1_000_000


class Topic:
    """The queues of a topic, and its current sticky partition.

    A recreated topic may have fewer partitions: batches of the removed ones stay queued.
    """

    __slots__ = ("count", "name", "queues", "sticky", "version")

    sticky: PartitionQueue

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.count = 0
        self.version = -1


class Accumulator:
    """The queues of all partitions, and their shared memory."""

    def __init__(
        self,
        settings: ValidatedSettings,
        metadata: ClusterMetadata,
        *,
        rng: RandomSource,
        wake: Callable[[], None],
        wall_ns: Callable[[], int],
        lock: AbstractContextManager[Any] | None = None,
        owner: Any = None,
    ) -> None:
        self.lock: AbstractContextManager[Any] = lock or nullcontext()
        # At most a request: a record above max.request.size must not fit into remaining memory.
        # At most buffer.memory: batches reserve memory in steps of this size.
        limits = (settings.batch_size, settings.max_request_size, settings.buffer_memory)
        self.batch_size: int = max(min(limits), 1)
        self.growth_limit = max(self.batch_size, min(settings.max_request_size, MAX_GROWTH_BYTES))
        self.max_request_size: int = settings.max_request_size
        self.buffer_memory: int = settings.buffer_memory
        self.used_bytes = 0
        self.now_ms = 0
        self.flushing = 0
        self.closing = False
        self.active: dict[PartitionQueue, None] = {}
        self.unfinished: dict[ProducerBatch, None] = {}
        self.wake = wake
        self.wall_ns = wall_ns
        self.to_key = serializer(settings.key_serializer, "key")
        self.to_value = serializer(settings.value_serializer, "value")
        self.failures = FailedSends()
        self._metadata = metadata
        self._rng = rng
        self._owner = owner
        self._ignore_keys: bool = settings.partitioner_ignore_keys
        self._adaptive: bool = settings.partitioner_adaptive_partitioning_enable
        self._partitioner: Any = load_partitioner(settings.partitioner_class, metadata)
        self._availability_ms: int = settings.partitioner_availability_timeout_ms
        self._linger_ms: int = settings.linger_ms
        self._topics: dict[str, Topic] = {}

    def append(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Any = (),
    ) -> Delivery | None:
        """Queue a record; None if the caller must wait for metadata or memory.

        The default timestamp is the wall clock. A partition above those known is waited for, as in
        Kafka: the topic may have got more. Raises KafkaError(MESSAGE_TOO_LARGE) for a record above
        max.request.size, INVALID_REQUEST for a negative partition and for a closed producer,
        TypeError for keys and values that are neither bytes nor str (see serdes).
        """
        if self.to_value is not None:
            value = self.to_value(value)
        elif type(value) is not bytes:
            value = to_bytes(value)
        size = RECORD_OVERHEAD if value is None else RECORD_OVERHEAD + len(value)
        if key is not None:
            key = to_bytes(key) if self.to_key is None else self.to_key(key)
            size += 0 if key is None else len(key)  # a serializer may return None
        if headers:
            headers = encode_headers(headers)
            size += headers_size(headers)
        given = timestamp_ms is not None
        when_ms = as_timestamp(timestamp_ms) if given else self.wall_ns() // 1_000_000
        state = self._topics.get(topic)
        if (state is None or state.version != self._metadata.version) and (
            state := self._refresh(topic)
        ) is None:
            return None
        with self.lock:
            sticky = (
                partition is None
                and (key is None or self._ignore_keys)
                and self._partitioner is None
            )
            queue = state.sticky if sticky else self._explicit(state, partition, key)
            if queue is None:
                return None
            batch = queue.open
            if batch is None or (grown := batch.size + size) > batch.reserved:
                if sticky:
                    queue = self._next_sticky(state)
                batch = self._make_room(queue, size)
                if batch is None:
                    return None
                grown = batch.size + size
            batch.size = grown
            records = batch.records
            records.append((when_ms, key, value, headers))
            return delivery_of(batch, len(records) - 1)

    def encoded(self, topic: str, values: Sequence[Any]) -> Sequence[bytes | None]:
        """Return values in the form of `append_many`; the same object if they are all bytes.

        Raises the errors that `append` would raise for any of them.
        """
        given: Sequence[Any] = values
        if not given:
            return given
        if self.to_value is not None:
            given = [self.to_value(value) for value in values]
        largest = 0
        for index in range(len(given)):
            value = given[index]
            if type(value) is not bytes:
                return self._encoded_one_by_one(topic, given)
            largest = max(largest, len(value))
        self._check_size(topic, RECORD_OVERHEAD + largest)
        return given

    def _encoded_one_by_one(self, topic: str, values: Sequence[Any]) -> Sequence[bytes | None]:
        converted = [to_bytes(value) for value in values]
        largest = max(len(value or b"") for value in converted)
        self._check_size(topic, RECORD_OVERHEAD + largest)
        return converted

    def append_many(
        self, topic: str, values: Sequence[bytes | None], start: int, deliveries: Deliveries
    ) -> int:
        """Queue values without keys from index start; return the index of the first not queued.

        A smaller index than the length means that the caller must wait, as for `append`.
        """
        state = self._topics.get(topic)
        if (state is None or state.version != self._metadata.version) and (
            state := self._refresh(topic)
        ) is None:
            return start
        timestamp_ms = self.wall_ns() // 1_000_000
        end = len(values)
        while start < end:
            with self.lock:
                batch = state.sticky.open
                first = values[start]
                size = RECORD_OVERHEAD + (0 if first is None else len(first))
                if batch is None or batch.size + size > batch.reserved:
                    batch = self._make_room(self._next_sticky(state), size)
                    if batch is None:
                        return start
                count = _fill(batch, values, start, timestamp_ms)
                deliveries.add(batch, len(batch.records) - count, count)
                start += count
        return start

    def _make_room(self, queue: PartitionQueue, size: int) -> ProducerBatch | None:
        """Return a batch with memory for the next record; None if memory is exhausted."""
        if self.closing:
            raise producer_closed()
        batch = queue.open
        if batch is not None and batch.size + size <= self.growth_limit:
            if batch.size + size <= batch.reserved:
                return batch
            more = min(max(self.batch_size, size), self.growth_limit - batch.reserved)
            if self.used_bytes + more > self.buffer_memory:
                self._check_memory(queue.topic_partition.topic, size)
                return None
            batch.full = True
        else:
            more = max(self.batch_size, size + BATCH_OVERHEAD)
            if self.used_bytes + more > self.buffer_memory:
                self._check_memory(queue.topic_partition.topic, size)
                return None
            batch = self._open(queue, size)
        self.used_bytes += more
        batch.reserved += more
        queue.queued_bytes += more
        self.wake()
        return batch

    def _check_size(self, topic: str, size: int) -> None:
        if size + BATCH_OVERHEAD > self.max_request_size:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"topic {topic!r}: The message is {size + BATCH_OVERHEAD} bytes when serialized "
                f"which is larger than {self.max_request_size}, which is the value of the "
                "max.request.size configuration.",
            )
        self._check_memory(topic, size)

    def _check_memory(self, topic: str, size: int) -> None:
        if size + BATCH_OVERHEAD > self.buffer_memory:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"topic {topic!r}: The message is {size + BATCH_OVERHEAD} bytes when serialized "
                "which is larger than the total memory buffer you have configured with the "
                f"buffer.memory configuration ({self.buffer_memory} bytes).",
            )

    def _explicit(
        self, state: Topic, partition: int | None, key: bytes | None
    ) -> PartitionQueue | None:
        """Return the queue that the caller, the partitioner or the key chooses.

        None if the metadata lacks the caller's partition: the topic may have got more since.
        """
        count = state.count
        is_computed = partition is None
        if partition is None:
            if self._partitioner is not None:
                partition = int(self._partitioner(state.name, key, count))
            else:
                assert key is not None
                return state.queues[key_hash(key) % count]
        if not isinstance(partition, int):
            raise TypeError(f"partition must be int, not {type(partition).__name__}")
        if partition < 0 or (is_computed and partition >= count):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of {state.name}: it has {count} partition(s), from 0",
            )
        return state.queues[partition] if partition < count else None

    def _next_sticky(self, state: Topic) -> PartitionQueue:
        """Choose the next sticky partition, after batch.size bytes (KIP-794)."""
        metadata = self._metadata
        usable = [q for q in state.queues[: state.count] if metadata.leader(q.topic_partition) >= 0]
        if self._availability_ms > 0:
            # Partitions with older ready batches are avoided: their broker is slow or unavailable.
            late_ms = self._now_ms() - self._availability_ms - self._linger_ms
            usable = [q for q in usable if not q.waits_since(late_ms)] or usable
        loads = [queue.queued_bytes if self._adaptive else 0 for queue in usable]
        state.sticky = usable[choose_by_load(loads, self._rng)] if usable else state.queues[0]
        return state.sticky

    def _refresh(self, topic: str) -> Topic | None:
        """Update the topic's queues from the metadata; None while it is unknown."""
        count = self._metadata.partition_count(topic)
        if not count:
            return None
        with self.lock:
            state = self._topics.get(topic)
            if state is None:
                state = self._topics[topic] = Topic(topic)
            for partition in range(len(state.queues), count):
                state.queues.append(PartitionQueue(TopicPartition(topic, partition)))
            if count != state.count:
                state.count, state.sticky = count, state.queues[0]
            state.version = self._metadata.version
            return state

    def _open(self, queue: PartitionQueue, size: int) -> ProducerBatch:
        self._check_size(queue.topic_partition.topic, size)
        if queue.open is not None:
            queue.closed.append(queue.open)
        batch = queue.open = ProducerBatch(queue.topic_partition, self.now_ms, self._owner)
        batch.created_ms = self._now_ms()
        batch.full = size >= self.batch_size
        self.active[queue] = None
        self.unfinished[batch] = None
        return batch

    def _now_ms(self) -> int:
        now_ms: int = self.now_ms if self._owner is None else self._owner.now_ms()
        return now_ms

    def close(self) -> None:
        """Reject further records; queued ones become due.

        Open batches are closed, so that later appends reserve memory, where they are rejected.
        """
        with self.lock:
            self.closing = True
            for queue in list(self.active):
                if queue.open is not None:
                    queue.closed.append(queue.open)
                    queue.open = None

    def append_encoded(self, partition: TopicPartition, encoded: bytearray) -> ProducerBatch | None:
        """Queue a record batch without a producer id; None without metadata of the partition.

        It is sent as it is, unless the broker finds it too large, and may exceed buffer.memory: the
        caller limits `used_bytes`.
        """
        state = self._topics.get(partition.topic)
        if state is None or state.version != self._metadata.version:
            state = self._refresh(partition.topic)
        if state is None:
            return None
        queue = self._explicit(state, partition.partition, None)
        if queue is None:
            return None
        batch = ProducerBatch(partition, self._now_ms(), self._owner)
        batch.encoded = encoded
        batch.encoded_count = RecordBatch(encoded).record_count
        batch.size = batch.reserved = len(encoded)
        with self.lock:
            queue.closed.append(batch)
            queue.queued_bytes += batch.reserved
            self.used_bytes += batch.reserved
            self.active[queue] = None
            self.unfinished[batch] = None
        return batch

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition that has been appended to."""
        return self._topics[partition.topic].queues[partition.partition]

    def is_due(self, queue: PartitionQueue, now_ms: int, linger_ms: int) -> bool:
        """Whether the partition has a batch that is due."""
        if queue.closed:
            return True
        batch = queue.open
        return batch is not None and (
            (batch.full and not queue.in_flight)
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
            queue.queued_bytes -= batch.reserved
            self.used_bytes -= batch.reserved - batch.size  # release unused memory
            batch.reserved = batch.size
            return batch

    def release(self, batch: ProducerBatch, *, error: KafkaError | None = None) -> None:
        """Complete a batch and release its memory: the transport no longer uses its bytes."""
        with self.lock:
            self.used_bytes -= batch.reserved
            del self.unfinished[batch]
        if error is not None and not batch.encoded_count:
            self.failures.add(batch, error)
        batch.finish(error=error)

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Split a batch that the broker rejected as too large; sequences do not change.

        An encoded one is decoded: its halves are encoded as those of other batches.
        """
        whole = batch.records
        if batch.encoded is not None:
            decoded = RecordBatch(batch.encoded).records()
            whole = [(one.timestamp, one.key, one.value, one.headers) for one in decoded]
        middle = len(whole) // 2
        halves = []
        for start, records in ((0, whole[:middle]), (middle, whole[middle:])):
            half = ProducerBatch(batch.topic_partition, batch.created_ms, self._owner)
            half.records = records
            half.size = BATCH_OVERHEAD + sum(_size(record) for record in records)
            half.producer_id, half.producer_epoch = batch.producer_id, batch.producer_epoch
            half.order = (batch.order[0], batch.order[1] + start)
            if batch.base_sequence >= 0:
                half.base_sequence = (batch.base_sequence + start) & 0x7FFFFFFF
            if batch.asked:
                end = start + len(records)
                half.asked = {index - start for index in batch.asked if start <= index < end}
            halves.append(half)
        first, second = halves
        batch.split_into = [(0, first), (middle, second)]
        with self.lock:
            # Together the halves hold the memory of the batch.
            first.reserved = batch.reserved // 2
            second.reserved = batch.reserved - first.reserved
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


def _fill(
    batch: ProducerBatch, values: Sequence[bytes | None], start: int, timestamp_ms: int
) -> int:
    """Append values up to the batch's reserved memory; return their number, at least one."""
    room = batch.reserved - batch.size
    append = batch.records.append
    before = len(batch.records)
    for index in range(start, len(values)):
        value = values[index]
        size = RECORD_OVERHEAD if value is None else RECORD_OVERHEAD + len(value)
        if size > room:
            break
        room -= size
        append((timestamp_ms, None, value, ()))
    batch.size = batch.reserved - room
    return len(batch.records) - before


def producer_closed() -> KafkaError:
    """Return the error for records after `close`."""
    return ClosedError("Cannot perform operation after producer has been closed")


def as_timestamp(given: Any) -> int:
    """Return a timestamp; raises TypeError if it is no int, ValueError if it is negative."""
    if not isinstance(given, int):
        raise TypeError(
            f"timestamp_ms must be int (ms since the epoch), not {type(given).__name__}: {given!r}"
        )
    if not 0 <= given < 1 << 63:
        text = f"Invalid timestamp: {given}. Timestamp should always be non-negative or null."
        raise ValueError(text)
    return given


def encode_headers(given: Any) -> Headers:
    """Return headers as pairs of str and bytes, from pairs or a mapping; raises TypeError."""
    pairs = given.items() if hasattr(given, "items") else given
    headers = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"headers must be a mapping or (name, value) pairs, not {pair!r}")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        name.encode()  # a surrogate is an error of the call
        if value is not None and not isinstance(value, (bytes, str, bytearray, memoryview)):
            raise TypeError(
                f"header {name!r} must be bytes, str or None, not {type(value).__name__}"
            )
        headers.append((name, to_bytes(value)))
    return tuple(headers)


def headers_size(headers: Headers) -> int:
    """Return the approximate size of headers in bytes."""
    return sum(len(name) + len(value or b"") + 4 for name, value in headers)


def _size(record: RecordInput) -> int:
    _, key, value, headers = record
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + headers_size(headers)
