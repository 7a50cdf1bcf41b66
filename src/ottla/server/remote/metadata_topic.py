"""The topic __remote_log_metadata inside a broker: its records, written and read back.

A broker reads those partitions of the topic that have records of its own tiered partitions, and
those that it leads, from the beginning at each start: the log of those that it leads, others by
Fetch from their leaders. It writes to other leaders by Produce. A write is complete when the broker
itself has read it, so that what follows is decided on a table that has it. A write whose record is
not in the topic after all, because its leader changed, is made again; doing so twice is harmless.

Kafka: org.apache.kafka.server.log.remote.metadata.storage.{TopicBasedRemoteLogMetadataManager,
ConsumerTask, ProducerManager}.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.config.client import ConsumerConfig, ProducerConfig
from ottla.errors import CorruptMessage, ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.purgatory.pending import Pending
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.records.validator import AppendOrigin
from ottla.replication.partition import ACKS_ALL
from ottla.server.broker.broker_channel import NO_LEADER
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.storage.remote.records import (
    METADATA_TOPIC,
    decode_remote_metadata,
    encode_remote_metadata,
    metadata_partition,
)
from ottla.types import ZERO_UUID, FileSlice, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ottla.config.client import ClientConfig
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.remote.segment import RemoteSegment, SegmentUpdate
    from ottla.types import Buffer, Uuid

log = logging.getLogger("ottla.remote")
READ_BYTES: Final = 1 << 18
"""Read at once: some thousand records, which are applied in turns."""
RETRY_MS: Final = 200
"""An election takes some tenths of a second."""
_NO_SEGMENTS: Final = PartitionSegments()
"""The table of each partition without segments; no record is applied to it."""


def _is_retried(error: Exception) -> bool:
    """Whether the same request may succeed later, perhaps at another leader."""
    return isinstance(error, KafkaError) and (
        error.is_retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    )


class _Write(Pending[None]):
    """A record on its way into the topic; complete when it is read back, and durable here."""

    __slots__ = ("index", "is_flushing", "is_read", "offset", "record")

    def __init__(self, record: RemoteSegment | SegmentUpdate, index: int) -> None:
        super().__init__()
        self.record = record
        self.index = index
        self.offset: int | None = None
        """Where its leader appended it; None until then."""
        self.is_flushing = False
        """Whether this broker appended it and its disk may not have it yet."""
        self.is_read = False


class _Reading:
    """How far one partition of the topic is read."""

    __slots__ = ("end_offset", "is_ready", "position")

    def __init__(self) -> None:
        self.position = 0
        self.end_offset: int | None = None
        """Where the partition ended when reading began; None as long as no leader said so."""
        self.is_ready = False


class RemoteMetadataTopic:
    """The tables of all partitions whose records this broker reads."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: ReplicaSet,
        controller: ControllerChannel,
        channel: BrokerChannel,
        loop: Loop,
        *,
        run_on_volume: RunOnVolume,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._controller = controller
        self._channel = channel
        self._loop = loop
        self._run_on_volume = run_on_volume
        self._tables: dict[tuple[Uuid, int], PartitionSegments] = {}
        self._readings: dict[int, _Reading] = {}
        self._topic_id: Uuid | None = None
        """The topic that was read: another one of its name is read from its beginning."""
        self._is_creating = False
        self._is_closed = False
        self._writes: dict[int, dict[_Write, None]] = {}
        """Those that are not read back, by partition; empty without any."""
        config = metadata.config
        self._wait_ms = config.remote_metadata.remote_log_metadata_consume_wait_ms
        self._producer = config.remote_metadata_client(ProducerConfig, "producer")
        self._consumer = config.remote_metadata_client(ConsumerConfig, "consumer")
        self._read_bytes = min(
            READ_BYTES, self._consumer.fetch_max_bytes, self._consumer.max_partition_fetch_bytes
        )
        replicas.on_high_watermark(self._committed, self._writes)

    def close(self) -> None:
        """Repeat no further request."""
        self._is_closed = True

    def table(self, partition: tuple[Uuid, int]) -> PartitionSegments:
        """Return the segments of a partition by its topic's id; empty without any.

        REPLICA_NOT_AVAILABLE as long as not all records are read: an absent one decides nothing.
        """
        if not self.is_ready(partition):
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "remote log metadata is not read yet")
        return self._tables.get(partition, _NO_SEGMENTS)

    def led_tables(self) -> list[tuple[tuple[Uuid, int], PartitionSegments]]:
        """Return the tables, by partition, whose records this broker leads."""
        return [
            (key, table)
            for key, table in self._tables.items()
            if (index := self._index_of(*key)) is not None
            and self._own(index) is not None
            and self.is_ready(key)
        ]

    def is_of_topic(self, partition: tuple[Uuid, int]) -> bool:
        """Whether the topic of a partition exists, as far as this broker knows."""
        return self._metadata.topic_name(partition[0]) is not None

    def is_ready(self, partition: tuple[Uuid, int]) -> bool:
        """Whether the records of a partition are known, up to where they ended at the start."""
        index = self._index_of(*partition)
        reading = None if index is None else self._readings.get(index)
        return reading is not None and reading.is_ready

    def _index_of(self, topic_id: Uuid, partition: int) -> int | None:
        count = self._metadata.partition_count(METADATA_TOPIC)
        return None if count is None else metadata_partition(topic_id, partition, count)

    def _own(self, index: int) -> Partition | None:
        """Return a partition of the topic that this broker leads."""
        replica = self._replicas.find(METADATA_TOPIC, index)
        return replica if replica is not None and replica.is_leader else None

    def refresh(self, partitions: Iterable[tuple[Uuid, int]]) -> None:
        """Make the topic where it is missing; read on for these partitions, and those it leads."""
        count = self._metadata.partition_count(METADATA_TOPIC)
        if count is None:
            self._create()
            return
        topic_id = self._metadata.topic_id(METADATA_TOPIC)
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._tables.clear()
            self._readings.clear()
        needed = {metadata_partition(*key, count) for key in partitions}
        needed.update(index for index in range(count) if self._own(index) is not None)
        for index in sorted(needed):
            self._read_on(index)

    def catch_up(self, partition: tuple[Uuid, int]) -> Work[None]:
        """Read all that was written of a partition up to now; KafkaError where that fails."""
        index = self._index_of(*partition)
        if index is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {METADATA_TOPIC} yet")
        if (METADATA_TOPIC, index) in self._loop.worker:
            yield self._read_on(index)  # it may have asked for the end before
        yield self._read_on(index)

    def _create(self) -> None:
        if self._is_creating:
            return
        self._is_creating = True
        topic = CreateTopicsRequest.CreatableTopic
        config = self._metadata.config
        settings = config.remote_metadata
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(settings.remote_log_metadata_topic_retention_ms),
            "remote.storage.enable": "false",
            "flush.messages": "1",  # the same for leaders elsewhere; records are few
            "min.insync.replicas": str(settings.remote_log_metadata_topic_min_isr),
        }
        request = CreateTopicsRequest(
            topics=[
                topic(
                    name=METADATA_TOPIC,
                    num_partitions=settings.remote_log_metadata_topic_num_partitions,
                    replication_factor=settings.remote_log_metadata_topic_replication_factor,
                    assignments=[],
                    configs=[
                        topic.CreatableTopicConfig(name=name, value=value)
                        for name, value in configs.items()
                    ],
                )
            ],
            timeout_ms=config.request_timeout_ms,
        )
        self._controller.send(request, None).on_done(self._created)

    def _created(self, done: Pending[object]) -> None:
        self._is_creating = False
        topics = [] if done.error is not None else done.value.topics  # type: ignore[attr-defined]
        codes = [ErrorCode(topic.error_code) for topic in topics]
        if done.error is not None or codes[0] not in (
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ):
            reason = done.error or f"{codes[0].name}: {topics[0].error_message}"
            text = (
                "%s is not created: %s; set rlmm.config.remote.log.metadata.topic."
                "replication.factor to the number of brokers, unless they are still starting"
            )
            log.warning(text, METADATA_TOPIC, reason, extra={"event": "topic.not_created"})

    # Writes

    def write(self, record: RemoteSegment | SegmentUpdate) -> Pending[None]:
        """Append a record; the result is complete when it is read back.

        It fails with KafkaError: REQUEST_TIMED_OUT after remote.log.metadata.consume.wait.ms, and
        at once where the topic is missing or its leader refuses for good.
        """
        index = self._index_of(record.topic_id, record.partition)
        if index is None:
            return Pending.failed(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        write = _Write(record, index)
        self._writes.setdefault(index, {})[write] = None
        deadline_ms = self._loop.clock.monotonic_ms() + self._wait_ms

        def time_out(_now_ms: int) -> None:
            write.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

        def ended(_done: Pending[None]) -> None:
            timeout.cancel()
            writes = self._writes[index]
            del writes[write]
            if not writes:
                del self._writes[index]

        timeout = self._loop.timer.add(deadline_ms, time_out)
        write.on_done(ended)
        self._loop.worker.run(self._append(write)).on_done(partial(self._appended, write))
        return write

    def _append(self, write: _Write) -> Work[None]:
        """Append the record at the leader, until one has taken it."""
        write.offset = None
        now_ms = self._loop.clock.now_ms()
        batch = encode_batch([(now_ms, None, encode_remote_metadata(write.record), ())])
        while not write.done:
            try:
                own = self._own(write.index)
                if own is None:
                    write.offset = yield from self._produce(write.index, batch)
                else:
                    append = AppendOrigin.COORDINATOR
                    records = memoryview(bytearray(batch))
                    appended = self._replicas.append(own, records, ACKS_ALL, now_ms, append)
                    # a record that a power cut takes loses a segment that has left this disk
                    write.is_flushing = True
                    yield self._replicas.logs.flushes.make_durable(own.log)
                    write.is_flushing = False
                    write.offset = appended.info.last_offset
            except KafkaError as error:
                if not _is_retried(error):
                    raise
                write.is_flushing = False
                yield self._pause(self._producer)
            else:
                if write.is_read:
                    write.complete(None)
                self._read_on(write.index)
                return

    def _appended(self, write: _Write, done: Pending[None]) -> None:
        if done.error is not None:
            write.fail(done.error)

    def _produce(self, index: int, batch: Buffer) -> Work[int]:
        """Send a batch to the leader of a partition and return its offset."""
        leader_id = self._leader_of(index)
        topic = ProduceRequest.TopicProduceData
        data = topic.PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=self._metadata.config.request_timeout_ms,
            topic_data=[
                topic(name=METADATA_TOPIC, topic_id=self._id(), partition_data=[data]),
            ],
        )
        response = yield self._channel.send(leader_id, request)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
        offset: int = answer.base_offset
        return offset

    def _leader_of(self, index: int) -> int:
        leader_id = self._channel.leader_of(TopicPartition(METADATA_TOPIC, index))
        if leader_id is None or leader_id in (NO_LEADER, self._replicas.node_id):
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{METADATA_TOPIC}-{index} has no leader"
            )
        return leader_id

    def _id(self) -> Uuid:
        return self._metadata.topic_id(METADATA_TOPIC) or ZERO_UUID

    def _pause(self, client: ClientConfig) -> Pending[None]:
        """Wait before a request is repeated: its leader is being elected, or is not reached."""
        pause: Pending[None] = Pending()
        backoff_ms = client.retry_backoff_ms if "retry.backoff.ms" in client.given else RETRY_MS
        due_ms = self._loop.clock.monotonic_ms() + backoff_ms

        def end(_now_ms: int) -> None:
            pause.complete(None)

        self._loop.timer.add(due_ms, end)
        return pause

    # Reads

    def _committed(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        if topic == METADATA_TOPIC and index in self._writes:
            self._read_on(index)

    def _read_on(self, index: int) -> Pending[None]:
        key = METADATA_TOPIC, index
        is_running = key in self._loop.worker
        read = self._loop.worker.begin(self._read(index), key)
        if not is_running:
            read.on_done(lambda done: self._ended(index, done))
        return read

    def _ended(self, index: int, done: Pending[None]) -> None:
        error = done.error
        if error is not None and not _is_retried(error):
            text = "%s-%d is not read: %s; its partitions are neither copied nor read remotely"
            extra = {"event": "remote.metadata_failed"}
            log.error(text, METADATA_TOPIC, index, error, extra=extra)
        elif index in self._writes and self._own(index) is None and not self._is_closed:
            self._pause(self._consumer).on_done(partial(self._read_again, index))

    def _read_again(self, index: int, _done: Pending[None]) -> None:
        self._read_on(index)

    def _read(self, index: int) -> Work[None]:
        """Apply what is committed of a partition."""
        if self._metadata.partition_count(METADATA_TOPIC) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {METADATA_TOPIC}")
        reading = self._readings.setdefault(index, _Reading())
        while self._readings.get(index) is reading and not self._is_closed:
            own = self._own(index)
            try:
                data, high_watermark = yield from (
                    self._fetch(index, reading) if own is None else self._local(own, reading)
                )
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._start_over(index, error)  # an unclean election: what was read is not there
                return
            if reading.position >= high_watermark:
                reading.is_ready |= reading.position >= (reading.end_offset or 0)
                return
            before = reading.position
            for batch in iterate_batches(data, partial_tail=True):
                batch.check_crc()
                for record in () if batch.is_control else batch.records():
                    if record.offset >= reading.position and record.value is not None:
                        self._apply(index, record.offset, record.value)
                reading.position = batch.next_offset
                yield
            if reading.position == before:
                raise CorruptMessage(f"no batch at offset {before}")
            self._repeat_lost(index, reading.position)

    def _local(self, partition: Partition, reading: _Reading) -> Work[tuple[Buffer, int]]:
        """Read a partition that this broker leads."""
        partition_log = partition.log
        if reading.position > partition_log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if reading.end_offset is None:
            reading.end_offset = partition_log.log_end_offset
        reading.position = max(reading.position, partition_log.log_start_offset)
        if reading.position >= partition_log.high_watermark:
            return b"", partition_log.high_watermark
        found = partition_log.reads.read(
            reading.position, self._read_bytes, FetchIsolation.HIGH_WATERMARK
        ).records
        volume = partition_log.directory.volume
        data = (yield self._content(volume, found)) if isinstance(found, FileSlice) else found
        return data, partition_log.high_watermark

    def _fetch(self, index: int, reading: _Reading) -> Work[tuple[Buffer, int]]:
        """Fetch from the leader of a partition."""
        leader_id = self._leader_of(index)
        topic = FetchRequest.FetchTopic
        partition = topic.FetchPartition(
            partition=index, fetch_offset=reading.position, partition_max_bytes=self._read_bytes
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=self._read_bytes,
            topics=[topic(topic=METADATA_TOPIC, topic_id=self._id(), partitions=[partition])],
        )
        response = yield self._channel.send(leader_id, request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and reading.position < answer.log_start_offset:
                reading.position = answer.log_start_offset
                return (yield from self._fetch(index, reading))
            raise KafkaError(code, f"{METADATA_TOPIC}-{index} of broker {leader_id}")
        if reading.end_offset is None:
            reading.end_offset = answer.high_watermark
        return answer.records or b"", answer.high_watermark

    def _start_over(self, index: int, error: KafkaError) -> None:
        """Forget a partition of the topic, to read it from the beginning in the next turn."""
        text = (
            "%s-%d lost records that were read, in an unclean election: %s; it is read again, look "
            "for segments that no record names with ottla verify --tier"
        )
        extra = {"event": "remote.metadata_lost"}
        log.warning(text, METADATA_TOPIC, index, error, extra=extra)
        self._readings[index] = _Reading()
        for key in [key for key in self._tables if self._index_of(*key) == index]:
            del self._tables[key]

    def _content(self, volume: Hashable, found: FileSlice) -> Pending[bytes]:
        """Read in a worker; the file stays open until then."""
        found.file.pin()
        content: Pending[bytes] = Pending()
        content.on_done(lambda _done: found.file.unpin())
        self._run_on_volume(volume, found.read, content.job_done)
        return content

    def _apply(self, index: int, offset: int, value: bytes | memoryview) -> None:
        extra = {"event": "remote.metadata_skipped"}
        try:
            record = decode_remote_metadata(value)
        except (CorruptMessage, UnsupportedVersion) as error:
            text = "%s-%d has no record at offset %d that can be read: %s; it is skipped"
            log.error(text, METADATA_TOPIC, index, offset, error, extra=extra)  # noqa: TRY400
            return
        if record is None:
            return
        if index in self._writes:
            for write in [one for one in self._writes[index] if one.record == record]:
                write.is_read = True
                if not write.is_flushing:
                    write.complete(None)
        key = record.topic_id, record.partition
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = PartitionSegments()
        if not table.apply(record):
            text = "%s-%d has at offset %d the state %s of segment %s, which cannot follow; skipped"
            log.warning(
                text,
                METADATA_TOPIC,
                index,
                offset,
                record.state.name,
                record.segment_id,
                extra=extra,
            )
        if not len(table):
            del self._tables[key]

    def _repeat_lost(self, index: int, position: int) -> None:
        """Repeat the writes whose records should have been read and were not."""
        for write in list(self._writes.get(index, ())):
            if write.offset is not None and write.offset < position:
                write.offset = None
                append = self._loop.worker.begin(self._append(write))
                append.on_done(partial(self._appended, write))
